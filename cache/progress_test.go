package cache

import "testing"

// transitions is the table in the comment of progress, for a kind that answers need.
var transitions = [progresses][events]progress{
	awaited:      {awaited, listed, fromSnapshot, awaited, absent, stuck, awaited},
	absent:       {awaited, listed, fromSnapshot, awaited, absent, stuck, awaited},
	stuck:        {awaited, listed, fromSnapshot, awaited, absent, stuck, awaited},
	fromSnapshot: {fromSnapshot, listed, fromSnapshot, fromSnapshot, fromSnapshot, fromSnapshot, awaited},
	listed:       {listed, listed, listed, outdated, listed, listed, awaited},
	outdated:     {outdated, listed, outdated, outdated, listed, listed, awaited},
}

// docs/spec/dns.md 6.2
func TestProgress(t *testing.T) {
	optional := transitions // answers can do without the kind
	optional[absent][requested], optional[stuck][requested] = absent, stuck
	optional[absent][loaded], optional[fromSnapshot][missing] = absent, absent
	for needed, table := range map[bool][progresses][events]progress{true: transitions, false: optional} {
		for from := range progresses {
			for e := range events {
				if got := from.next(e, needed); got != table[from][e] {
					t.Errorf("needed %t: progress %d, event %d: %d, want %d", needed, from, e, got, table[from][e])
				}
			}
		}
	}
}
