package vip

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var start = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

func service(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("db-%d", i)}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func newPool(prefix string) *Pool { return New(netip.MustParsePrefix(prefix), Quarantine) }

// mustAllocate allocates for service i.
func mustAllocate(t *testing.T, p *Pool, i int, now time.Time) netip.Addr {
	t.Helper()
	a, ok := p.Allocate(service(i), now)
	if !ok {
		t.Fatalf("%s: nothing for service %d, want an address", p.Prefix(), i)
	}
	return a
}

func TestAllocateAll(t *testing.T) {
	for _, tt := range []struct {
		prefix string
		want   int
	}{
		{"243.0.0.0/24", 254}, {"243.0.0.4/30", 2}, {"243.0.0.4/31", 2}, {"243.0.0.7/32", 1},
		{"255.255.255.252/30", 2}, {"127.0.0.0/29", 0},
		{"fd00:243::/120", 256}, {"fd00:243::1/128", 1}, {"fd00:243::/64", 1000},
	} {
		p := newPool(tt.prefix)
		given := make(map[netip.Addr]bool)
		for i := range tt.want {
			given[mustAllocate(t, p, i, start)] = true
		}
		if len(given) != tt.want {
			t.Errorf("%s: %d different addresses, want %d", tt.prefix, len(given), tt.want)
		}
		for a := range given {
			if !p.Prefix().Contains(a) {
				t.Errorf("%s: %s given out, which is none of its addresses", tt.prefix, a)
			}
		}
		if a, ok := p.Allocate(service(-1), start); ok && tt.want < 1000 {
			t.Errorf("%s: %s given out after all %d, want none", tt.prefix, a, tt.want)
		}
	}
}

// An address waits ten minutes for another service, and not at all for the one that had it.
func TestQuarantine(t *testing.T) {
	p := newPool("243.0.0.4/31")
	first, second := mustAllocate(t, p, 1, start), mustAllocate(t, p, 2, start)
	p.Name(service(1), []netip.Addr{first}, start)
	p.Release(service(1), start)
	if a, ok := p.Allocate(service(3), start); ok {
		t.Fatalf("%s given out, though a record names it", a)
	}
	p.Name(service(1), nil, start)
	almost := start.Add(Quarantine - 1)
	if a, ok := p.Allocate(service(3), almost); ok {
		t.Errorf("%s given out before %s are over", a, Quarantine)
	}
	if used, quarantined, free := p.Usage(almost); used != 1 || quarantined != 1 || free != 0 {
		t.Errorf("usage = %d, %d, %d, want one taken, one in quarantine, none free", used, quarantined, free)
	}
	if a := mustAllocate(t, p, 1, almost); a != first {
		t.Errorf("service 1 gets %s again, want its own %s", a, first)
	}
	p.Release(service(1), almost)
	if a := mustAllocate(t, p, 3, almost.Add(Quarantine)); a != first {
		t.Errorf("service 3 gets %s, want %s, the only one but %s", a, first, second)
	}
}

// A pool goes on with the quarantine of the one before, but for what is taken meanwhile.
func TestQuarantineOutlivesThePool(t *testing.T) {
	before := newPool("243.0.0.0/29")
	for i := range 4 {
		a := mustAllocate(t, before, i, start)
		before.Release(service(i), start.Add(time.Duration(i)*time.Minute))
		if _, changed := before.Quarantined(start, 9); !changed {
			t.Errorf("%s went into quarantine, and nothing has changed", a)
		}
	}
	later := start.Add(Quarantine + 30*time.Second) // that of service 0 is over
	all, changed := before.Quarantined(later, 9)
	if len(all) != 3 || changed || all[0].Service != service(3) {
		t.Fatalf("quarantined = %v, changed %t, want those of services 3 to 1, as before", all, changed)
	}
	if some, _ := before.Quarantined(later, 2); !slices.Equal(some, all[:2]) {
		t.Errorf("quarantined = %v, want the last two of %v", some, all)
	}

	after := newPool("243.0.0.0/29")
	after.Name(service(9), []netip.Addr{all[0].Addr}, later)
	all[1].Until = later.Add(time.Hour) // as from a wrong clock
	after.Restore(append(all, Freed{addr("10.0.0.1"), service(8), later.Add(time.Minute)}), later)
	if used, quarantined, free := after.Usage(later); used != 1 || quarantined != 2 || free != 3 {
		t.Errorf("usage = %d, %d, %d, want one taken, two in quarantine, three free", used, quarantined, free)
	}
	if a := mustAllocate(t, after, 2, later); a != all[1].Addr {
		t.Errorf("service 2 gets %s, want its own %s", a, all[1].Addr)
	}
	after.Release(service(2), later)
	if used, quarantined, free := after.Usage(later.Add(Quarantine)); used != 1 || quarantined != 0 || free != 5 {
		t.Errorf("usage = %d, %d, %d, want the end of the quarantine", used, quarantined, free)
	}
}

