package liveness

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const ttl = time.Minute

var start = time.Now()

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// A clusterset consists of "self" and others, in which clusters renew every ten seconds while they are alive. Times are
// seconds after the start.
type clusterset struct {
	members []string
	dies    map[string]int // when a member renews last
	returns map[string]int // when it renews again
	down    [2]int         // the link is lost from the first to before the second
	still   [2]int         // the process is suspended
	joins   map[string]int // when it is known; 0 if not here
	leaves  map[string]int
	asks    map[string]time.Duration // the TTL that a member asks for
}

func (w clusterset) echoed(now int) time.Time {
	switch {
	case now >= w.down[0] && now < w.down[1]:
		return time.Time{}
	case now >= w.down[1] && w.down[1] > 0:
		return at(w.down[1])
	}
	return at(1)
}

func (w clusterset) seen(cluster string, now int) time.Time {
	last := now / 10 * 10
	if dies, dead := w.dies[cluster]; dead && last > dies {
		if back, returned := w.returns[cluster]; !returned || now < back {
			last = dies
		}
	}
	// What happens while the link is lost is not seen.
	if last >= w.down[0] && now < w.down[1] {
		last = min(last, w.down[0])
	}
	if last <= 0 {
		return time.Time{}
	}
	return at(last)
}

func (w clusterset) inputs(now int) Inputs {
	v := Inputs{Now: at(now), TTL: ttl, Echoed: w.echoed(now), Self: "self"}
	for _, cluster := range w.members {
		if left, leaves := w.leaves[cluster]; now < w.joins[cluster] || leaves && now >= left {
			continue
		}
		v.Members = append(v.Members, Member{Cluster: cluster, Known: at(w.joins[cluster]), Seen: w.seen(cluster, now), Changed: w.seen(cluster, now), TTL: w.asks[cluster]})
	}
	return v
}

// run returns what changed, and when, in the first ten minutes: "+a" is expired, "-a" is back, "!a,b" are frozen.
func (w clusterset) run() []string {
	var v Result
	var log []string
	for now := 1; now <= 600; now++ {
		if now >= w.still[0] && now < w.still[1] {
			continue
		}
		was := v
		v = v.Evaluate(w.inputs(now))
		for _, cluster := range w.members {
			switch {
			case v.Expired(cluster) && !was.Expired(cluster):
				log = append(log, fmt.Sprintf("%d +%s", now, cluster))
			case !v.Expired(cluster) && was.Expired(cluster):
				log = append(log, fmt.Sprintf("%d -%s", now, cluster))
			}
		}
		if !slices.Equal(v.Frozen(), was.Frozen()) {
			log = append(log, fmt.Sprintf("%d !%s", now, strings.Join(v.Frozen(), ",")))
		}
	}
	return log
}

