package protocol

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// An Export is the state of one service that a member wants on the broker.
type Export struct {
	UID    types.UID // of the ServiceExport; "" if the service is not exported
	Slices []string  // names of the slices, in the order of their writes
	// RecordRight and SliceRight report whether the broker's record, apart from its list, and a slice have the wanted
	// content.
	RecordRight bool
	SliceRight  func(name string) bool
	// Tried holds writes that the broker rejected, or did otherwise. They are not repeated, and later ones do not wait
	// for them.
	Tried map[Write]bool
}

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

// Next returns the next writes of a service, which may be done in any order, that of the entry last; nil if the broker
// is up to date. have is the member's knowledge of the broker, from its writes and watches. Gone objects, and an entry
// without a stamp, are older there than the member knows them, or missing. Each write gets a new stamp.
//
// A record is written after the slices that it lists, at any time before or after its entry. An object is deleted after
// the list above it was written without it. So an unexport is one write, of the entry.
func Next(want Export, have Service) []Write {
	var entry []Write
	if e := have.Entry; e.Stamp == 0 || e.UID != want.UID {
		entry = []Write{{Kind: KindEntry}}
	}
	if want.UID == "" && entry != nil {
		return entry
	}
	for _, stage := range []func(Service) []Write{want.slices, want.record, want.deletions} {
		if all := slices.DeleteFunc(stage(have), func(w Write) bool { return want.Tried[w] }); len(all) > 0 {
			return append(all, entry...)
		}
	}
	return entry
}

func (want Export) slices(have Service) (all []Write) {
	known := make(map[string]Slice, len(have.Slices))
	for _, v := range have.Slices {
		known[v.Name] = v
	}
	for _, name := range want.Slices {
		if v := known[name]; v.Gone || v.UID != want.UID || v.Stamp < max(have.Entry.From, have.Entry.Behind) ||
			!want.SliceRight(name) {
			all = append(all, Write{Kind: KindSlice, Slice: name})
		}
	}
	return all
}

func (want Export) record(have Service) []Write {
	r := have.Record
	switch ended := want.UID == ""; {
	case ended && r.Stamp == 0 && r.UID == "":
	case ended, r.Gone, r.UID != want.UID, r.Stamp < max(have.Entry.From, have.Entry.Behind), !want.RecordRight,
		!slices.Equal(r.Slices, slices.Sorted(slices.Values(want.Slices))):
		return []Write{{Kind: KindRecord, Delete: ended}}
	}
	return nil
}

func (want Export) deletions(have Service) (all []Write) {
	wanted := make(map[string]bool, len(want.Slices))
	for _, name := range want.Slices {
		wanted[name] = true
	}
	for _, v := range have.Slices {
		if !wanted[v.Name] {
			all = append(all, Write{Kind: KindSlice, Slice: v.Name, Delete: true})
		}
	}
	return all
}
