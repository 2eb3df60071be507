package protocol

import (
	"flag"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// The search tries all orders of events of a small world, and long random ones: one exporting member, one importer, one
// service whose living endpoint is in one slice at a time, one broker that may be restored to a snapshot. The code of
// the product decides the writes of the member and the imports. Faults: a living endpoint leaves the import; an
// endpoint that left comes back; after a silence, an old endpoint is used; the import does not become right once
// everybody is up again.

// `make search` gives both millions.
var (
	maxStates = flag.Int("states", tier.Size(10_000, 300_000), "states that each search with all rules looks at")
	walks     = flag.Int("walks", tier.Size(2_000, 20_000), "random runs of 60 steps")
)

const slots = 3 // names of slices; each is used once

// These are the objects of the product, small enough to be compared and hashed by the million.
type (
	slice struct { // e 0: absent
		stamp, e, x uint8 // e: generation of the endpoint; x: UID of the ServiceExport
		ready, gone bool
	}
	record struct { // stamp 0: absent
		stamp, x, list uint8 // list: bit mask of slices
		partial, gone  bool
	}
	entry struct{ stamp, x, from uint8 }
	lease struct {
		stamp, complete uint8
		passE           uint8 // e at the end of the pass of complete, for the check
	}
	objects struct {
		inv   entry
		rec   record
		slc   [slots]slice
		lease lease
	}
)

// given has the stamps of the newest copies that the member's process wrote or saw.
type given struct {
	inv, rec uint8
	slc      [slots]uint8
}

type state struct {
	// own cluster of the member
	exported  bool
	ready     bool
	x, cur, e uint8 // UID of the ServiceExport; slice of the living endpoint; its generation
	c         uint8 // highest stamp used
	note      uint8 // stamp of the last heartbeat
	from      uint8 // stamp of the last inventory without the service
	mending   bool  // a rollback was noticed, and what follows is not done
	crashed   bool  // a process ended after a change and before the heartbeat after it
	// the member's process
	own   Owner
	cache objects
	given given
	cut   bool
	passE uint8 // e when the member was connected again, or when the last pass ended
	fly   lease // a heartbeat under way
	// broker
	b       objects
	snap    objects
	hasSnap bool
	// importer: view in memory
	vInv entry
	vRec record
	vSlc [slots]slice
	peer Peer
	// importer: own cluster
	pInv  uint8 // stamp of the newest inventory by which something ended
	pRec  record
	pFrom uint8
	pList uint8 // stamp of an inventory that listed the export
	pSlc  [slots]slice
	flyE  uint8  // e when it was called silent and a heartbeat was under way
	hInv  uint8  // stamp of the newest inventory that it ever saw
	left  uint32 // generations that left the import, bit mask
	over  uint32 // generations with an end that the member has written
	// broken is set when a member that knew the broker wrote a list with missing objects, or deleted listed objects.
	broken bool
	// what has happened
	nReplace, nFlip, nExport, nSnap, nRestore, nMember, nImporter, nCut, nMove, nBeat, nSlow uint8
}

var (
	names = [slots]string{"0", "1", "2"}
	uids  = [...]types.UID{"", "1", "2", "3", "4", "5", "6", "7", "8", "9"}
)

func number(u types.UID) uint8 {
	n, _ := strconv.ParseUint(string(u), 10, 8) // "" is 0
	return uint8(n)
}

func (v slice) product(i int) Slice {
	return Slice{Name: names[i], Stamp: Stamp(v.stamp), UID: uids[v.x], Gone: v.gone}
}

func products(all *[slots]slice) (out []Slice) {
	for i, v := range all {
		if v.stamp != 0 {
			out = append(out, v.product(i))
		}
	}
	return out
}

func (r record) product() Record {
	out := Record{Stamp: Stamp(r.stamp), UID: uids[r.x], Partial: r.partial, Gone: r.gone}
	for i := range slots {
		if r.list&(1<<i) != 0 {
			out.Slices = append(out.Slices, names[i])
		}
	}
	return out
}

func (e entry) product() Entry {
	return Entry{Stamp: Stamp(e.stamp), UID: uids[e.x], From: Stamp(e.from)}
}

func (l lease) product() Heartbeat {
	return Heartbeat{Stamp: Stamp(l.stamp), Complete: Stamp(l.complete)}
}

func recordOf(p Record) record {
	r := record{stamp: uint8(p.Stamp), x: number(p.UID), partial: p.Partial, gone: p.Gone}
	for i, name := range names {
		if slices.Contains(p.Slices, name) {
			r.list |= 1 << i
		}
	}
	return r
}

// The rules of other parts of the world than [Service].
const (
	persist  rule = 1 << (iota + serviceRules) // imports note the stamps of their sources
	noteEnd                                    // before a slice is removed by a record, the stamp of the record is noted
	listed                                     // an inventory that listed the export is noted
	pass                                       // after a silence all exports are compared before the heartbeat
	repass                                     // after a rollback all exports are compared anew
	complete                                   // a pass has to be newer than the silence
	list                                       // a silence ends with a consistent list
	lost                                       // a rollback is looked for before the heartbeat
	rollback                                   // objects that are older on the broker than the member's are written anew
	note                                       // a process that finds a heartbeat older than its note writes all anew
	rules    = iota + serviceRules
)

// A world is a search: its bounds, and the rule that it leaves out.
type world struct {
	budget
	without rule
}

type budget struct {
	exports, replaces, moves, flips, members, importers, cuts, slow, restores uint8
	states                                                                    int
	// the fault is too many states away for less than make search
	far bool
}

// variants are the rules, each with the events that show its purpose.
var variants = [rules]struct {
	rule rule
	name string
	budget
}{
	{stamps, "stamps", budget{replaces: 1, restores: 1}},
	{persist, "persist", budget{replaces: 1, importers: 1, restores: 1}},
	{noteEnd, "noteEnd", budget{replaces: 1, importers: 1, restores: 1}},
	{inventory, "inventory", budget{replaces: 1, restores: 1}},
	{newer, "newer", budget{exports: 2, importers: 1, restores: 1, far: true}},
	{from, "from", budget{exports: 2}},
	{hold, "hold", budget{moves: 1}},
	{ended, "ended", budget{exports: 1, importers: 1}},
	{listed, "listed", budget{exports: 2, importers: 1, restores: 1, far: true}},
	{pass, "pass", budget{replaces: 1, cuts: 1}},
	{repass, "repass", budget{replaces: 1, cuts: 1, restores: 1, far: true}},
	{complete, "complete", budget{replaces: 1, slow: 1}},
	{list, "list", budget{replaces: 1, cuts: 1}},
	{clearOld, "clearOld", budget{replaces: 2, cuts: 1, restores: 1, far: true}},
	{lost, "lost", budget{replaces: 1, cuts: 1, restores: 1, far: true}},
	{rollback, "rollback", budget{flips: 2, restores: 1}},
	{note, "note", budget{flips: 2, members: 1, restores: 1}},
}

func (s *state) noted() Noted {
	return Noted{
		Ended: Stamp(s.pInv), From: Stamp(s.pFrom), Listed: Stamp(s.pList), Slices: products(&s.pSlc),
		Record: Record{Stamp: Stamp(s.pRec.stamp), UID: uids[s.pRec.x], Partial: s.pRec.stamp != 0},
	}
}

func (w *world) view(s *state) Service {
	return Service{s.vInv.product(), s.vRec.product(), products(&s.vSlc), w.without}
}

// seen takes the view back. Parts from the broker have the broker's content.
func (s *state) seen(v Service) {
	s.vInv = entry{uint8(v.Entry.Stamp), number(v.Entry.UID), uint8(v.Entry.From)}
	s.vRec = recordOf(v.Record)
	before := s.vSlc
	s.vSlc = [slots]slice{}
	for _, p := range v.Slices {
		i := slices.Index(names[:], p.Name)
		content := before[i]
		if b := s.b.slc[i]; b.stamp != 0 && b.stamp == uint8(p.Stamp) {
			content = b
		}
		s.vSlc[i] = slice{uint8(p.Stamp), content.e, number(p.UID), content.ready, p.Gone}
	}
}

// importStep computes the import from the view and writes it into the importer's own cluster.
func (w *world) importStep(s *state) {
	out := Counted{Noted: Noted{Ended: Stamp(s.pInv)}} // a silent member has no part in it
	if view := w.view(s); !s.peer.Silent {
		out = view.Count(s.noted())
	}
	var all [slots]slice
	for _, p := range out.Slices {
		i := slices.Index(names[:], p.Name)
		all[i] = s.vSlc[i]
		all[i].gone = false
		// Equal contents are not written, and keep the noted stamp.
		if old, v := s.pSlc[i], &all[i]; old.e == v.e && old.x == v.x && old.ready == v.ready &&
			old.stamp >= uint8(out.From) {
			v.stamp = old.stamp
		}
	}
	rec := recordOf(out.Record)
	if rec.stamp != 0 && rec.x == s.pRec.x && s.pRec.stamp >= uint8(out.From) && (!out.Due || w.without&noteEnd != 0) {
		rec.stamp = s.pRec.stamp
	}
	list := uint8(out.Listed)
	if s.pList != 0 && list != 0 && rec.x == s.pRec.x {
		list = s.pList
	}
	if w.without&listed != 0 {
		list = 0
	}
	s.pInv, s.pRec, s.pFrom, s.pList, s.pSlc = uint8(out.Ended), rec, uint8(out.From), list, all
}

func (s *state) imported() (m uint32) {
	for _, v := range s.pSlc {
		if v.e != 0 {
			m |= 1 << v.e
		}
	}
	return m
}

func (w *world) seeInventory(s *state) {
	v := w.view(s)
	v.seeEntry(s.b.inv.product())
	s.seen(v)
	s.hInv = max(s.hInv, s.b.inv.stamp)
}

func (w *world) seeRecord(s *state) {
	v := w.view(s)
	v.seeRecord(s.b.rec.product())
	s.seen(v)
}

func (w *world) seeSlices(s *state) {
	v := w.view(s)
	for i, b := range s.b.slc {
		p := b.product(i)
		p.Gone = b.stamp == 0
		v.seeSlice(p)
	}
	s.seen(v)
}

func (w *world) seeHeartbeat(s *state) {
	h := s.b.lease.product()
	if !s.peer.counts(h, w.without) {
		return
	}
	if s.peer.Silent && w.without&list == 0 {
		v := w.view(s)
		v.Relist(s.b.inv.product(), s.b.rec.product(), products(&s.b.slc))
		s.seen(v)
		s.hInv = max(s.hInv, s.b.inv.stamp)
	}
	s.peer.Renew(h)
}

// memberList is the member's list at its start and when it may have missed a rollback.
func (w *world) memberList(s *state) {
	found := s.b
	found.lease = s.cache.lease
	knew := s.own.knows
	if s.own.list(found != s.cache, s.b.lease.stamp < s.note || s.mending, w.without) {
		if s.mending = true; !knew {
			s.c++
			s.given = given{s.c, s.c, [slots]uint8{s.c, s.c, s.c}}
		}
	}
	s.cache = found
	s.given.inv, s.given.rec = max(s.given.inv, found.inv.stamp), max(s.given.rec, found.rec.stamp)
	for i, v := range found.slc {
		s.given.slc[i] = max(s.given.slc[i], v.stamp)
	}
}

func (w *world) heartbeat(s *state) (Heartbeat, bool) {
	return s.own.heartbeat(Stamp(s.c+1), w.without)
}

func (s *state) beat(h Heartbeat) lease {
	s.c++
	s.note, s.crashed = s.c, false
	return lease{uint8(h.Stamp), uint8(h.Complete), s.passE}
}

func (s *state) export() Export {
	want := Export{RecordRight: true}
	if s.exported {
		want.UID, want.Slices = uids[s.x], []string{names[s.cur]}
		want.SliceRight = func(string) bool {
			k := s.cache.slc[s.cur]
			return k.e == s.e && k.ready == s.ready
		}
	}
	return want
}

// writes returns what the member may write next, by what it knows.
func (w *world) writes(s *state) []Write {
	if !s.own.MayWrite() || s.cut {
		return nil
	}
	have := Service{Entry: s.cache.inv.product(), Record: s.cache.rec.product(), Slices: products(&s.cache.slc)}
	if w.without&rollback == 0 {
		if s.given.inv > s.cache.inv.stamp {
			have.Entry.Stamp = 0
		}
		have.Record.Gone = s.given.rec > s.cache.rec.stamp
		for i := range have.Slices {
			v := &have.Slices[i]
			v.Gone = Stamp(s.given.slc[slices.Index(names[:], v.Name)]) > v.Stamp
		}
	}
	return Next(s.export(), have)
}

// write does one of them.
func (s *state) write(x Write) {
	before := s.b
	before.lease = s.cache.lease
	knew := before == s.cache
	s.apply(x)
	early := x.Kind == KindRecord && x.Delete && s.b.inv.x != 0
	if knew && (early || s.b.broken() && !before.broken()) {
		s.broken = true
	}
}

// broken reports whether the record lists a slice that is not there.
func (o *objects) broken() bool {
	for i, v := range o.slc {
		if v.stamp == 0 && o.rec.list&(1<<i) != 0 {
			return true
		}
	}
	return false
}

func (s *state) apply(x Write) {
	if x.Delete {
		if x.Kind == KindRecord {
			s.b.rec, s.cache.rec, s.given.rec = record{}, record{}, 0
		} else {
			i := slices.Index(names[:], x.Slice)
			s.b.slc[i], s.cache.slc[i], s.given.slc[i] = slice{}, slice{}, 0
		}
		return
	}
	s.c++
	switch x.Kind {
	case KindEntry:
		v := entry{s.c, s.x, s.from}
		if !s.exported {
			v, s.from, s.over = entry{stamp: s.c}, s.c, s.over|(1<<(s.e+1)-1)
		}
		s.b.inv, s.cache.inv, s.given.inv = v, v, s.c
	case KindRecord:
		v := record{stamp: s.c, x: s.x, list: 1 << s.cur}
		s.b.rec, s.cache.rec, s.given.rec = v, v, s.c
	case KindSlice:
		v := slice{stamp: s.c, e: s.e, x: s.x, ready: s.ready}
		s.over |= 1<<s.e - 1
		s.b.slc[s.cur], s.cache.slc[s.cur], s.given.slc[s.cur] = v, v, s.c
	}
}

type step struct {
	name     string
	do       func(*state)
	importer bool // computes the import anew
}

func (w *world) steps(s *state) (out []step) {
	add := func(name string, do func(*state)) { out = append(out, step{name, do, false}) }
	imp := func(name string, do func(*state)) { out = append(out, step{name, do, true}) }

	if s.exported && s.nReplace < w.replaces {
		add("a Pod is replaced", func(n *state) { n.e++; n.nReplace++ })
		if s.cur < slots-1 {
			add("a Pod is replaced, in another slice", func(n *state) { n.e++; n.cur++; n.nReplace++ })
		}
	}
	if s.exported && s.nMove < w.moves && s.cur < slots-1 {
		add("a living endpoint moves to another slice", func(n *state) { n.cur++; n.nMove++ })
	}
	if s.exported && s.nFlip < w.flips {
		add("a Pod changes its readiness", func(n *state) { n.ready = !n.ready; n.nFlip++ })
	}
	if s.nExport < w.exports {
		if s.exported {
			add("unexport", func(n *state) { n.exported = false; n.nExport++ })
		} else {
			add("export, a new ServiceExport", func(n *state) { n.exported = true; n.e++; n.x++; n.nExport++ })
			add("export, the same ServiceExport", func(n *state) { n.exported = true; n.e++; n.nExport++ })
		}
	}
	w.memberSteps(s, add)
	if s.nSnap < w.restores {
		add("snapshot", func(n *state) { n.snap, n.hasSnap = n.b, true; n.nSnap++ })
	}
	if s.hasSnap && s.nRestore < w.restores && s.listed() &&
		(!s.crashed || s.snap.lease.stamp < s.note || w.without&note != 0) {
		add("the broker is restored", func(n *state) { n.b, n.fly = n.snap, lease{}; n.own.Disconnected(); n.nRestore++ })
	}
	imp("the importer sees the inventory", w.seeInventory)
	imp("the importer sees the record", w.seeRecord)
	imp("the importer sees the slices", w.seeSlices) // one watch, so all at once
	imp("the importer sees the heartbeat", w.seeHeartbeat)
	if (s.cut || s.fly.stamp != 0) && !s.peer.Silent {
		imp("a TTL passes", func(n *state) {
			n.peer.Expire(n.b.lease.product())
			n.flyE = 0
			if n.fly.stamp != 0 && !n.cut {
				n.flyE = n.e
			}
		})
	}
	if s.nImporter < w.importers {
		imp("the importer restarts", func(n *state) { // what its own cluster has is what it knows
			n.nImporter++
			n.vSlc = n.pSlc
			known := Service{}
			if w.without&persist == 0 {
				known = Restore(n.noted())
			}
			n.seen(known)
		})
	}
	return out
}

// memberSteps adds what the member and its connection may do.
func (w *world) memberSteps(s *state, add func(string, func(*state))) {
	if s.cut {
		add("the member is connected again", func(n *state) {
			n.cut, n.passE = false, n.e
			n.own.Reconnected()
			switch {
			case n.peer.Silent && w.without&pass != 0:
				n.c++
				n.own.complete = Stamp(n.c)
			case n.peer.Silent: // its last heartbeat is older than a TTL
				n.own.Late()
			}
		})
	} else {
		add("the member lists", w.memberList)
		writes := w.writes(s)
		for _, x := range writes {
			add(fmt.Sprintf("the member writes %+v", x), func(n *state) { n.write(x) })
		}
		if own := s.own; own.Pass(Stamp(s.c + 1)) {
			add("a pass begins", func(n *state) { n.c++; n.own.Pass(Stamp(n.c)) })
		}
		if own := s.own; len(writes) == 0 && own.PassEnds() {
			add("the pass ends", func(n *state) { n.own.PassEnds(); n.mending, n.passE = false, n.e })
		}
		if h, ok := w.heartbeat(s); ok && s.fly.stamp == 0 && s.nBeat < 3 {
			add("heartbeat", func(n *state) { n.b.lease = n.beat(h); n.nBeat++ })
			if s.nSlow < w.slow {
				add("a heartbeat is sent and is slow", func(n *state) { n.fly = n.beat(h); n.nBeat++; n.nSlow++ })
			}
		}
		if s.nCut < w.cuts {
			add("the member is cut off", func(n *state) { n.cut = true; n.nCut++ })
		}
	}
	if s.nMember < w.members && (!s.own.gap || s.c == s.note || s.b.lease.stamp < s.note) {
		add("the member restarts", func(n *state) {
			n.crashed = n.c > n.note
			n.own, n.given = Owner{gap: n.own.gap, passDue: n.own.passDue, complete: n.own.complete}, given{}
			n.nMember++
		})
	}
	if s.fly.stamp != 0 {
		add("the slow heartbeat is stored", func(n *state) {
			n.b.lease, n.fly = n.fly, lease{}
			if n.peer.Silent {
				n.own.Late()
			}
		})
	}
}

// after is the state that a step leads to.
func (w *world) after(s state, st step) state {
	n := s
	st.do(&n)
	if !st.importer {
		return n
	}
	w.importStep(&n)
	if n.peer.Silent {
		return n
	}
	end := n.vInv.stamp
	if n.vInv.x != 0 {
		end = n.vInv.from
	}
	for i, v := range s.pSlc {
		if byEnd := n.pRec.stamp == 0 && n.vSlc[i].stamp > end; v.e != 0 && n.imported()&(1<<v.e) == 0 && !byEnd {
			n.left |= 1 << v.e
		}
	}
	return n
}

// listed reports whether all existing objects are named by their list, or older: lists are written within a second, and
// the search does not look at younger ones. Nor is the importer behind just then.
func (s *state) listed() bool {
	ok := s.b.rec.stamp == 0 || s.b.inv.x == s.b.rec.x || s.b.inv.stamp > s.b.rec.stamp
	for i, v := range s.b.slc {
		ok = ok && (v.e == 0 || s.b.rec.list&(1<<i) != 0 || v.stamp < s.b.rec.stamp)
	}
	if s.peer.Silent {
		return ok
	}
	ok = ok && s.vInv.stamp >= s.b.inv.stamp && s.vRec.stamp >= s.b.rec.stamp
	for i, v := range s.vSlc {
		ok = ok && (v.e == 0 || v.gone || s.vRec.list&(1<<i) != 0 || v.stamp < s.vRec.stamp)
	}
	return ok
}

// settled lets everybody come up and catch up.
func (w *world) settled(s state) state {
	s.cut = false
	w.memberList(&s)
	for all := w.writes(&s); len(all) > 0; all = w.writes(&s) {
		s.write(all[0])
	}
	s.c++
	s.passE = s.e
	s.b.lease = s.beat(Heartbeat{Stamp: Stamp(s.c + 1), Complete: Stamp(s.c)})
	w.seeHeartbeat(&s)
	w.seeInventory(&s)
	w.seeRecord(&s)
	w.seeSlices(&s)
	w.importStep(&s)
	return s
}

// fault returns the fault in a step of the importer from s to n.
func fault(s, n *state) string {
	before, after := s.imported(), n.imported()
	gone, come := before&^after, after&^before
	living := uint32(0)
	if s.exported {
		living = 1 << s.e
	}
	switch {
	case n.peer.Silent:
		return ""
	case gone&living != 0 && s.hInv >= s.from:
		return "the living endpoint leaves"
	// After all three together an endpoint may be back until the member writes again, within seconds.
	case !s.peer.Silent && come&s.left&s.over != 0 && (n.nImporter == 0 || n.nRestore == 0 || n.nExport < 2):
		return "an endpoint that left is back"
	case s.peer.Silent && after&(1<<max(s.b.lease.passE, s.flyE)-1) != 0:
		return "an endpoint of before the silence is back"
	}
	return ""
}

// wrong returns the fault of a settled state.
func (s state) wrong() string {
	want := uint32(0)
	if s.exported {
		want = 1 << s.e
	}
	switch {
	case s.broken:
		return "a list names what is not there"
	case s.imported() != want:
		return fmt.Sprintf("the import has generations %b instead of %b", s.imported(), want)
	case s.exported && s.pSlc[s.cur].ready != s.ready:
		return "the readiness is an old one"
	}
	return ""
}

// begin is a service that is exported and imported, with one endpoint.
func (w *world) begin() state {
	s := state{exported: true, ready: true, x: 1, e: 1, c: 4, note: 3, passE: 1}
	s.own = Owner{listed: true, knows: true, complete: 1}
	s.peer.Seen = 3
	s.b = objects{
		inv: entry{4, 1, 0}, rec: record{stamp: 2, x: 1, list: 1}, slc: [slots]slice{{stamp: 1, e: 1, x: 1, ready: true}},
		lease: lease{3, 1, 1},
	}
	s.cache, s.given = s.b, given{4, 2, [slots]uint8{1}}
	w.seeInventory(&s)
	w.seeRecord(&s)
	w.seeSlices(&s)
	w.importStep(&s)
	return s
}

// search returns the shortest run that ends in a fault, or nil, and the number of states that it looked at.
func (w *world) search() (run []string, states int) {
	start := w.begin()
	previous, by := []int32{-1}, []uint8{0} // of each state: the one before, and which of its steps led here
	frontier := []state{start}
	seed := maphash.MakeSeed()
	seen := map[uint64]struct{}{maphash.Comparable(seed, start): {}}
	bad := func(i int32, last, why string) ([]string, int) {
		var path []uint8
		for j := i; j > 0; j = previous[j] {
			path = append(path, by[j])
		}
		slices.Reverse(path)
		s := start
		for _, k := range path {
			st := w.steps(&s)[k]
			run = append(run, st.name)
			s = w.after(s, st)
		}
		return append(run, last, why), len(previous)
	}
	for len(frontier) > 0 && len(previous) < w.states {
		var next []state
		first := int32(len(previous) - len(frontier))
		for i, s := range frontier {
			for k, st := range w.steps(&s) {
				n := w.after(s, st)
				if st.importer {
					if f := fault(&s, &n); f != "" {
						return bad(first+int32(i), st.name, f)
					}
				}
				h := maphash.Comparable(seed, n)
				if _, ok := seen[h]; ok {
					continue
				}
				seen[h] = struct{}{}
				previous, by, next = append(previous, first+int32(i)), append(by, uint8(k)), append(next, n)
				if f := w.settled(n).wrong(); f != "" {
					return bad(first+int32(i), st.name, "when all have settled, "+f)
				}
			}
		}
		frontier = next
	}
	return nil, len(previous)
}

// walk does a random run, for what lies deeper than a search comes.
func (w *world) walk(seed uint64, length int) (run []string) {
	r := rand.New(rand.NewPCG(1, seed))
	s := w.begin()
	for range length {
		all := w.steps(&s)
		st := all[r.IntN(len(all))]
		n := w.after(s, st)
		run = append(run, st.name)
		if st.importer {
			if f := fault(&s, &n); f != "" {
				return append(run, f)
			}
		}
		if f := w.settled(n).wrong(); f != "" {
			return append(run, f)
		}
		s = n
	}
	return nil
}

// TestSearch searches for faults: with all rules it must find no fault, and without any one of them a fault.
func TestSearch(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			v.states = *maxStates
			w := world{v.budget, 0}
			if run, states := w.search(); run != nil {
				t.Errorf("with all rules, after %d states: %q", states, run)
			}
			if v.far && v.states < 1_000_000 {
				return
			}
			w = world{v.budget, v.rule}
			w.states = 16_000_000
			run, states := w.search()
			if run == nil {
				t.Fatalf("without the rule there is no fault in %d states", states)
			}
			t.Logf("without the rule, after %d states and %d steps: %s", states, len(run)-1, run[len(run)-1])
		})
	}
}

func TestWalks(t *testing.T) {
	w := world{budget{exports: 4, replaces: 4, moves: 2, flips: 3, members: 3, importers: 3, cuts: 3, slow: 2,
		restores: 3}, 0}
	for seed := range uint64(*walks) {
		if run := w.walk(seed, 60); run != nil {
			t.Fatalf("run %d: %q", seed, run)
		}
	}
}
