package protocol

import "testing"

// A slice that was added counts after a rollback to the record before it only if the record that lists it was noted.
func TestAddedSlice(t *testing.T) {
	noted := Noted{Record: Record{Stamp: 5, UID: "1", Partial: true}, Listed: 4, Slices: []Slice{{Name: "a", Stamp: 3, UID: "1"}}}
	b := Slice{Name: "b", Stamp: 9, UID: "1"}
	svc := Restore(noted)
	entry, a := Entry{Stamp: 4, UID: "1"}, noted.Slices[0]
	svc.See(entry, Record{Stamp: 5, UID: "1", Slices: []string{"a"}}, []Slice{a, b})
	if out := svc.Count(noted, false); len(out.Names) != 2 || out.Due {
		t.Errorf("before a record lists it: %+v, want a and b, and no note due", out)
	}
	noted.Slices = append(noted.Slices, b)
	svc.See(entry, Record{Stamp: 10, UID: "1", Slices: []string{"a", "b"}}, []Slice{a, b})
	out := svc.Count(noted, false)
	if len(out.Names) != 2 || !out.Due || out.Record.Stamp != 10 {
		t.Errorf("the record lists it: %+v, want a and b, and a note of 10", out)
	}
	noted.Record.Stamp = 10
	if svc.Count(noted, false).Due {
		t.Error("the note is due again")
	}
	back := Restore(noted)
	back.See(entry, Record{Stamp: 5, UID: "1", Slices: []string{"a"}}, []Slice{a})
	if out := back.Count(noted, false); len(out.Names) != 2 {
		t.Errorf("after the rollback: %+v, want a and b", out)
	}
}
