package liveness

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/controller/protocol"
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
	blind   map[string]int           // when its heartbeats begin to say so
}

var lastResort = OnExpiry{ActLastResort, 5 * time.Minute}

// evaluate does all that is due.
func evaluate(r Result, in Inputs) Result {
	r, silent, back := r.Next(in)
	for _, m := range silent {
		r = r.Silence(m.Cluster, m.Heartbeat.Stamp, in.OnExpiry, in.Now)
	}
	for _, m := range back {
		r = r.Return(m.Cluster, in.TTL, in.Now)
	}
	member := func(cluster string) bool {
		return slices.ContainsFunc(in.Members, func(m Member) bool { return m.Cluster == cluster })
	}
	return r.WithoutClusters(func(cluster string) bool { return r.Returning(cluster) || !member(cluster) })
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
	// Renewals during the loss of the link are not seen.
	if last >= w.down[0] && now < w.down[1] {
		last = min(last, w.down[0])
	}
	if last <= 0 {
		return time.Time{}
	}
	return at(last)
}

func (w clusterset) inputs(now int) Inputs {
	v := Inputs{Now: at(now), TTL: ttl, OnExpiry: lastResort, Echoed: w.echoed(now), Self: "self"}
	for _, cluster := range w.members {
		if left, leaves := w.leaves[cluster]; now < w.joins[cluster] || leaves && now >= left {
			continue
		}
		m := Member{Cluster: cluster, Known: at(w.joins[cluster]), Seen: w.seen(cluster, now), TTL: w.asks[cluster]}
		if !m.Seen.IsZero() {
			m.Heartbeat = protocol.Heartbeat{Stamp: protocol.Stamp(m.Seen.Sub(start)), Blind: now >= w.blind[cluster] &&
				w.blind[cluster] > 0}
			if back, returned := w.returns[cluster]; returned && m.Seen.After(at(back-10)) {
				m.Heartbeat.Complete = m.Heartbeat.Stamp // it compares all again and again
			}
		}
		v.Members = append(v.Members, m)
	}
	return v
}

// run returns what changed, and when, in the first ten minutes: "+a" is silent, "-a" is back, "!a" counts no longer.
func (w clusterset) run() []string {
	var v Result
	var log []string
	for now := 1; now <= 600; now++ {
		if now >= w.still[0] && now < w.still[1] {
			continue
		}
		was := v
		v = evaluate(v, w.inputs(now))
		for _, cluster := range w.members {
			switch {
			case v.Part(cluster) == Nothing && was.Part(cluster) != Nothing:
				log = append(log, fmt.Sprintf("%d !%s", now, cluster))
			case v.Silent(cluster) && !was.Silent(cluster):
				log = append(log, fmt.Sprintf("%d +%s", now, cluster))
			case !v.Silent(cluster) && was.Silent(cluster):
				log = append(log, fmt.Sprintf("%d -%s", now, cluster))
			}
		}
	}
	return log
}

