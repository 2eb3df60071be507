package cache

import "testing"

// transitions is the table in the comment of progress: of a kind that answers need, and of one that they can do without.
var transitions = map[bool][progresses][events]progress{
	true: {
		awaited:      {awaited, listed, fromSnapshot, awaited, absent, stuck, awaited},
		absent:       {awaited, listed, fromSnapshot, awaited, absent, stuck, awaited},
		stuck:        {awaited, listed, fromSnapshot, awaited, absent, stuck, awaited},
		fromSnapshot: {fromSnapshot, listed, fromSnapshot, fromSnapshot, fromSnapshot, fromSnapshot, awaited},
		listed:       {listed, listed, listed, outdated, listed, listed, awaited},
		outdated:     {outdated, listed, outdated, outdated, listed, listed, awaited},
	},
	false: {
		awaited:      {awaited, listed, fromSnapshot, awaited, absent, stuck, awaited},
		absent:       {absent, listed, absent, awaited, absent, stuck, awaited},
		stuck:        {stuck, listed, fromSnapshot, awaited, absent, stuck, awaited},
		fromSnapshot: {fromSnapshot, listed, fromSnapshot, fromSnapshot, absent, fromSnapshot, awaited},
		listed:       {listed, listed, listed, outdated, listed, listed, awaited},
		outdated:     {outdated, listed, outdated, outdated, listed, listed, awaited},
	},
}

// docs/spec/dns.md 6.2
func TestProgress(t *testing.T) {
	for needed, table := range transitions {
		for from := range progresses {
			for e := range events {
				if got := from.next(e, needed); got != table[from][e] {
					t.Errorf("needed %t: progress %d, event %d: %d, want %d", needed, from, e, got, table[from][e])
				}
			}
		}
	}
}
