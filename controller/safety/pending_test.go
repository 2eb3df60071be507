package safety

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// docs/spec/controller.md 8.7: no loss is confirmed while others follow, or come back, and each is confirmed in the end.
func TestPendingLosses(t *testing.T) {
	const debounce, ttl = 2 * time.Second, time.Minute
	export := func(n int) importedExport {
		return importedExport{types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(n)}, "west"}
	}
	// Each second one more of twenty is lost, or comes back; wait is how long the first one that stays lost waits after the last of them.
	for _, tt := range []struct {
		name      string
		restored  bool
		mass      bool
		events    int
		confirmed time.Duration // since the begin
	}{
		{name: "a list, nothing comes back", restored: true, confirmed: debounce},
		{name: "a list, members restore for longer than the debounce", restored: true, events: 8, confirmed: 8*time.Second + debounce},
		{name: "a list, members restore for longer than a loss by watch waits", restored: true, events: 15, confirmed: 15*time.Second + debounce},
		{name: "the rest of a mass loss, nothing comes back", restored: true, mass: true, confirmed: ttl},
		{name: "the rest of a mass loss, members restore", restored: true, mass: true, events: 8, confirmed: 8*time.Second + ttl},
		{name: "one by watch", confirmed: debounce},
		{name: "some by watch, one after the other", events: 5, confirmed: 5*time.Second + debounce},
		{name: "many by watch", events: 15, confirmed: lossWaits * debounce},
	} {
		begin := time.Unix(1_700_000_000, 0)
		p, lost := newPendingLosses(debounce, ttl), make(map[importedExport]bool)
		for n := range 20 {
			lost[export(n)] = tt.restored || n == 0
		}
		if tt.restored {
			p.list(begin, lost, tt.mass, false)
		} else {
			p.lose(begin, export(0))
		}
		var got time.Duration
		for at := time.Duration(0); got == 0 && at < 2*ttl; at += time.Second / 2 {
			now := begin.Add(at)
			if n := int(at / time.Second); n > 0 && n <= tt.events && at%time.Second == 0 {
				if lost[export(n)] = !tt.restored; !tt.restored {
					p.lose(now, export(n))
				}
			}
			p.forget(now)
			if !p.wait() {
				t.Fatalf("%s: after %s nothing waits", tt.name, at)
			}
			p.compare(now, lost)
			if slices.Contains(p.confirm(now), export(0)) {
				got = at
			}
		}
		if got != tt.confirmed {
			t.Errorf("%s: confirmed after %s, want %s", tt.name, got, tt.confirmed)
		}
		if !p.lose(begin.Add(got), export(0)) {
			t.Errorf("%s: the loss is not confirmed", tt.name)
		}
		if p.forget(begin.Add(got + 2*ttl)); p.wait() && tt.events < 15 {
			t.Errorf("%s: %v still wait", tt.name, slices.Collect(maps.Keys(p.all)))
		}
	}
}

// What members restore without an end is no reason to wait for longer than a TTL.
func TestPendingLossesEnd(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	p := newPendingLosses(2*time.Second, 3*time.Second)
	one, two := importedExport{cluster: "one"}, importedExport{cluster: "two"}
	p.list(begin, map[importedExport]bool{one: true, two: true}, false, false)
	for n := 1; n < 6; n++ {
		now := begin.Add(time.Duration(n) * time.Second)
		p.compare(now, map[importedExport]bool{one: true, two: false})
		if got, want := slices.Contains(p.confirm(now), one), n == 3; got != want {
			t.Errorf("after %d s: confirmed %t, want %t", n, got, want)
		}
		p.lose(now, two)
	}
}