// docs/spec/controller.md 8.2, docs/spec/controller.md 8.3.
func TestEvaluate(t *testing.T) {
	three := []string{"self", "a", "b"}
	five := []string{"self", "a", "b", "c", "d"}
	for _, tt := range []struct {
		name       string
		clusterset clusterset
		want       []string
	}{
		{name: "all alive", clusterset: clusterset{members: five}},
		{name: "one dies", clusterset: clusterset{members: five, dies: map[string]int{"a": 100}},
			want: []string{"160 +a", "460 !a"}},
		{name: "one dies that asks for more", clusterset: clusterset{members: five, dies: map[string]int{"a": 100},
			asks: map[string]time.Duration{"a": 2 * ttl}},
			want: []string{"220 +a", "520 !a"}},
		{name: "one dies that asks for less", clusterset: clusterset{members: five, dies: map[string]int{"a": 100},
			asks: map[string]time.Duration{"a": ttl / 2}},
			want: []string{"160 +a", "460 !a"}},
		{name: "one dies and returns", clusterset: clusterset{members: three, dies: map[string]int{"a": 100},
			returns: map[string]int{"a": 200}},
			want: []string{"160 +a", "200 -a"}},
		{name: "without any heartbeat", clusterset: clusterset{members: three, dies: map[string]int{"a": 0}},
			want: []string{"61 +a", "361 !a"}},
		{name: "joined later, without any heartbeat", clusterset: clusterset{members: three, dies: map[string]int{"a": 0},
			joins: map[string]int{"a": 200}},
			want: []string{"260 +a", "560 !a"}},
		{name: "this cluster never expires", clusterset: clusterset{members: three, dies: map[string]int{"self": 100}}},
		{name: "both others of three", clusterset: clusterset{members: three, dies: map[string]int{"a": 100, "b": 100}},
			want: []string{"160 +a", "160 +b", "460 !a", "460 !b"}},
		{name: "all others at once", clusterset: clusterset{members: five,
			dies: map[string]int{"a": 100, "b": 100, "c": 100, "d": 100}},
			want: []string{"160 +a", "160 +b", "160 +c", "160 +d", "460 !a", "460 !b", "460 !c", "460 !d"}},
		{name: "blind", clusterset: clusterset{members: three, blind: map[string]int{"a": 105}},
			want: []string{"105 +a", "405 !a"}},
		{name: "our own heartbeat does not come back, with one other member",
			clusterset: clusterset{members: []string{"self", "a"}, dies: map[string]int{"a": 90}, down: [2]int{100, 900}}},
		{name: "a dead one of two goes", clusterset: clusterset{members: []string{"self", "a"},
			dies: map[string]int{"a": 90}}, want: []string{"150 +a", "450 !a"}},
		{name: "link lost", clusterset: clusterset{members: three, dies: map[string]int{"a": 90}, down: [2]int{100, 900}}},
		{name: "link lost and back", clusterset: clusterset{members: three, dies: map[string]int{"a": 90},
			down: [2]int{100, 300}}, want: []string{"360 +a"}},
		{name: "expired before the link was lost", clusterset: clusterset{members: three, dies: map[string]int{"a": 90},
			down: [2]int{200, 400}},
			want: []string{"150 +a", "460 !a"}},
		{name: "the process was suspended", clusterset: clusterset{members: three, dies: map[string]int{"a": 190},
			still: [2]int{200, 280}},
			want: []string{"340 +a"}},
		{name: "left", clusterset: clusterset{members: three, dies: map[string]int{"a": 100},
			leaves: map[string]int{"a": 200}}, want: []string{"160 +a", "200 -a"}},
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
		now, sent int // seconds; or -1
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
		if got, missing := e.Since, e.Missing(at(tt.now), ttl); !got.Equal(tt.since) || missing != tt.missing {
			t.Errorf("%s: since %s, missing %t; want %s, %t", tt.name, got, missing, tt.since, tt.missing)
		}
	}
}

// docs/spec/controller.md 8.2: after a restart, a silent member stays silent until it has compared all its exports
// since, for no longer than on_expiry allows; a current one stays so for a TTL.
func TestRestored(t *testing.T) {
	inputs := func(now int, h protocol.Heartbeat) Inputs {
		return Inputs{Now: at(now), TTL: ttl, OnExpiry: lastResort, Echoed: at(0), Self: "self", Members: []Member{
			{Cluster: "self"}, {Cluster: "dead", Seen: at(1), Heartbeat: h}, {Cluster: "dies", Seen: at(1)},
			{Cluster: "over", Seen: at(1)},
		}}
	}
	r := RestoredResult(map[string]Silence{
		"dead": {Since: at(-30), Seen: 7}, "over": {Since: at(-300)}, "left": {Since: at(0)}, "tomorrow": {Since: at(86400)},
	}, lastResort, at(0))
	if r.Part("dead") != LastResort || r.Part("over") != Nothing || r.Part("dies") != All ||
		!r.Since("tomorrow").Equal(at(0)) {
		t.Errorf("at first dead %d, over %d, dies %d, tomorrow since %s", r.Part("dead"), r.Part("over"), r.Part("dies"),
			r.Since("tomorrow"))
	}
	for now := 1; now <= 60; now++ {
		h := protocol.Heartbeat{Stamp: protocol.Stamp(7 + now), Complete: 7} // of a pass before
		if r = evaluate(r, inputs(now, h)); !r.Silent("dead") || r.Silent("dies") || r.Silent("left") {
			t.Fatalf("after %d s: silent: dead %t, dies %t, left %t; want true, false, false", now, r.Silent("dead"),
				r.Silent("dies"), r.Silent("left"))
		}
	}
	if r = evaluate(r, inputs(61, protocol.Heartbeat{Stamp: 70, Complete: 8})); r.Silent("dead") || !r.Silent("dies") {
		t.Errorf("after a TTL: silent: dead %t, dies %t; want false with a heartbeat that counts, true", r.Silent("dead"),
			r.Silent("dies"))
	}
}

