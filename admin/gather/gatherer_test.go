package gather

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/admin/redact"
	"github.com/clusterset-dns/clusterset/admin/status"
)

// Addresses in status.yaml are those of "clusterset status -o yaml".
func TestStatusFile(t *testing.T) {
	state := &status.State{Cluster: &status.ClusterState{Outside: &status.OutsideState{Pods: networks.Outside{Count: 12345678,
		Examples: []networks.Example{{Address: netip.MustParseAddr("10.9.0.7")}, {Address: netip.MustParseAddr("fd00::7")}}}}}}
	text := string(statusFile(state).redacted(redact.Known()))
	for _, want := range []string{"address: 10.9.0.7\n", "address: fd00::7\n", "count: 12345678\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("status.yaml lacks %q:\n%s", want, text)
		}
	}
}
