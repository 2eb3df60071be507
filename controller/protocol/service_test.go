package protocol

import (
	"slices"
	"testing"
)

// A slice that was added counts after a rollback to the record before it only if the record that lists it was noted.
func TestAddedSlice(t *testing.T) {
	noted := Noted{Record: Record{Stamp: 5, UID: "1", Partial: true}, Listed: 4,
		Slices: []Slice{{Name: "a", Stamp: 3, UID: "1"}}}
	b := Slice{Name: "b", Stamp: 9, UID: "1"}
	svc := Restore(noted)
	entry, a := Entry{Stamp: 4, UID: "1"}, noted.Slices[0]
	svc.See(entry, Record{Stamp: 5, UID: "1", Slices: []string{"a"}}, []Slice{a, b})
	if out := svc.Count(noted); len(out.Slices) != 2 || out.Due {
		t.Errorf("before a record lists it: %+v, want a and b, and no note due", out)
	}
	noted.Slices = append(noted.Slices, b)
	svc.See(entry, Record{Stamp: 10, UID: "1", Slices: []string{"a", "b"}}, []Slice{a, b})
	out := svc.Count(noted)
	if len(out.Slices) != 2 || !out.Due || out.Record.Stamp != 10 {
		t.Errorf("the record lists it: %+v, want a and b, and a note of 10", out)
	}
	noted.Record.Stamp = 10
	if svc.Count(noted).Due {
		t.Error("the note is due again")
	}
	back := Restore(noted)
	back.See(entry, Record{Stamp: 5, UID: "1", Slices: []string{"a"}}, []Slice{a})
	if out := back.Count(noted); len(out.Slices) != 2 {
		t.Errorf("after the rollback: %+v, want a and b", out)
	}
}

// An object that no list of its owner names counts only while it is on the broker. Otherwise a member could make others
// hold more than its quota.
func TestUnlisted(t *testing.T) {
	a, b := Slice{Name: "a", Stamp: 3, UID: "1"}, Slice{Name: "b", Stamp: 9, UID: "1"}
	step := func(n Noted, e Entry, r Record, found ...Slice) Counted {
		svc := Restore(n)
		svc.See(e, r, found)
		return svc.Count(n)
	}
	for what, list := range map[string][]string{"slice": {"a"},
		"slice beside a listed one that is not there": {"a", "c"}} {
		entry, record := Entry{Stamp: 4, UID: "1"}, Record{Stamp: 5, UID: "1", Slices: list}
		with := step(Noted{}, entry, record, a, b)
		without := step(with.Noted, entry, record, a)
		if !slices.Equal(with.Slices, []Slice{a, b}) || !slices.Equal(without.Slices, []Slice{a}) {
			t.Errorf("%s: imported %v, and when it is gone %v; want it, and then only a", what, with.Slices, without.Slices)
		}
	}
	noted := step(Noted{}, Entry{Stamp: 4, UID: "1"}, Record{Stamp: 5, UID: "1", Slices: []string{"a"}}, a).Noted
	for behind, want := range map[Stamp]int{0: 1, 7: 0} {
		if out := step(noted, Entry{Stamp: 8, UID: "1", Behind: behind},
			Record{Stamp: 6, UID: "1", Slices: []string{"c"}}); len(out.Slices) != want {
			t.Errorf("behind since %s, another slice is listed: imported %v, want %d: a stays until the other is seen, if it may come",
				behind, out.Slices, want)
		}
	}
	with := step(Noted{}, Entry{Stamp: 4}, Record{Stamp: 9, UID: "1"})
	if without := step(with.Noted, Entry{Stamp: 4}, Record{}); with.Record.Stamp != 9 || without.Record.Stamp != 0 {
		t.Errorf("record: imported %+v, and when it is gone %+v; want it, and then none", with.Record, without.Record)
	}
}

// The broker rejects an export until after its restore, and the process restarts: a mark in the inventory tells that
// copies of before it are old.
func TestWritesOfExportBehind(t *testing.T) {
	want := Export{UID: "1", Slices: []string{"a"}, RecordRight: true, SliceRight: func(string) bool { return true }}
	entry := Entry{Stamp: 6, UID: "1", Behind: 5}
	slice := Write{Kind: KindSlice, Slice: "a"}
	for _, tt := range []struct {
		record, slice Stamp
		want          []Write
	}{
		{record: 5, slice: 5},
		{record: 4, slice: 5, want: []Write{{Kind: KindRecord}}},
		{record: 5, slice: 4, want: []Write{slice}},
	} {
		has := Service{Entry: entry, Record: Record{Stamp: tt.record, UID: "1", Slices: want.Slices},
			Slices: []Slice{{Name: "a", Stamp: tt.slice, UID: "1"}}}
		if got := Next(want, has); !slices.Equal(got, tt.want) {
			t.Errorf("record %s, slice %s: %+v, want %+v", tt.record, tt.slice, got, tt.want)
		}
	}
}