// A member that returns counts as current, and is silent to the next process until its services were reconciled.
func TestReturning(t *testing.T) {
	r := Result{}.Silence("a", 7, lastResort, at(0)).Return("a", ttl, at(0))
	if r.Silent("a") || r.Part("a") != All || !r.Returning("a") || len(r.Silences()) != 1 || !r.Since("a").IsZero() {
		t.Errorf("silent %t, part %d, returning %t, %d noted; want false, all, true, 1", r.Silent("a"), r.Part("a"),
			r.Returning("a"), len(r.Silences()))
	}
	in := Inputs{Now: at(1), TTL: ttl, OnExpiry: lastResort, Echoed: at(0),
		Members: []Member{{Cluster: "a", Heartbeat: protocol.Heartbeat{Stamp: 9, Complete: 8}}}}
	if next, silent, back := r.Next(in); len(silent)+len(back) > 0 || !next.Returning("a") {
		t.Errorf("silent %v, back %v, want neither while it returns", silent, back)
	}
}

// on_expiry: the import by the length of the silence.
func TestOnExpiry(t *testing.T) {
	for _, tt := range []struct {
		on                 OnExpiry
		text               string
		begin, end, beyond Part
	}{
		{OnExpiry{ActLastResort, time.Hour}, "last_resort 1h0m0s", LastResort, LastResort, Nothing},
		{OnExpiry{ActRemove, time.Hour}, "remove", Nothing, Nothing, Nothing},
		{OnExpiry{ActKeep, time.Hour}, "keep", All, All, All},
	} {
		if begin, end, beyond := tt.on.Part(0), tt.on.Part(time.Hour-1), tt.on.Part(time.Hour); begin != tt.begin ||
			end != tt.end || beyond != tt.beyond || tt.on.String() != tt.text {
			t.Errorf("%s: %d, %d, %d", tt.on, begin, end, beyond)
		}
	}
}

// With "lease 0" no member falls silent, and a silent one is back.
func TestEvaluateWithoutLease(t *testing.T) {
	w := clusterset{members: []string{"self", "a"}, dies: map[string]int{"a": 0}}
	var v Result
	for now := 1; now <= 61; now++ {
		v = evaluate(v, w.inputs(now))
	}
	if !v.Silent("a") {
		t.Fatal("a is not silent after a TTL")
	}
	in := w.inputs(62)
	in.TTL = 0
	if v = evaluate(v, in); v.Silent("a") {
		t.Error("a is silent without a TTL")
	}
}

// Next does not change the result that it starts from.
func TestResultNeverChanges(t *testing.T) {
	w := clusterset{members: []string{"self", "a"}, dies: map[string]int{"a": 0}, returns: map[string]int{"a": 70}}
	var v Result
	for now := 1; now <= 65; now++ {
		v = evaluate(v, w.inputs(now))
	}
	if next := evaluate(v, w.inputs(75)); next.Silent("a") || !v.Silent("a") {
		t.Errorf("silent = %t, and %t next, want true and false", v.Silent("a"), next.Silent("a"))
	}
}
