package index

import "slices"

// A span is the positions [from, to).
type span struct{ from, to uint32 }

func (s span) len() int { return int(s.to - s.from) }

// family has the addresses of one family in the order of the hosts.
type family struct {
	packed   string
	hostEnd  []uint32 // where the addresses of each host end, counted in addresses; nil if each host has exactly one
	distinct pick     // of the clusters that answer for the service
}

// A pick is the distinct addresses within a span: all of them, or the positions in at if an address is there twice.
type pick struct {
	span
	at []uint32
}

// start is the position of the first address of a host or of one after it.
func (f *family) start(host uint32) uint32 {
	switch {
	case f.hostEnd == nil:
		return min(host, uint32(len(f.packed))) // no address at all, or one a host
	case host == 0:
		return 0
	}
	return f.hostEnd[host-1]
}

// positions are the positions of the addresses of hosts.
func (f *family) positions(hosts span) span { return span{f.start(hosts.from), f.start(hosts.to)} }

// A List is a view of addresses of one family: making it copies nothing, and reading an address costs the same at any
// position.
type List struct {
	packed    string
	width     uint8
	dual      bool
	from, end uint32
	at        []uint32
	family    *family
	hosts     span
}

// Len is the number of addresses.
func (l *List) Len() int {
	if l.at != nil {
		return len(l.at)
	}
	return int(l.end - l.from)
}

// At is address i: 4 or 16 octets in network order.
func (l *List) At(i int) string {
	pos := int(l.from) + i
	if l.at != nil {
		pos = int(l.at[i])
	}
	w := int(l.width)
	return l.packed[pos*w : (pos+1)*w]
}

// Window is the position at which a window over the list starts. at is a fraction of the list in 1/2^32. If hosts have
// addresses of both families it is a fraction of the hosts, so that the same at starts both families at the same host.
func (l *List) Window(at uint32) int {
	n := l.Len()
	if n == 0 || !l.dual {
		return scale(at, n)
	}
	hosts := uint64(at) * uint64(l.hosts.len()) // its lower half is how far into the host
	host := l.hosts.from + uint32(hosts>>32)
	pos := l.family.start(host)
	pos += uint32(scale(uint32(hosts), int(l.family.start(host+1)-pos)))
	i := int(pos - l.from)
	if l.at != nil {
		i, _ = slices.BinarySearch(l.at, pos)
	}
	return i % n
}

func scale(at uint32, n int) int { return int(uint64(at) * uint64(n) >> 32) }
