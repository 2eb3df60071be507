package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/clusterset-dns/clusterset/admin"
	"github.com/clusterset-dns/clusterset/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

var update = flag.Bool("update", false, "write golden files anew")

// command runs the program and returns its exit code and what it printed.
func command(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), append([]string{"clusterset"}, args...), genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &o, ErrOut: &e})
	return code, o.String(), e.String()
}

// want fails unless the program ended with code and printed all of the texts, wherever.
func want(t *testing.T, code int, texts []string, args ...string) string {
	t.Helper()
	got, out, errOut := command(t, args...)
	if got != code {
		t.Errorf("%q: exit code %d, want %d\n%s%s", args, got, code, out, errOut)
	}
	for _, text := range texts {
		if !strings.Contains(out+errOut, text) {
			t.Errorf("%q printed\n%s%swant %q", args, out, errOut, text)
		}
	}
	return out
}

// TestUsage needs no API server: what is wrong is said before one is asked.
func TestUsage(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, tt := range []struct {
		name, args, want string
	}{
		{"no such verb", "frobnicate", `error: unknown command "frobnicate"`},
		{"no broker", "broker init", "error: no broker: want --broker-kubeconfig, --broker-context or both"},
		{"no broker to leave", "leave", "error: no broker: want --broker-kubeconfig, --broker-context or both, or --force if it is gone"},
		{"dry run", "join --dry-run=maybe", "error: --dry-run=maybe: want none, client or server"},
		{"output", "join -o xml", "error: --output=xml: want one of name, json, yaml"},
		{"status output", "status -o name", "error: --output=name: want one of wide, json, yaml"},
		{"vip", "join --vip=some", "error: --vip=some: want derived, cidr or none"},
		{"vip without a CIDR", "join --vip cidr --vip-cidr none", "error: --vip=cidr beside --vip-cidr=none: want one of them"},
		{"endpoints", "join --endpoints=node_ip", "error: --endpoints=node_ip: want pod_ip or service_ip"},
		{"life", "join --credential-life=1m", "error: --credential-life=1m0s: want 10m at least"},
		{"quota", "join --quota-leases=0", "0 leases: want 1 of each at least"},
		{"nothing to export", "export", "error: export: want SERVICE, the name of a Service, once or more often"},
		{"nobody to remove", "broker remove", "error: remove: 0 arguments: want ID, that of one member"},
		{"two to remove", "broker remove east west", "error: remove: 2 arguments: want ID, that of one member"},
		{"no time", "export db --timeout 0", "error: --timeout=0s: want a duration above 0s"},
		{"negative time", "unexport db --timeout=-1s", "error: --timeout=-1s: want a duration above 0s"},
		{"no kubeconfig", "export db", "none: want --kubeconfig FILE, or KUBECONFIG set to one"},
		{"no kubeconfig for a status", "status", "error: member: no kubeconfig, looked for /"},
		{"no such shell", "completion foo", `error: unknown command "foo" for "clusterset completion"`},
		{"reserved label", "export db --label kubernetes.io/x=y", "error: --label kubernetes.io/x=y: want key and value of a label, without a reserved prefix"},
		{"annotation", "export db --annotation a/b/c=y", "error: --annotation a/b/c: want the key of an annotation"},
		{"use-clusterset-ip", "export db --use-clusterset-ip=perhaps", "error: --use-clusterset-ip=perhaps: want true or false"},
		{"controller without broker", "controller", "error: --broker: want the kubeconfig of this member on the broker"},
		{"option", "controller --vip some", `"some": want one of derived, cidr, none`},
		{"too few words", "controller --lease 10s", `"10s": want 0, or two durations`},
		{"broker file", "broker init --broker-kubeconfig /does/not/exist", "error: broker: "},
	} {
		t.Run(tt.name, func(t *testing.T) { want(t, exitError, []string{tt.want}, strings.Fields(tt.args)...) })
	}
	want(t, exitFine, []string{ownVersion()}, "version")
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte(contextsOnly), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, exitError, []string{"error: member: no context is the current one of " + config + ": want --context, one of east, hub"},
		"status", "--kubeconfig", config)
	var out bytes.Buffer
	if code := run(t.Context(), []string{"/usr/bin/kubectl-clusterset", "--help"}, genericiooptions.IOStreams{Out: &out, ErrOut: &out}); code != exitFine ||
		!strings.Contains(out.String(), "kubectl clusterset [command]") {
		t.Errorf("as a plugin: exit code %d\n%s", code, &out)
	}
}

