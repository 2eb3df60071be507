package safety

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/controller/metrics"
	"github.com/clusterset-dns/clusterset/test/harness/series"
)

// lines is a Logger that keeps what was logged.
type lines []string

func (l *lines) Infof(format string, args ...any)    { *l = append(*l, fmt.Sprintf(format, args...)) }
func (l *lines) Warningf(format string, args ...any) { l.Infof(format, args...) }
func (l *lines) Errorf(format string, args ...any)   { l.Infof(format, args...) }

func (l *lines) count(text string) (n int) {
	for _, line := range *l {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// frozen returns metric frozen for a reason.
func frozen(t *testing.T, reg prometheus.Gatherer, r Reason) float64 {
	t.Helper()
	all, err := series.Gather(reg)
	found := all.Named(series.Controller+"frozen").With("reason", r.String())
	if err != nil || len(found) != 1 {
		t.Fatalf("metric frozen of %s: %v, error %v; want one", r, found, err)
	}
	return found.Sum()
}

// suspended is the table of docs/spec/controller.md 8.7: not that of the code, which it checks.
var suspended = map[Reason][]Operation{
	NotSynced:      {Import},
	BrokerIdentity: {Export, Import, Heartbeat},
	BrokerEmpty:    {Export, Import, Heartbeat},
	Credential:     {Export},
	OldMember:      {},
	LostMembers:    {}, // for people; [Expiry] stops by itself for the next one
	Blind:          {},
	ExportKind:     {},
	Webhook:        {},
	OwnHeartbeat:   {},
}

func TestFreezes(t *testing.T) {
	log, changes, reg := &lines{}, 0, prometheus.NewRegistry()
	all := Reasons()
	if len(all) != len(suspended) {
		t.Fatalf("%d reasons, want the %d of docs/spec/controller.md 8.7", len(all), len(suspended))
	}
	var names []string
	for _, r := range all {
		names = append(names, r.String())
	}
	f := NewFreezes(log, metrics.New(reg, metrics.Labels{Reasons: names}), func() { changes++ })
	for _, r := range all {
		changes = 0
		f.Set(r, "")
		for _, op := range []Operation{Export, Import, Heartbeat} {
			f.Set(r, "why")
			if got, want := f.Suspended(op) == "why", slices.Contains(suspended[r], op); got != want {
				t.Errorf("%s: suspends operation %b: %t, want %t", r, op, got, want)
			}
			f.Set(r, "")
			if f.Suspended(op) != "" {
				t.Errorf("%s: operation %b is suspended after the end", r, op)
			}
		}
		*log, changes = nil, 0
		if f.AnyInForce(r) || changes != 0 {
			t.Errorf("%s: frozen at the start, or %d changes by clearing nothing", r, changes)
		}
		f.Set(r, "first")
		first := f.InForce()
		f.Set(r, "second")
		if in := f.InForce(); len(first) != 1 || len(in) != 1 || in[0].Reason != r.String() || in[0].Suspends == "" ||
			in[0].Since.IsZero() || !in[0].Since.Equal(first[0].Since) ||
			in[0].Detail != "second" {
			t.Errorf("%s: in force %+v and then %+v: want the second detail, since the first one", r, first, in)
		}
		each := min(1, len(suspended[r])) // nothing follows from a reason that suspends nothing
		if !f.AnyInForce(all...) || !f.AnyInForce(r) || changes != each || frozen(t, reg, r) != 1 {
			t.Errorf("%s: frozen = %t, %d changes, metric %v; want true, %d, 1", r, f.AnyInForce(r), changes,
				frozen(t, reg, r), each)
		}
		f.Set(r, "")
		if f.AnyInForce(all...) || changes != 2*each || frozen(t, reg, r) != 0 {
			t.Errorf("%s: frozen = %t, %d changes, metric %v after the end; want false, %d, 0", r, f.AnyInForce(r), changes,
				frozen(t, reg, r), 2*each)
		}
		if set, cleared := log.count("frozen ("+r.String()+"): first ["+string(reason.Of(reason.Frozen, r.String()))+"]"),
			log.count("no longer frozen ("+r.String()+")"); set != 1 || cleared != 1 {
			t.Errorf("%s: logged %d times when set and %d when cleared, want once each:\n%q", r, set, cleared, *log)
		}
	}
	f.SetFor(BrokerIdentity, reason.ClusterCloned, "two")
	if in := f.InForce(); len(in) != 1 || in[0].Code != string(reason.ClusterCloned) ||
		log.count("frozen (broker_identity): two [cluster-cloned]") != 1 {
		t.Errorf("in force %+v, logged %q: want the code of the cause", in, *log)
	}
}
