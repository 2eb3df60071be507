package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// everyRight is for commands that create definitions, policies and rights, or read any kind.
const everyRight = "ClusterRole cluster-admin"

// grants names the grant of the rights that a command needs, by the path of the command or of one above it.
var grants = map[string]string{
	"broker":    everyRight + " on the broker",
	"dns":       "deploy/dns-wiring/dns-wiring.yaml",
	"explain":   "deploy/explain/member.yaml in the cluster and deploy/explain/broker.yaml on the broker",
	"export":    "deploy/export/export.yaml",
	"gather":    everyRight,
	"join":      "deploy/join/member.yaml in the cluster and deploy/join/broker.yaml on the broker",
	"leave":     everyRight + " in the cluster and on the broker",
	"status":    "deploy/status/member.yaml in the cluster or deploy/status/broker.yaml on the broker",
	"unexport":  "deploy/export/export.yaml",
	"uninstall": everyRight,
	"verify":    "deploy/verify/verify.yaml in each member",
}

// grantedBy completes the error of a command with what grants a right that is missing, unless the error names it. The
// text of the API server has verb and resource.
func grantedBy(c *cobra.Command, err error) error {
	// Quotas and policies answer Forbidden, too, in other words.
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), " cannot ") ||
		strings.Contains(err.Error(), "deploy/") {
		return err
	}
	for ; c.HasParent(); c = c.Parent() {
		path := strings.TrimPrefix(c.CommandPath(), c.Root().CommandPath()+" ")
		if what := grants[path]; what != "" {
			return fmt.Errorf("%w; %s has the rights for this command", err, what)
		}
	}
	return err
}
