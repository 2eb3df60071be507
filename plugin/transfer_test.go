package plugin

import (
	"testing"

	"github.com/miekg/dns"
)

// A panic ends a transfer, before its last SOA, and not the process.
func TestTransferPanics(t *testing.T) {
	soa, out := []dns.RR{&dns.SOA{}}, make(chan []dns.RR, 1)
	go produce(out, "clusterset.local.", func() {
		out <- soa
		panic("on one service")
	})
	var parts int
	for range out {
		parts++
	}
	if parts != 1 {
		t.Errorf("%d parts, want the one before the panic", parts)
	}
}
