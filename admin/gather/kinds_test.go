package gather

import (
	"testing"

	"github.com/clusterset-dns/clusterset/admin/read"
)

// docs/spec/operations.md 3: in the namespace of the controller everything is read, whichever it is, and nothing twice.
func TestGatherings(t *testing.T) {
	for _, controller := range []string{"clusterset-system", "kube-system"} {
		seen := map[[3]string]bool{}
		for _, x := range gatherings(read.RoleMember, controller, "kube-system") {
			key := [3]string{x.group, x.resource, x.namespace}
			if seen[key] {
				t.Errorf("controller in %s: %q are read twice", controller, key)
			}
			seen[key] = true
		}
		for _, want := range [][3]string{{"", "pods", "kube-system"}, {"", "configmaps", "kube-system"},
			{"", "services", "kube-system"}, {"apps", "daemonsets", "kube-system"}, {"", "secrets", controller}} {
			if !seen[want] {
				t.Errorf("controller in %s: %q are not read", controller, want)
			}
		}
	}
}
