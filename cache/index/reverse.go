package index

import (
	"iter"
	"slices"
	"sort"
	"strings"
)

// A Reverse is the services of each address, for the [Index] of the same moment: PTR records are found by it
// (docs/spec/dns.md 2.5). It never changes, as an Index. It costs about as much as the addresses themselves, some times
// over, and is only there if a reverse zone is served.
type Reverse struct{ addresses trie[*owners] }

// owners are the services that an address belongs to.
type owners struct {
	address  string   // 4 or 16 octets in network order
	services []string // keys, sorted; never empty
}

func (o *owners) Key() string { return o.address }

// A Replacement is a service before and after a change. Either is nil if the service did not exist then.
type Replacement struct{ Old, New *Service }

// NewReverse returns the services of each address in x.
func NewReverse(x *Index) *Reverse {
	var all []Replacement
	x.services.each(func(s *Service) { all = append(all, Replacement{New: s}) })
	return new(Reverse).With(all)
}

// With returns r after changes.
func (r *Reverse) With(changes []Replacement) *Reverse {
	next, mark := *r, new(edit)
	for _, c := range changes {
		next.replace(mark, c)
	}
	return &next
}

// Services yields the keys of the services that an address, of 4 or 16 octets, belongs to, sorted.
func (r *Reverse) Services(address string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if o := r.addresses.get(address); o != nil {
			slices.Values(o.services)(yield)
		}
	}
}

func (r *Reverse) replace(mark *edit, c Replacement) {
	before, after := addressesOf(c.Old), addressesOf(c.New)
	for len(before) > 0 || len(after) > 0 {
		switch {
		case len(after) == 0 || len(before) > 0 && before[0] < after[0]:
			r.drop(mark, before[0], c.Old.Key())
			before = before[1:]
		case len(before) == 0 || after[0] < before[0]:
			r.add(mark, after[0], c.New.Key())
			after = after[1:]
		default: // in both
			before, after = before[1:], after[1:]
		}
	}
}

// addressesOf are the addresses of s, its virtual IPs and those of its endpoints, sorted, each once.
func addressesOf(s *Service) []string {
	if s == nil {
		return nil
	}
	var all []string
	add := func(packed string, width int) {
		for ; packed != ""; packed = packed[width:] {
			all = append(all, packed[:width])
		}
	}
	for _, f := range []Family{V4, V6} {
		if s.eps != nil {
			add(s.eps.family[f].packed, f.width())
		}
		if s.HasVIP() {
			list := s.VIPs(f)
			add(list.packed, f.width())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (r *Reverse) add(mark *edit, address, service string) {
	next := owners{address: strings.Clone(address), services: []string{service}}
	if old := r.addresses.get(address); old != nil {
		i, _ := slices.BinarySearch(old.services, service)
		next = owners{old.address, slices.Insert(slices.Clone(old.services), i, service)}
	}
	r.addresses.put(mark, &next)
}

func (r *Reverse) drop(mark *edit, address, service string) {
	old := r.addresses.get(address)
	i, _ := slices.BinarySearch(old.services, service)
	if len(old.services) == 1 {
		r.addresses.remove(mark, address)
		return
	}
	r.addresses.put(mark, &owners{old.address, cutAt(slices.Clone(old.services), i)})
}

// HostsWith yields the hosts that have an address, of 4 or 16 octets. It reads all addresses of the service.
func (s *Service) HostsWith(address string) iter.Seq[int] {
	return func(yield func(int) bool) {
		if s.eps == nil {
			return
		}
		family := &s.eps.family[V4]
		if len(address) == V6.width() {
			family = &s.eps.family[V6]
		}
		for at := 0; at < len(family.packed); at += len(address) {
			if family.packed[at:at+len(address)] == address && !yield(family.hostOf(uint32(at/len(address)))) {
				return
			}
		}
	}
}

// hostOf is the host of the address at a position.
func (f *family) hostOf(pos uint32) int {
	if f.hostEnd == nil {
		return int(pos)
	}
	return sort.Search(len(f.hostEnd), func(h int) bool { return pos < f.hostEnd[h] })
}

// HostNamed reports whether a host owns a name.
func (s *Service) HostNamed(host int) bool {
	groups := s.eps.groups
	g := sort.Search(len(groups), func(g int) bool { return uint32(host) < groups[g].hosts.to })
	return s.typ == Headless && !groups[g].unnamed
}
