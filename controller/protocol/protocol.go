// Package protocol decides which objects a member writes next, and which of them an import keeps: only the owner of an
// export ends it. It is pure:
//
//	export ──► Next ──► records, slices, inventory on the broker ──► Service.See ──► Service.Count ──► import
//
// [Next] orders the writes of an [Export]. A [Service] is the knowledge of one export; [Service.Count] selects the
// objects to import. [Heartbeat.EndsSilence] decides when a silent member is back.
//
// Three ideas carry it. Each object has a stamp that only grows, so an old copy, as after a restore of the broker,
// never replaces a newer one. A parent lists its children, so absence is said and never inferred: an inventory lists
// services, a record lists slices. The importing cluster notes what it imported, so a new process knows what must not
// be forgotten. The test of this package searches the orders of events of a small world for faults, with all rules, and
// with each left out, which must give one. A model of package identity (owner_test.go) decides when a member of that
// world may renew its heartbeat.
package protocol

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Stamp orders what one member writes: microseconds since 1970, higher than all that the member gave before. 0 means
// no object.
type Stamp int64

// String is the stamp in decimal digits.
func (s Stamp) String() string { return strconv.FormatInt(int64(s), 10) }

// A Clock issues the stamps of one process. The zero value is ready; the methods may be called by several goroutines.
type Clock struct {
	mu   sync.Mutex
	last Stamp
}

// Next returns the time now, or if the clock gave or saw a higher stamp, the next higher one.
func (c *Clock) Next(now time.Time) Stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last+1, Stamp(now.UnixMicro()))
	return c.last
}

// See records a stamp of an earlier process of the member.
func (c *Clock) See(s Stamp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, s)
}

// An Entry is the part of a member's inventory about one service. The zero value is an unknown inventory.
type Entry struct {
	Stamp Stamp     // of the part of the inventory that the service belongs to
	UID   types.UID // of the ServiceExport; "" if the service is not exported
	From  Stamp     // objects of the service with a lower stamp do not count
	// Behind is set while the member cannot write all of the service. Slices with a lower stamp are treated as those of a
	// silent member.
	Behind Stamp
}

// A Record is the export record of one service. The zero value is no record.
type Record struct {
	Stamp  Stamp
	UID    types.UID // of the ServiceExport
	Slices []string  // names of its slices, sorted
	// Partial records come from an import: their Slices are not known.
	Partial bool
	// Gone records are missing on the broker.
	Gone bool
}

// A Slice is one exported EndpointSlice. Each name is used once. The zero value is no slice.
type Slice struct {
	Name  string
	Stamp Stamp
	UID   types.UID // of the ServiceExport
	Gone  bool      // it is missing on the broker
}

// A rule can be left out by the search, to see the fault that it prevents. The product applies all. The test has the
// rules of other parts.
type rule uint32

const (
	stamps       rule = 1 << iota // an old copy is not applied
	inventory                     // listed objects that vanish stay
	newer                         // an object that is newer than its list counts
	from                          // an export that begins again has its start
	hold                          // slices go on to count until all listed ones are seen
	ended                         // the inventory by which something ended is noted
	clearOld                      // after a silence nothing of before counts
	serviceRules = iota
)
