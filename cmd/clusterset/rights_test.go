package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// bound returns the kubeconfig of a user who may do what a manifest below deploy grants, and nothing else, until the
// test is over.
func bound(t *testing.T, c *controlplane.ControlPlane, user, manifest, role string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + manifest + ".yaml")
	must(t, err)
	text = fmt.Appendf(text, `
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %s}]
`, role, role, user)
	must(t, c.ApplyYAML(t.Context(), text))
	t.Cleanup(func() {
		if err := c.DeleteYAML(context.Background(), text); err != nil {
			t.Error(err)
		}
	})
	must(t, c.AwaitRights(t.Context()))
	kubeconfig, err := c.UserKubeconfig(user)
	must(t, err)
	return kubeconfig
}

// TestGrants: each command that sends requests has an entry, and the manifests in the entries exist.
func TestGrants(t *testing.T) {
	offline := map[string]bool{"completion": true, "help": true, "version": true, "controller": true, "verify-pod": true}
	root := newRoot("clusterset", genericiooptions.IOStreams{})
	known := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		known[strings.TrimPrefix(c.CommandPath(), "clusterset ")] = true
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	for _, c := range root.Commands() {
		visit(c)
		if grants[c.Name()] == "" && !offline[c.Name()] {
			t.Errorf("command %q has no entry in grants", c.Name())
		}
	}
	for path, text := range grants {
		if !known[path] {
			t.Errorf("grants has an entry for %q, which is no command", path)
		}
		for word := range strings.FieldsSeq(text) {
			if strings.HasPrefix(word, "deploy/") {
				if _, err := os.Stat("../../" + word); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		}
	}
}

// rights: a user without a right is told what grants it, and a user who has just that can run the command.
func rights(t *testing.T, hub, east *controlplane.ControlPlane, broker string) {
	nobody, err := east.UserKubeconfig("nobody")
	must(t, err)
	nobodyThere, err := hub.UserKubeconfig("nobody")
	must(t, err)
	here, there := "--kubeconfig="+nobody, "--broker-kubeconfig="+nobodyThere
	const status = "deploy/status/member.yaml in the cluster or deploy/status/broker.yaml on the broker has the rights for this command\n"
	for _, tt := range []struct{ args, cannot, granted string }{
		{"status", `cannot get resource "namespaces"`, status},
		{"status --broker-only " + there, `cannot get resource "namespaces"`, status},
		{"export db -n shop", `cannot get resource "serviceexports"`, "deploy/export/export.yaml has the rights for this command\n"},
		{"unexport db -n shop", `cannot get resource "serviceexports"`, "deploy/export/export.yaml has the rights for this command\n"},
		{"leave " + broker, `cannot get resource`, "ClusterRole cluster-admin in the cluster and on the broker has the rights for this command\n"},
		{"uninstall", `cannot get resource`, "ClusterRole cluster-admin has the rights for this command\n"},
		{"broker init " + there, `cannot `, "ClusterRole cluster-admin on the broker has the rights for this command\n"},
		{"broker remove east " + there, `cannot `, "ClusterRole cluster-admin on the broker has the rights for this command\n"},
		{"broker uninstall " + there, `cannot `, "ClusterRole cluster-admin on the broker has the rights for this command\n"},
	} {
		want(t, exitError, []string{tt.cannot, "; " + tt.granted}, append(strings.Fields(tt.args), here)...)
	}
	reader := "--kubeconfig=" + bound(t, east, "reader", "status/member", "clusterset-status-member")
	onBroker := "--broker-kubeconfig=" + bound(t, hub, "reader", "status/broker", "clusterset-status-broker")
	for _, flags := range [][]string{{reader}, {reader, onBroker}} {
		out := want(t, exitProblems, []string{"Clusterset:   fleet", "east (this)"}, append([]string{"status"}, flags...)...)
		if strings.Contains(out, "may not be read") || strings.Contains(out, "cannot") {
			t.Errorf("status printed\n%s\nwant everything read", out)
		}
	}
}
