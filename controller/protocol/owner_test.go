package protocol

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// An Export is the state of one service that a member wants on the broker.
type Export struct {
	UID    types.UID // of the ServiceExport; "" if the service is not exported
	From   Stamp     // of the last inventory without the service
	Slices []string  // names of the slices, sorted
	// RecordRight and SliceRight report whether the broker's record, apart from its list, and a slice have the wanted content.
	RecordRight bool
	SliceRight  func(Slice) bool
	// Anew has the objects to write again after a rollback, even with the right content.
	Anew Anew
}

// Anew selects objects of a service.
type Anew struct{ Entry, Record, Slices bool }

// A Kind is a kind of object that a member writes.
type Kind uint8

// The objects of one service.
const (
	KindEntry Kind = iota
	KindRecord
	KindSlice
)

// A Write creates, replaces or deletes one object of a service.
type Write struct {
	Kind   Kind
	Slice  string // its name, of a slice
	Delete bool
}

// Next returns the next writes of a service, which may be done in any order; nil if the broker is up to date. have is the
// member's knowledge of the broker, from its writes and watches. Each write gets a new stamp.
//
// A record is written after the slices that it lists, at any time before or after its entry. An object is deleted after the list
// above it was written without it. So an unexport is one write, of the entry.
func Next(want Export, have Service) []Write {
	if want.UID == "" {
		return end(want, have)
	}
	var all []Write
	for _, name := range want.Slices {
		if v := find(have.Slices, name); want.Anew.Slices || v.UID != want.UID || v.Stamp < want.From || !want.SliceRight(v) {
			all = append(all, Write{Kind: KindSlice, Slice: name})
		}
	}
	if len(all) == 0 {
		all = recordWrites(want, have)
	}
	if want.Anew.Entry || have.Entry.UID != want.UID {
		all = append(all, Write{Kind: KindEntry})
	}
	return all
}

// recordWrites returns the write of the record or, once that is right, the deletions of slices that it does not list.
func recordWrites(want Export, have Service) []Write {
	r := have.Record
	if want.Anew.Record || r.UID != want.UID || r.Stamp < want.From || !want.RecordRight || !slices.Equal(r.Slices, want.Slices) {
		return []Write{{Kind: KindRecord}}
	}
	return deletions(have, want.Slices)
}

func end(want Export, have Service) []Write {
	if want.Anew.Entry || have.Entry.Stamp == 0 || have.Entry.UID != "" {
		return []Write{{Kind: KindEntry}}
	}
	all := deletions(have, nil)
	if have.Record.Stamp != 0 {
		all = append(all, Write{Kind: KindRecord, Delete: true})
	}
	return all
}

func deletions(have Service, keep []string) (all []Write) {
	for _, v := range have.Slices {
		if !slices.Contains(keep, v.Name) {
			all = append(all, Write{Kind: KindSlice, Slice: v.Name, Delete: true})
		}
	}
	return all
}

// An Owner is the state of a member's process toward the broker. It decides whether the process may renew its heartbeat, which
// confirms to others that the member's objects are current. The zero value is a process that has just started.
type Owner struct {
	listed   bool // since the last connection
	knows    bool // what the broker had, from a list or by writing it
	gap      bool // a connection was lost: the broker may have been rolled back
	passDue  bool
	passing  bool
	complete Stamp // of the beginning of the last pass
}

// Disconnected notes that a connection to the broker was lost, or that a request got a 5xx or no response.
func (o *Owner) Disconnected() { o.gap = true }

// Reconnected notes that the member reaches the broker again.
func (o *Owner) Reconnected() { o.listed = false }

// Late notes that more than a TTL lies between the sending of one heartbeat and the answer to the next, also over a restart.
func (o *Owner) Late() { o.passDue, o.passing = true, false }

// Listed notes a consistent list of the member's own objects at the broker. changed means that one of them is missing, or has another stamp than
// the process knows. behind means that the heartbeat there is older than the one that the member noted, or that it noted that a rollback is
// being mended. Listed returns whether all objects are to be written anew.
func (o *Owner) Listed(changed, behind bool) (anew bool) { return o.list(changed, behind, 0) }

func (o *Owner) list(changed, behind bool, without rule) (anew bool) {
	if o.knows {
		anew = changed && without&rollback == 0
	} else {
		anew = behind && without&note == 0
	}
	if anew && without&repass == 0 {
		o.passDue, o.passing = true, false
	}
	o.listed, o.knows, o.gap = true, true, false
	return anew
}

// MayWrite reports whether the process knows what the broker has.
func (o *Owner) MayWrite() bool { return o.listed }

// Pass begins a pass over all exports, if one is due, at a stamp that is higher than all before.
func (o *Owner) Pass(at Stamp) (began bool) {
	if !o.passDue || o.passing || !o.listed || o.gap {
		return false
	}
	o.passing, o.complete = true, at
	return true
}

// PassEnds notes that each export was compared and written since the pass began. It returns false where none is under way.
func (o *Owner) PassEnds() bool {
	if !o.passing || !o.listed {
		return false
	}
	o.passDue, o.passing = false, false
	return true
}

// Heartbeat returns what the next heartbeat says, or false if none may be sent before a list or a pass.
func (o *Owner) Heartbeat(at Stamp) (Heartbeat, bool) { return o.heartbeat(at, 0) }

func (o *Owner) heartbeat(at Stamp, without rule) (Heartbeat, bool) {
	if o.passDue || !o.listed || o.gap && without&lost == 0 {
		return Heartbeat{}, false
	}
	return Heartbeat{Stamp: at, Complete: o.complete}, true
}

// Expire makes the member silent. stored is the heartbeat that the broker has, read once more.
func (p *Peer) Expire(stored Heartbeat) { p.Silent, p.Seen = true, max(p.Seen, stored.Stamp) }

// Renew notes a heartbeat that counts.
func (p *Peer) Renew(h Heartbeat) { p.Silent, p.Seen = false, h.Stamp }