const contextsOnly = `
apiVersion: v1
kind: Config
contexts: [{name: hub, context: {cluster: hub, user: hub}}, {name: east, context: {cluster: east, user: east}}]
`

// TestCompletion asks for what a shell offers. No API server is needed.
func TestCompletion(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte(contextsOnly), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", config)
	for _, tt := range []struct {
		args, want string // with the line that ends all of them left out
	}{
		{"join --vip=", "derived\ncidr\nnone\n"},
		{"join --dry-run=", "none\nclient\nserver\n"},
		{"export -o ", "name\njson\nyaml\n"},
		{"status -o ", "wide\njson\nyaml\n"},
		{"export --use-clusterset-ip ", "true\nfalse\n"},
		{"status --context ", "east\nhub\n"},
		{"join --broker-context h", "hub\n"},
		{"controller --vip ", "derived\ncidr\nnone\n"},
		{"controller --port-merge ", "union\nintersection\n"},
		{"export --lab", "--label\tKEY=VALUE of an exported label, repeatable\n"},
	} {
		code, out, errOut := command(t, append([]string{"__complete"}, strings.Split(tt.args, " ")...)...)
		if offered, _, _ := strings.Cut(out, ":4\n"); code != exitFine || offered != tt.want {
			t.Errorf("%q: exit code %d, %s%soffers %q, want %q", tt.args, code, out, errOut, offered, tt.want)
		}
	}
	want(t, exitFine, []string{"--label KEY=VALUE  "}, "export", "--help")
}

// TestControllerFlags: every directive is a flag, and takes its words.
func TestControllerFlags(t *testing.T) {
	c := newController(&session{})
	for _, o := range controller.Options() {
		if c.Flags().Lookup(strings.ReplaceAll(o.Name, "_", "-")) == nil {
			t.Errorf("directive %s has no flag", o.Name)
		}
	}
	config := controller.Defaults()
	for _, x := range []struct{ option, value string }{
		{"lease", "5s 30s"}, {"service_cidr", "10.0.0.0/16"}, {"service_cidr", "10.1.0.0/16 10.2.0.0/16"}, {"cluster_id", "east"},
	} {
		set(t, &config, x.option, x.value)
	}
	if config.Renew != 5*time.Second || config.TTL != 30*time.Second || config.ClusterID != "east" || len(config.ServiceCIDRs) != 2 {
		t.Errorf("config = %+v, want what the flags say", config)
	}
	v := &optionValue{option: controller.Options()[5], config: &config}
	for _, value := range []string{"10.0.0.0/16", "10.1.0.0/16"} {
		if err := v.Set(value); err != nil {
			t.Fatal(err)
		}
	}
	if len(config.ServiceCIDRs) != 2 {
		t.Errorf("service CIDRs = %v, want those of two flags", config.ServiceCIDRs)
	}
}