// docs/spec/controller.md 8.2, docs/spec/controller.md 8.3, docs/spec/controller.md 8.4.
func TestEvaluate(t *testing.T) {
	three := []string{"self", "a", "b"}
	five := []string{"self", "a", "b", "c", "d"}
	for _, tt := range []struct {
		name       string
		clusterset clusterset
		want       []string
	}{
		{name: "all alive", clusterset: clusterset{members: five}},
		{name: "one dies", clusterset: clusterset{members: five, dies: map[string]int{"a": 100}}, want: []string{"160 +a"}},
		{name: "one dies that asks for more", clusterset: clusterset{members: five, dies: map[string]int{"a": 100}, asks: map[string]time.Duration{"a": 2 * ttl}},
			want: []string{"220 +a"}},
		{name: "one dies that asks for less", clusterset: clusterset{members: five, dies: map[string]int{"a": 100}, asks: map[string]time.Duration{"a": ttl / 2}},
			want: []string{"160 +a"}},
		{name: "one dies and returns", clusterset: clusterset{members: three, dies: map[string]int{"a": 100}, returns: map[string]int{"a": 200}},
			want: []string{"160 +a", "200 -a"}},
		{name: "without any heartbeat", clusterset: clusterset{members: three, dies: map[string]int{"a": 0}}, want: []string{"61 +a"}},
		{name: "joined later, without any heartbeat", clusterset: clusterset{members: three, dies: map[string]int{"a": 0}, joins: map[string]int{"a": 200}},
			want: []string{"260 +a"}},
		{name: "this cluster never expires", clusterset: clusterset{members: three, dies: map[string]int{"self": 100}}},
		{name: "both others of three", clusterset: clusterset{members: three, dies: map[string]int{"a": 100, "b": 100}}, want: []string{"160 +a", "160 +b"}},
		{name: "three of five at once are frozen", clusterset: clusterset{members: five, dies: map[string]int{"a": 100, "b": 100, "c": 100}},
			want: []string{"160 !a,b,c"}},
		{name: "three of seven are not more than half", clusterset: clusterset{
			members: append(five, "e", "f"), dies: map[string]int{"a": 100, "b": 100, "c": 100},
		}, want: []string{"160 +a", "160 +b", "160 +c"}},
		{name: "the first is frozen before the last is silent", clusterset: clusterset{
			members: five, dies: map[string]int{"a": 100, "b": 110, "c": 120, "d": 130},
		}, want: []string{"160 !a", "170 !a,b", "180 !a,b,c", "190 !a,b,c,d"}},
		{name: "frozen, and all return", clusterset: clusterset{
			members: five, dies: map[string]int{"a": 100, "b": 100, "c": 100}, returns: map[string]int{"a": 200, "b": 201, "c": 202},
		}, want: []string{"160 !a,b,c", "200 !"}},
		{name: "frozen, and one returns: the others get a TTL more", clusterset: clusterset{
			members: five, dies: map[string]int{"a": 100, "b": 100, "c": 100}, returns: map[string]int{"a": 200},
		}, want: []string{"160 !a,b,c", "200 !", "260 +b", "260 +c"}},
		{name: "one after the other", clusterset: clusterset{members: five, dies: map[string]int{"a": 100, "b": 200, "c": 300}},
			want: []string{"160 +a", "260 +b", "360 +c"}},
		{name: "the third within a TTL is frozen until the first are long gone", clusterset: clusterset{
			members: five, dies: map[string]int{"a": 100, "b": 100, "c": 150},
		}, want: []string{"160 +a", "160 +b", "210 !c", "220 !", "280 +c"}},
		{name: "our own heartbeat does not come back, with one other member", clusterset: clusterset{members: []string{"self", "a"}, dies: map[string]int{"a": 90}, down: [2]int{100, 900}}},
		{name: "a dead one of two goes", clusterset: clusterset{members: []string{"self", "a"}, dies: map[string]int{"a": 90}}, want: []string{"150 +a"}},
		{name: "link lost", clusterset: clusterset{members: three, dies: map[string]int{"a": 90}, down: [2]int{100, 900}}},
		{name: "link lost and back", clusterset: clusterset{members: three, dies: map[string]int{"a": 90}, down: [2]int{100, 300}}, want: []string{"360 +a"}},
		{name: "expired before the link was lost", clusterset: clusterset{members: three, dies: map[string]int{"a": 90}, down: [2]int{200, 400}},
			want: []string{"150 +a"}},
		{name: "the process was suspended", clusterset: clusterset{members: three, dies: map[string]int{"a": 190}, still: [2]int{200, 280}},
			want: []string{"340 +a"}},
		{name: "left", clusterset: clusterset{members: three, dies: map[string]int{"a": 100}, leaves: map[string]int{"a": 200}}, want: []string{"160 +a", "200 -a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.clusterset.run(); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// docs/spec/controller.md 8.3: our own heartbeats have to come back within half a TTL, and each outage begins anew.
func TestEcho(t *testing.T) {
	var none time.Time
	var e Echo
	for _, tt := range []struct {
		name      string
		now, sent int // seconds; -1 for none
		since     time.Time
		missing   bool
	}{
		{name: "start", now: 0, sent: -1},
		{name: "none yet", now: 30, sent: -1},
		{name: "none for more than half a TTL", now: 31, sent: -1, missing: true},
		{name: "the first", now: 40, sent: 39, since: at(40)},
		{name: "the last one is old, and in time", now: 69, sent: 39, since: at(40)},
		{name: "too old", now: 70, sent: 39, missing: true},
		{name: "one that was under way for too long", now: 90, sent: 59, missing: true},
		{name: "back", now: 100, sent: 90, since: at(100)},
		{name: "the next", now: 110, sent: 100, since: at(100)},
	} {
		sent := none
		if tt.sent >= 0 {
			sent = at(tt.sent)
		}
		e = e.Next(at(tt.now), sent, ttl)
		if got, missing := e.Since(), e.Missing(at(tt.now), ttl); !got.Equal(tt.since) || missing != tt.missing {
			t.Errorf("%s: since %s, missing %t; want %s, %t", tt.name, got, missing, tt.since, tt.missing)
		}
	}
}

// docs/spec/controller.md 8.2: after a restart, what was expired stays out until its heartbeat changes, and what was in stays in for
// a TTL. The first sight of a heartbeat is no change.
func TestRestored(t *testing.T) {
	inputs := func(now int, changed time.Time) Inputs {
		seen := at(1)
		if !changed.IsZero() {
			seen = changed
		}
		return Inputs{Now: at(now), TTL: ttl, Echoed: at(0), Self: "self", Members: []Member{
			{Cluster: "self"}, {Cluster: "dead", Seen: seen, Changed: changed}, {Cluster: "dies", Seen: at(1)},
		}}
	}
	r := Restored([]string{"dead", "left"})
	for now := 1; now <= 60; now++ {
		if r = r.Evaluate(inputs(now, time.Time{})); !r.Expired("dead") || r.Expired("dies") || r.Expired("left") {
			t.Fatalf("after %d s: expired: dead %t, dies %t, left %t; want true, false, false", now,
				r.Expired("dead"), r.Expired("dies"), r.Expired("left"))
		}
	}
	if r = r.Evaluate(inputs(61, at(61))); r.Expired("dead") || !r.Expired("dies") {
		t.Errorf("after a TTL: expired: dead %t, dies %t; want false with a heartbeat, true", r.Expired("dead"), r.Expired("dies"))
	}
}

// With "lease 0" no member expires, and an expired one is back.
func TestEvaluateWithoutLease(t *testing.T) {
	w := clusterset{members: []string{"self", "a"}, dies: map[string]int{"a": 0}}
	var v Result
	for now := 1; now <= 61; now++ {
		v = v.Evaluate(w.inputs(now))
	}
	if !v.Expired("a") {
		t.Fatal("a is not expired after a TTL")
	}
	in := w.inputs(62)
	in.TTL = 0
	if v = v.Evaluate(in); v.Expired("a") {
		t.Error("a is expired without a TTL")
	}
}

// Evaluate does not change the result that it starts from.
func TestResultNeverChanges(t *testing.T) {
	w := clusterset{members: []string{"self", "a"}, dies: map[string]int{"a": 0}, returns: map[string]int{"a": 70}}
	var v Result
	for now := 1; now <= 65; now++ {
		v = v.Evaluate(w.inputs(now))
	}
	if next := v.Evaluate(w.inputs(75)); next.Expired("a") || !v.Expired("a") {
		t.Errorf("expired = %t, and %t next, want true and false", v.Expired("a"), next.Expired("a"))
	}
}
