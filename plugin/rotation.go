package plugin

import (
	"hash/maphash"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// A Rotation makes answers rotate: the order of their records from query to query, and what a client is shown of
// several clusters or of a capped answer from second to second. The order is the only state that a query changes. No
// two servers rotate alike. Any goroutine may use it.
type Rotation struct {
	order atomic.Uint64
	seed  maphash.Seed
}

// NewRotation returns a Rotation that begins anywhere.
func NewRotation() *Rotation {
	r := &Rotation{seed: maphash.MakeSeed()}
	r.order.Store(maphash.String(r.seed, "order"))
	return r
}

// nextOrder is another number for each query: the rotation of the records.
func (r *Rotation) nextOrder() uint64 { return r.order.Add(1) }

// clientNumber is the same for all types of a service that a client asks for within a second, and one more in the next.
func (r *Rotation) clientNumber(client netip.Addr, service string, now time.Time) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	network := client.As16()
	h.Write(network[:clientLen(client)])
	h.WriteString(service)
	return h.Sum64() + uint64(now.Unix())
}

// clientLen is how many of the 16 octets of an address identify its client. Hosts change the lower half of an IPv6
// address as they like.
func clientLen(client netip.Addr) int {
	if client.Is4() || client.Is4In6() {
		return net.IPv6len
	}
	return net.IPv6len / 2
}

// clientOf is the address of a client, the zero Addr if it is not known.
func clientOf(w dns.ResponseWriter) netip.Addr {
	switch addr := w.RemoteAddr().(type) {
	case *net.UDPAddr:
		return addr.AddrPort().Addr()
	case *net.TCPAddr:
		return addr.AddrPort().Addr()
	}
	return netip.Addr{}
}