func set(t *testing.T, config *controller.Config, option, value string) {
	t.Helper()
	for _, o := range controller.Options() {
		if o.Name != option {
			continue
		}
		if err := (&optionValue{option: o, config: config}).Set(value); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPrintState compares what a person or program gets to see with testdata.
func TestPrintState(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	state := admin.State{
		Cluster: &admin.ClusterState{
			ClusterID: "east", ClusterSet: "fleet", BrokerUID: "11111111-2222-3333-4444-555555555555", Leader: "coredns-1",
			LeaderRenewed: ago(3 * time.Second), CredentialExpires: ago(-23*time.Hour - 30*time.Minute),
			Exports: admin.ExportState{Total: 3, Ready: 2, NotReady: 1, Reasons: map[string]int{"NoService": 1}},
		},
		Broker: &admin.BrokerState{Server: "https://broker.example:6443", UID: "11111111-2222-3333-4444-555555555555"},
		Members: []admin.MemberState{
			{
				ClusterID: "east", Namespace: "clusterset-0123456789abcdef", Version: "v1.0.0", MergeOptions: "0011223344556677",
				Heartbeat: ago(4 * time.Second), HeartbeatAge: "4s", Services: 3, PodCIDRs: []string{"10.1.0.0/16", "fd01::/48"},
				ServiceCIDRs: []string{"10.101.0.0/16"}, VIPCIDR: "243.0.0.0/16", KubeSystemUID: "22222222-2222-3333-4444-555555555555", This: true,
			},
			{
				ClusterID: "west", Namespace: "clusterset-fedcba9876543210", Version: "v1.0.1", MergeOptions: "8899aabbccddeeff",
				OptionsDiffer: true, Heartbeat: ago(5 * time.Minute), HeartbeatAge: "5m0s", Expired: true,
				KubeSystemUID: "33333333-2222-3333-4444-555555555555",
			},
			{ClusterID: "xeno", Namespace: "clusterset-0000000000000000", Expired: true, KubeSystemUID: "44444444-2222-3333-4444-555555555555"},
		},
		Conflicts: []admin.ConflictState{{
			Namespace: "shop", Name: "db", Reason: "PortConflict,LabelsConflict", Message: "Conflicting ports.",
		}},
		Problems: []string{"member \"west\" renewed its heartbeat 5m0s ago: its endpoints do not count"},
		Warnings: []string{"services whose exports disagree: 1"},
	}
	for _, format := range []string{"table", "wide", "json", "yaml"} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			var err error
			if format == "json" || format == "yaml" {
				err = printAs(&out, format, state)
			} else {
				err = printState(&out, &state, now, format == "wide")
			}
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "status."+format, out.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(content) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, content)
	}
}

const shop = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {ports: [{port: 5432}]}
---
apiVersion: v1
kind: Service
metadata: {name: derived-0123456789abcdef, namespace: shop, labels: {app.kubernetes.io/managed-by: controller.clusterset-dns.io}}
spec: {ports: [{port: 5432}]}
`

// looked is an export that a controller has looked at.
const looked = `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: NAME, namespace: shop}
status:
  conditions:
  - {type: Valid, status: "VALID", reason: REASON, message: "MESSAGE", lastTransitionTime: "2026-01-01T00:00:00Z", observedGeneration: 1}
  - {type: Ready, status: "READY", reason: WHY, message: "MESSAGE", lastTransitionTime: "2026-01-01T00:00:00Z", observedGeneration: 1}