// What a record of anybody names is taken: at a start, in another cluster's pool before, and by mistake.
// An address whose record goes while there is no pool, as its Member is away for a moment, waits as others do.
func TestContinue(t *testing.T) {
	before, kept := newPool("243.0.0.0/29"), addr("243.0.0.1")
	gone := addr("243.0.0.4")
	before.Name(service(1), []netip.Addr{kept}, start)
	before.Name(service(2), []netip.Addr{gone}, start)
	before.Own([]netip.Addr{kept, gone})
	reserved := mustAllocate(t, before, 3, start)

	p := newPool("243.0.0.0/29")
	p.Name(service(1), []netip.Addr{kept}, start)
	if !p.Continue(before, start) {
		t.Error("Continue = false, want true: there are addresses in quarantine")
	}
	if used, quarantined, _ := p.Usage(start); used != 1 || quarantined != 2 {
		t.Errorf("%d used and %d in quarantine, want 1 and 2", used, quarantined)
	}
	for range 6 {
		a, ok := p.Allocate(types.NamespacedName{Namespace: "other", Name: fmt.Sprint(len(p.reserved))}, start)
		if ok && (a == gone || a == reserved) {
			t.Errorf("%s is allocated to another service at once", a)
		}
	}
	if a := mustAllocate(t, p, 3, start); a != reserved {
		t.Errorf("the service that had %s gets %s", reserved, a)
	}
}

// What only other members named waits for nobody once a pool is exhausted: one that names ever more addresses would keep it so.
func TestQuarantineOfOthers(t *testing.T) {
	p := newPool("243.0.0.4/30") // two addresses
	ours, foreign := mustAllocate(t, p, 1, start), addr("243.0.0.5")
	if ours == foreign {
		foreign = addr("243.0.0.6")
	}
	p.Name(service(2), []netip.Addr{foreign}, start)
	p.Name(service(2), nil, start)
	p.Release(service(1), start)
	if _, quarantined, _ := p.Usage(start); quarantined != 2 {
		t.Errorf("%d in quarantine, want both", quarantined)
	}
	if all, _ := p.Quarantined(start, 10); len(all) != 1 || all[0].Addr != ours {
		t.Errorf("to be saved: %v, want %s alone", all, ours)
	}
	if a := mustAllocate(t, p, 3, start); a != foreign {
		t.Errorf("service 3 gets %s, want %s", a, foreign)
	}
	// A copy that comes late and goes again does not end the quarantine of ours.
	p.Name(service(2), []netip.Addr{ours}, start)
	p.Name(service(2), nil, start)
	if a, ok := p.Allocate(service(4), start); ok {
		t.Errorf("service 4 gets %s, want nothing yet", a)
	}
}

func TestNamed(t *testing.T) {
	p := newPool("243.0.0.4/30")
	p.Name(service(1), []netip.Addr{addr("243.0.0.5"), addr("243.0.0.5"), addr("10.0.0.1"), addr("fd00::1")}, start)
	p.Name(service(2), []netip.Addr{addr("243.0.0.5")}, start)
	if a := mustAllocate(t, p, 3, start); a != addr("243.0.0.6") {
		t.Errorf("service 3 gets %s, want 243.0.0.6", a)
	}
	p.Name(service(1), nil, start)
	if used, quarantined, free := p.Usage(start); used != 2 || quarantined != 0 || free != 0 {
		t.Errorf("usage = %d, %d, %d, want both taken: service 2 still names one", used, quarantined, free)
	}
	p.Name(service(2), []netip.Addr{addr("243.0.0.6")}, start)
	p.Release(service(3), start)
	if used, quarantined, _ := p.Usage(start); used != 1 || quarantined != 1 {
		t.Errorf("usage = %d, %d, want one taken and one in quarantine", used, quarantined)
	}
}

// Whoever allocates first, a service gets the same address in a pool where nothing is in its way.
func TestAllocationFollowsFromTheName(t *testing.T) {
	for _, prefix := range []string{"243.0.0.0/16", "243.0.0.0/8", "fd00:243::/64"} {
		a, b := newPool(prefix), newPool(prefix)
		mustAllocate(t, b, 1, start)
		if x, y := mustAllocate(t, a, 0, start), mustAllocate(t, b, 0, start); x != y {
			t.Errorf("%s: %s and %s for one service, want the same", prefix, x, y)
		}
		if x := mustAllocate(t, a, 1, start); x == mustAllocate(t, a, 0, start) {
			t.Errorf("%s: %s twice", prefix, x)
		}
	}
}

