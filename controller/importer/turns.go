package importer

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// New exports of a member are imported at once, up to twice its records and turnBurst more. Later ones wait for one
// turn in turnPeriod. Its namespaces take turns, so that a tenant that recreates its exports delays no other tenant for
// long. Withdrawals never wait.
const (
	turnBurst  = 100
	turnPeriod = time.Second
	maxWaiting = 600 // in one namespace; a further one asks again when as many turns are over

	maxGiven = 2 * maxWaiting * turnPeriod // a turn expires: its export may have ended
)

// turns limits the new exports of one member. The zero value is ready to use.
type turns struct {
	used    float64 // less one for each turnPeriod until at
	at      time.Time
	free    int                                // how many are given without waiting
	waiting map[string][]string                // names in each namespace, the oldest first
	next    []string                           // namespaces with names that wait
	given   map[types.NamespacedName]time.Time // turns that were not taken yet
}

// wait returns how long an export that begins has to wait before it asks again; 0 if it has its turn now. records is
// the number of those of the member.
func (t *turns) wait(svc types.NamespacedName, records func() int, now time.Time) time.Duration {
	if passed := now.Sub(t.at); t.free == 0 || passed >= turnPeriod {
		t.at, t.free = now, turnBurst+2*records()
		// It may have ended most of its exports.
		t.used = min(max(0, t.used-passed.Seconds()/turnPeriod.Seconds()), float64(t.free))
		maps.DeleteFunc(t.given, func(_ types.NamespacedName, at time.Time) bool { return now.Sub(at) > maxGiven })
	}
	for t.any() && len(t.next) > 0 {
		t.give(now)
	}
	_, given := t.given[svc]
	switch {
	case given:
		delete(t.given, svc)
		return 0
	case t.any():
		t.used++
		return 0
	}
	names := t.waiting[svc.Namespace]
	before := slices.Index(names, svc.Name)
	if before < 0 {
		before = len(names)
		if before == 0 {
			t.next = append(t.next, svc.Namespace)
		}
		if before < maxWaiting {
			t.setWaiting(svc.Namespace, append(names, svc.Name))
		}
	}
	return time.Duration(min((before+1)*len(t.next), maxWaiting)) * turnPeriod
}

// any reports whether there is a turn.
func (t *turns) any() bool { return t.used+1 <= float64(t.free) }

// give gives a turn to the export that waits for the next one.
func (t *turns) give(now time.Time) {
	ns := t.next[0]
	names := t.waiting[ns]
	if t.next = t.next[1:]; len(names) > 1 {
		t.next = append(t.next, ns)
	}
	t.setWaiting(ns, names[1:])
	if t.given == nil {
		t.given = make(map[types.NamespacedName]time.Time)
	}
	t.given[types.NamespacedName{Namespace: ns, Name: names[0]}] = now
	t.used++
}

func (t *turns) setWaiting(namespace string, names []string) {
	if t.waiting == nil {
		t.waiting = make(map[string][]string)
	}
	if t.waiting[namespace] = names; len(names) == 0 {
		delete(t.waiting, namespace)
	}
}