`

// TestVerbs goes through the life of a member on real API servers. No controller runs.
func TestVerbs(t *testing.T) {
	hub := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}})
	east := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}, ServiceCIDR: "10.97.0.0/16"})
	broker, member := "--broker-kubeconfig="+hub.Kubeconfig(), "--kubeconfig="+east.Kubeconfig()

	want(t, exitFine, []string{"customresourcedefinition.apiextensions.k8s.io/members.broker.clusterset-dns.io created (dry run by client)"},
		"broker", "init", broker, "--dry-run")
	for _, verb := range []string{"export", "unexport"} {
		want(t, exitError, []string{`error: ` + verb + ` db: this cluster has no CRD of ServiceExport: run "clusterset join" first, which installs it`},
			verb, "db", member, "-n", "default")
	}
	want(t, exitError, []string{`run "clusterset broker init" first`}, "join", broker, member, "--cluster-id=east")
	want(t, exitFine, []string{"The broker is ready.", "clusterrole.rbac.authorization.k8s.io/clusterset-member created"}, "broker", "init", broker)
	want(t, exitFine, []string{"broker: member.broker.clusterset-dns.io/east created (dry run by server)"},
		"join", broker, member, "--cluster-id=east", "--dry-run=server")
	want(t, exitFine, []string{"warning: no pod CIDRs were found", "warning: the broker's address is a loopback one", "east is a member of clusterset fleet"},
		"join", broker, member, "--cluster-id=east", "--clusterset=fleet")

	var done struct {
		Steps  []admin.Step
		Result admin.Joined
	}
	out := want(t, exitFine, nil, "join", broker, member, "-o", "json")
	if err := json.Unmarshal([]byte(out), &done); err != nil || done.Result.ClusterID != "east" || done.Steps[0].Action != admin.Unchanged {
		t.Errorf("join -o json: %+v, error %v, want nothing changed", done, err)
	}
	want(t, exitFine, []string{"clusterproperty.about.k8s.io/clusterset.k8s.io\n"}, "join", broker, member, "-o", "name")
	want(t, exitWrong, []string{"Clusterset:   fleet", "east *", "problem: no controller acts for this cluster"}, "status", member)
	want(t, exitFine, []string{"__start_clusterset"}, "completion", "bash")
	want(t, exitFine, []string{"east"}, "__complete", "broker", "remove", broker, "")

	if err := east.ApplyYAML(t.Context(), []byte(shop)); err != nil {
		t.Fatal(err)
	}
	exports(t, east, member)
	dryRunsForetell(t, member)
	leavingRefused(t, east, member)

	want(t, exitFine, []string{"broker: member.broker.clusterset-dns.io/east deleted (dry run by client)"}, "leave", broker, member, "--dry-run=client")
	// Nobody empties namespaces on this broker but the test.
	gone := make(chan struct{})
	go func() { defer close(gone); empty(t, hub, done.Result.Namespace) }()
	want(t, exitFine, []string{"broker: member.broker.clusterset-dns.io/east deleted", "This cluster is no member any more."}, "leave", broker, member)
	<-gone
	want(t, exitFine, []string{"Clusterset:   no member of any"}, "status", member)
	want(t, exitError, []string{`error: remove: there is no member "east", nor any other`}, "broker", "remove", "east", broker)
	want(t, exitFine, []string{"db -n shop created", "warning: this cluster is no member of a clusterset: exports take effect when it has joined"},
		"export", "db", member, "-n", "shop")
}

// empty does what kube-controller-manager does, once the namespace is deleted.
func empty(t *testing.T, c *controlplane.ControlPlane, namespace string) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		o, err := c.Dynamic().Resource(namespaces).Get(t.Context(), namespace, metav1.GetOptions{})
		switch {
		case err != nil:
			return
		case o.GetDeletionTimestamp() != nil:
			_ = c.Delete(t.Context(), o) // the next turn tries again
		}
		select {
		case <-t.Context().Done():
			return
		case <-tick.C:
		}
	}
}

func exports(t *testing.T, east *controlplane.ControlPlane, member string) {
	if out := want(t, exitFine, []string{"db"}, "__complete", "export", member, "-n", "shop", ""); strings.Contains(out, "derived") {
		t.Errorf("export offers %q, want no Service of ours", out)
	}
	want(t, exitFine, []string{"shop"}, "__complete", "export", member, "-n", "s")
	want(t, exitFine, []string{"created (dry run by client)"}, "export", "db", member, "-n", "shop", "--dry-run=client")
	want(t, exitFine, []string{"created (dry run by server)"}, "export", "db", member, "-n", "shop", "--dry-run=server")
	want(t, exitError, []string{"serviceexport.multicluster.x-k8s.io/db -n shop created",
		"error: export db: nobody has looked at it yet: want a controller that runs (clusterset status)"},
		"export", "db", member, "-n", "shop", "--timeout=300ms")
	look := func(name, valid, reason, ready, why, message string) {
		t.Helper()
		text := strings.NewReplacer("NAME", name, "VALID", valid, "REASON", reason, "READY", ready, "WHY", why, "MESSAGE", message).Replace(looked)
		if err := east.ApplyYAML(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	look("db", "True", "Valid", "True", "Exported", "")
	want(t, exitFine, []string{"db -n shop unchanged", "resolves SERVICE.shop.svc.clusterset.local."}, "export", "db", member, "-n", "shop")
	look("ghost", "False", "NoService", "False", "Pending", "There is no Service ghost.")
	want(t, exitError, []string{"error: export ghost: Valid is False, NoService: There is no Service ghost\n"},
		"export", "ghost", member, "-n", "shop")
	look("late", "True", "Valid", "False", "Failed", "The broker refuses the export: no.")
	want(t, exitError, []string{"error: export late: Ready is False, Failed: The broker refuses the export: no; see clusterset status\n"},
		"export", "late", member, "-n", "shop", "--timeout=300ms")
	want(t, exitFine, []string{"db -n shop updated", "This was asked for. Whether it has taken effect: clusterset status"},
		"export", "db", member, "-n", "shop", "--wait=false", "--label=tier=data")
	want(t, exitFine, []string{"db"}, "__complete", "unexport", member, "-n", "shop", "")
	want(t, exitWrong, []string{"Exports:      3, 0 ready", "3 of 3 exports are not ready (1 Failed, 1 NoService, 1 not looked at): see their conditions",
		"declares no pod CIDRs"}, "status", member)
	want(t, exitFine, []string{"db -n shop deleted", "ghost -n shop deleted"}, "unexport", "db", "ghost", "late", member, "-n", "shop")
	want(t, exitFine, []string{"db -n shop unchanged (not there)"}, "unexport", "db", member, "-n", "shop")
	for _, verb := range []string{"export", "unexport"} {
		want(t, exitError, []string{"error: " + verb + ` db: there is no namespace "nope": want that of the Service (-n)`}, verb, "db", member, "-n", "nope")
	}
}

// dryRunsForetell goes from every set of flags to every other, and each dry run foretells what is done.
func dryRunsForetell(t *testing.T, member string) {
	given := []string{"", "--label=tier=data", "--label=tier=web", "--annotation=note=x", "--use-clusterset-ip=true", "--use-clusterset-ip=false"}
	var path []string
	for i, from := range given {
		for _, to := range given[i+1:] {
			path = append(path, from, to)
		}
	}
	last := "none yet"
	for _, flag := range append(path, "", "") {
		action := "updated"
		switch last {
		case "none yet":
			action = "created"
		case flag:
			action = "unchanged"
		}
		for _, how := range []string{"--dry-run=client", "--dry-run=server", "--wait=false"} {
			args := []string{"export", "db", member, "-n", "shop", how}
			if flag != "" {
				args = append(args, flag)
			}
			want(t, exitFine, []string{"db -n shop " + action}, args...)
		}
		last = flag
	}
	want(t, exitFine, nil, "unexport", "db", member, "-n", "shop")
}

// leavingRefused: while the cluster leaves, nothing is exported.
func leavingRefused(t *testing.T, east *controlplane.ControlPlane, member string) {
	mark := func(value string) {
		t.Helper()
		patch := []byte(`{"metadata":{"annotations":{"clusterset-dns.io/leaving":` + value + `}}}`)
		_, err := east.Dynamic().Resource(v1beta1.Resource).Patch(t.Context(), "clusterset.k8s.io", types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	mark(`"true"`)
	out := want(t, exitError, []string{`error: this cluster is leaving the clusterset: run "clusterset join" to stay`}, "export", "db", member, "-n", "shop")
	if out != "" {
		t.Errorf("export while leaving printed %q, want nothing done", out)
	}
	mark("null")
}