// A model keeps what the pool should know in the simplest way.
type model struct {
	named map[int][]netip.Addr
	held  map[int]netip.Addr
	until map[netip.Addr]time.Time
	had   map[netip.Addr]int
}

func (m *model) taken(a netip.Addr) bool {
	for _, h := range m.held {
		if h == a {
			return true
		}
	}
	for _, list := range m.named {
		if slices.Contains(list, a) {
			return true
		}
	}
	return false
}

// change runs f, and puts in quarantine what is taken no longer.
func (m *model) change(i int, now time.Time, all []netip.Addr, f func()) {
	before := make(map[netip.Addr]bool)
	for _, a := range all {
		before[a] = m.taken(a)
	}
	f()
	for _, a := range all {
		switch is := m.taken(a); {
		case is:
			delete(m.until, a)
		case before[a]:
			m.until[a], m.had[a] = now.Add(Quarantine), i
		}
	}
}

// Any sequence of operations: never an address twice, never one that a record names or that is in quarantine because of
// another service, and none given only if there is none.
func TestPoolAgreesWithModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		p, now := newPool("243.0.0.0/29"), start
		var all []netip.Addr
		for a := addr("243.0.0.1"); a != addr("243.0.0.7"); a = a.Next() {
			all = append(all, a)
		}
		m := model{map[int][]netip.Addr{}, map[int]netip.Addr{}, map[netip.Addr]time.Time{}, map[netip.Addr]int{}}
		for step := range 200 {
			i := r.IntN(10)
			now = now.Add(time.Duration(r.Int64N(int64(4 * time.Minute))))
			switch r.IntN(3) {
			case 0:
				var addrs []netip.Addr
				for range r.IntN(3) {
					addrs = append(addrs, all[r.IntN(len(all))])
				}
				p.Name(service(i), addrs, now)
				p.Own(addrs)
				m.change(i, now, all, func() { m.named[i] = addrs })
			case 1:
				p.Release(service(i), now)
				m.change(i, now, all, func() { delete(m.held, i) })
			case 2:
				check(t, fmt.Sprintf("seed %d step %d", seed, step), p, &m, i, now, all)
			}
		}
		used, quarantined, free := p.Usage(now)
		var wantUsed, wantQuarantined int
		for _, a := range all {
			if m.taken(a) {
				wantUsed++
			} else if now.Before(m.until[a]) {
				wantQuarantined++
			}
		}
		if used != wantUsed || quarantined != wantQuarantined || free != len(all)-used-quarantined {
			t.Errorf("seed %d: usage = %d, %d, %d, want %d, %d, the rest", seed, used, quarantined, free, wantUsed, wantQuarantined)
		}
	}
}

// check allocates for service i.
func check(t *testing.T, where string, p *Pool, m *model, i int, now time.Time, all []netip.Addr) {
	t.Helper()
	mayHave := func(a netip.Addr) bool {
		return !m.taken(a) && (!now.Before(m.until[a]) || m.had[a] == i)
	}
	got, ok := p.Allocate(service(i), now)
	held, holds := m.held[i]
	switch {
	case holds:
		if got != held {
			t.Fatalf("%s: %s for service %d, want %s again", where, got, i, held)
		}
	case ok:
		if !mayHave(got) {
			t.Fatalf("%s: %s for service %d, want one that is free", where, got, i)
		}
		m.change(i, now, all, func() { m.held[i] = got })
	case slices.ContainsFunc(all, mayHave):
		t.Fatalf("%s: nothing for service %d, though there are free addresses", where, i)
	}
}

// A pool that is told anew what the records name, as after a restart, gives out none of that.
func TestRestart(t *testing.T) {
	before, after := newPool("243.0.0.0/26"), newPool("243.0.0.0/26")
	given := make(map[netip.Addr]int)
	for i := range 30 {
		a := mustAllocate(t, before, i, start)
		given[a] = i
		after.Name(service(i), []netip.Addr{a}, start)
	}
	for i := 30; i < 62; i++ {
		a := mustAllocate(t, after, i, start)
		if had, taken := given[a]; taken {
			t.Fatalf("%s for service %d, which service %d has", a, i, had)
		}
		given[a] = i
	}
	if a, ok := after.Allocate(service(62), start); ok {
		t.Errorf("%s given out, want none: all are taken", a)
	}
}
