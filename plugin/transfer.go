package plugin

import (
	"errors"
	"runtime/debug"
	"strings"

	"github.com/coredns/coredns/plugin/transfer"
	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/resolver"
)

// errNotReady makes the transfer plugin answer SERVFAIL. transfer.ErrNotAuthoritative would make it ask other plugins
// for the zone.
var errNotReady = errors.New("the lists that a transfer needs are not complete")

// Transfer implements transfer.Transferer. It returns all records of the zone from one state (RFC 5936), or the SOA
// alone if the serial of the secondary is not behind (RFC 1995 section 4). Before all lists are complete it is an
// error.
func (h *Handler) Transfer(origin string, serial uint32) (<-chan []dns.RR, error) {
	z := longestZone(h.zones, origin)
	if z == nil || !strings.EqualFold(z.origin, origin) {
		return nil, transfer.ErrNotAuthoritative
	}
	state := h.store.State()
	if !state.Knows("", true) {
		return nil, errNotReady
	}
	out := make(chan []dns.RR, 1)
	soa := []dns.RR{h.soa(origin, h.nameServerOf(origin), mailboxOf(origin), state.Serial)}
	if serial != 0 && int32(serial-state.Serial) >= 0 {
		out <- soa
		close(out)
		return out, nil
	}
	o := z.options
	o.LocalCluster = state.LocalCluster
	// The transfer plugin reads until the channel is closed, also if its client went away.
	go produce(out, origin, func() {
		out <- soa
		out <- h.apex(origin)
		for a := range resolver.RRsets(state.Index, &o) {
			out <- h.records(origin, &a)
		}
		out <- soa
	})
	return out, nil
}

// produce calls send, which sends the records of a transfer, and then closes out. A panic ends the transfer and not the
// process: without the SOA at the end, the secondary rejects it and tries again.
func produce(out chan<- []dns.RR, origin string, send func()) {
	defer close(out)
	defer func() {
		if p := recover(); p != nil {
			Log.Errorf("transfer of %s: panic: %v\n%s", origin, p, debug.Stack())
		}
	}()
	send()
}

// apex returns the records above the services, except the SOA.
func (h *Handler) apex(origin string) []dns.RR {
	host := joinName(nameServer, origin)
	rrs := append([]dns.RR{h.ns(origin)}, h.nameServer(host, dns.TypeA)...)
	return append(append(rrs, h.nameServer(host, dns.TypeAAAA)...), versionTXT(joinName("dns-version.", origin)))
}

// records returns the records of an RRset.
func (h *Handler) records(origin string, a *resolver.Answer) (rrs []dns.RR) {
	owner := absoluteName(&a.Name, origin)
	for i := range a.Addresses.Len() {
		rrs = append(rrs, h.address(owner, a.Addresses.At(i)))
	}
	for i := range a.Services.Len() {
		port, to := a.Services.At(i)
		hdr := h.header(owner, dns.TypeSRV)
		rrs = append(rrs, &dns.SRV{Hdr: hdr, Weight: a.Services.Weight(), Port: port, Target: absoluteName(&to, origin)})
	}
	return rrs
}

func absoluteName(n *resolver.Name, origin string) string {
	return joinName(string(append(n.AppendName(nil), '.')), origin)
}