// A list that comes while members restore what was a mass loss does not make the rest of it wait for a shorter time.
func TestPendingLossesAreListedAgain(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	p := newPendingLosses(2*time.Second, time.Minute)
	of, later := importedExport{cluster: "of a mass loss"}, importedExport{cluster: "later"}
	p.list(begin, map[importedExport]bool{of: true, later: false}, true, false)
	p.list(begin.Add(time.Second), map[importedExport]bool{of: true, later: true}, false, false)
	if got := p.confirm(begin.Add(3 * time.Second)); !slices.Equal(got, []importedExport{later}) {
		t.Errorf("confirmed %v, want the one that was lost later", got)
	}
	if got := p.confirm(begin.Add(time.Second + time.Minute)); !slices.Equal(got, []importedExport{of}) {
		t.Errorf("confirmed %v a minute later, want the other one", got)
	}
}

// docs/spec/controller.md 8.7: what the imports have lost within a TTL counts beside what waits, unless it was accepted as a mass loss.
func TestLossesOfATTL(t *testing.T) {
	const debounce, ttl = 2 * time.Second, time.Minute
	begin := time.Unix(1_700_000_000, 0)
	export := func(n int) importedExport { return importedExport{cluster: fmt.Sprint(n)} }
	var p pendingLosses
	var imported map[importedExport]bool
	lose := func(now time.Time, from, to int) comparison {
		for n := from; n < to; n++ {
			p.lose(now, export(n))
			imported[export(n)] = true
		}
		p.forget(now)
		return p.compare(now, imported)
	}
	for _, tt := range []struct {
		name   string
		accept bool // the first losses as a mass loss
		listed bool // when the imports have followed the first losses
		pause  time.Duration
		want   comparison
	}{
		{name: "after a pause", pause: debounce, want: comparison{imported: 30, lost: 20}},
		{name: "after a pause with a list", listed: true, pause: debounce, want: comparison{imported: 30, lost: 20}},
		{name: "after a TTL", pause: ttl + debounce, want: comparison{imported: 20, lost: 10}},
		{name: "after a mass loss", accept: true, pause: debounce, want: comparison{imported: 20, lost: 10}},
	} {
		p, imported = newPendingLosses(debounce, ttl), make(map[importedExport]bool)
		for n := range 30 {
			imported[export(n)] = false
		}
		if got, want := lose(begin, 0, 10), (comparison{imported: 30, lost: 10}); got != want {
			t.Errorf("%s: first %v, want %v", tt.name, got, want)
		}
		if now := begin.Add(debounce); tt.accept {
			p.list(now, imported, true, true)
		} else if n := len(p.confirm(now)); n != 10 {
			t.Errorf("%s: %d are confirmed, want 10", tt.name, n)
		}
		for n := range 10 {
			delete(imported, export(n))
		}
		if tt.listed {
			now := begin.Add(debounce)
			if got, want := p.ofList(now, imported), (comparison{imported: 20}); got != want {
				t.Errorf("%s: of a list %v, want %v", tt.name, got, want)
			}
			p.list(now, imported, false, false)
		}
		if got := lose(begin.Add(debounce+tt.pause), 10, 20); got != tt.want {
			t.Errorf("%s: then %v, want %v", tt.name, got, tt.want)
		}
		if now := begin.Add(debounce + tt.pause); tt.listed {
			if got := p.ofList(now, imported); got != tt.want {
				t.Errorf("%s: of a list %v, want %v", tt.name, got, tt.want)
			}
		}
	}
}

// The clusters whose Member went with a rollback are those without one when the losses were read, whatever the broker has since.
func TestUnjoined(t *testing.T) {
	svc := types.NamespacedName{Namespace: "shop", Name: "db"}
	lost := map[importedExport]bool{{svc, "west"}: true, {svc, "north"}: true, {svc, "south"}: false}
	l := NewMassLoss(MassLossConfig{TTL: time.Minute})
	l.noteUnjoined(lost, map[string]bool{"north": true})
	if len(l.unjoined) > 0 {
		t.Errorf("unjoined = %v without a rollback, want none", l.unjoined)
	}
	l.restored = true
	l.noteUnjoined(lost, map[string]bool{"north": true})
	if got := slices.Sorted(maps.Keys(l.unjoined)); !slices.Equal(got, []string{"west"}) || l.restored {
		t.Errorf("unjoined = %v, want west alone", got)
	}
}
