package export

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// zoned returns source slices of at most 100 endpoints each, as Kubernetes makes them, with an endpoint for each zone
// that is listed.
func zoned(zones ...string) []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	for i, zone := range zones {
		if i%100 == 0 {
			all = append(all, newSlice(fmt.Sprintf("db-%03d", i/100), discoveryv1.AddressTypeIPv4))
		}
		s := all[len(all)-1]
		e := newSlice("", discoveryv1.AddressTypeIPv4, fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250)).Endpoints[0]
		if e.Zone = nil; zone != "" {
			e.Zone = &zone
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return all
}

// times returns n endpoints in each of the zones, in turn.
func times(n int, zones ...string) (all []string) {
	for range n {
		all = append(all, zones...)
	}
	return all
}

// asked returns what an export with the strategy exports.
func asked(strategy string, byZone bool, sources ...*discoveryv1.EndpointSlice) Result {
	exp, o := newExport(), options()
	exp.Annotations[broker.AnnotationSliceStrategy], o.ByZone = strategy, byZone
	return From(exp, newService(), sources, o)
}

// layout returns how many endpoints there are for each zone, as "<zone>:<endpoints of each slice>", sorted.
func layout(list []*discoveryv1.EndpointSlice) string {
	var text []string
	for _, s := range list {
		text = append(text, fmt.Sprintf("%s:%d", s.Labels[broker.LabelForZone], len(s.Endpoints)))
	}
	slices.Sort(text)
	return strings.Join(text, " ")
}

// docs/spec/controller.md 3.7: when endpoints are divided by zone. The first rows are those of the table in KEP-2030.
func TestStrategies(t *testing.T) {
	abc := []string{"a", "b", "c"}
	dual := zoned(times(3, "a", "b")...)
	dual = append(dual, newSlice("v6", discoveryv1.AddressTypeIPv6, "fd00::1", "fd00::2"))
	for _, tt := range []struct {
		name, strategy string
		byZone         bool
		sources        []*discoveryv1.EndpointSlice
		want           string
	}{
		{name: "6 endpoints", strategy: "Original", sources: zoned(times(2, abc...)...), want: ":6"},
		{name: "6 endpoints", strategy: "PreferZone", sources: zoned(times(2, abc...)...), want: ":6"},
		{name: "6 endpoints", strategy: "RequireZone", sources: zoned(times(2, abc...)...), want: "a:2 b:2 c:2"},
		{name: "90 endpoints", strategy: "Original", sources: zoned(times(30, abc...)...), want: ":90"},
		{name: "90 endpoints", strategy: "PreferZone", sources: zoned(times(30, abc...)...), want: "a:30 b:30 c:30"},
		{name: "90 endpoints", strategy: "RequireZone", sources: zoned(times(30, abc...)...), want: "a:30 b:30 c:30"},
		{name: "270 endpoints", strategy: "PreferZone", sources: zoned(times(90, abc...)...), want: "a:90 b:90 c:90"},
		{name: "270 endpoints", strategy: "RequireZone", sources: zoned(times(90, abc...)...), want: "a:90 b:90 c:90"},

		{name: "padding: not yet", strategy: "PreferZone", sources: zoned("a", "a", "a", "b", "b"), want: ":5"},
		{name: "padding: enough", strategy: "PreferZone", sources: zoned("a", "a", "a", "b", "b", "b"), want: "a:3 b:3"},
		{name: "padding: still enough", strategy: "PreferZone", byZone: true, sources: zoned("a", "a", "a", "b", "b"),
			want: "a:3 b:2"},
		{name: "padding: no longer", strategy: "PreferZone", byZone: true, sources: zoned("a", "a", "a", "b"), want: ":4"},
		{name: "a zone is empty", strategy: "PreferZone", byZone: true, sources: zoned("a", "a", "a"), want: ":3"},
		{name: "one zone", strategy: "RequireZone", sources: zoned("a", "a", "a"), want: "a:3"},
		{name: "an endpoint without a zone", strategy: "PreferZone", byZone: true,
			sources: zoned("a", "a", "a", "b", "b", "b", ""), want: ":7"},
		{name: "an endpoint without a zone", strategy: "RequireZone", sources: zoned("a", "b", ""), want: ":1 a:1 b:1"},
		{name: "a zone that no label can say", strategy: "RequireZone", sources: zoned("a", "zone b"), want: ":1 a:1"},
		{name: "one family has too few", strategy: "PreferZone", sources: dual, want: ":2 :6"},
		{name: "two families", strategy: "RequireZone", sources: dual, want: "a:3 b:3 z1:2"},
		{name: "no endpoints", strategy: "RequireZone", sources: zoned("a")[:0], want: ""},
		{name: "an empty slice", strategy: "RequireZone", sources: []*discoveryv1.EndpointSlice{newSlice("x",
			discoveryv1.AddressTypeIPv4)}, want: ":0"},
		{name: "an empty slice beside others", strategy: "PreferZone",
			sources: append(zoned("a"), newSlice("x", discoveryv1.AddressTypeIPv4), newSlice("y", discoveryv1.AddressTypeIPv6)),
			want:    ":0 :1"},
	} {
		r := asked(tt.strategy, tt.byZone, tt.sources...)
		if got := layout(r.Slices); got != tt.want || layout(r.Local) != tt.want {
			t.Errorf("%s, %s: slices %q and own %q, want %q", tt.name, tt.strategy, got, layout(r.Local), tt.want)
		}
		if len(r.Ignored) > 0 {
			t.Errorf("%s, %s: ignored %v", tt.name, tt.strategy, r.Ignored)
		}
	}
}

// docs/spec/controller.md 3.7: a value without effect leaves the export valid, and the condition has the wanted form.
func TestStrategyIgnored(t *testing.T) {
	for _, tt := range []struct {
		name, strategy string
		endpoints      string
		headless       bool
		want           string // of the message, "" if the strategy counts
	}{
		{name: "unknown", strategy: "preferzone", want: `Ignored: annotation clusterset-dns.io/slice-strategy: "preferzone": want Original, PreferZone or RequireZone. [export-annotation]`},
		{name: "empty", strategy: "", want: `"": want Original, PreferZone or RequireZone. [export-annotation]`},
		{name: "cluster IPs", strategy: "RequireZone", endpoints: broker.ServiceIP, want: `"RequireZone": want Original, as the endpoints are service_ip. [export-annotation]`},
		{name: "cluster IPs, unknown", strategy: "x", endpoints: broker.ServiceIP, want: `"x": want Original, PreferZone or RequireZone. [export-annotation]`},
		{name: "cluster IPs, default", strategy: "Original", endpoints: broker.ServiceIP},
		{name: "Headless beside cluster IPs", strategy: "RequireZone", endpoints: broker.ServiceIP, headless: true},
	} {
		exp, service, o := newExport(), newService(), options()
		exp.Annotations[broker.AnnotationSliceStrategy], o.Endpoints = tt.strategy, tt.endpoints
		if tt.headless {
			service.Spec.ClusterIP, service.Spec.ClusterIPs = "None", []string{"None"}
		}
		r := From(exp, service, zoned("a", "b"), o)
		c := r.Valid(1)
		reason := "Valid"
		if tt.want != "" {
			reason = "AnnotationIgnored"
		}
		if c.Status != metav1.ConditionTrue || c.Reason != reason || !strings.HasSuffix(c.Message, tt.want) ||
			r.Record == nil {
			t.Errorf("%s: condition %+v, want True/%s and %q", tt.name, c, reason, tt.want)
		}
		if got := layout(r.Slices); tt.headless && got != "a:1 b:1" || tt.endpoints != broker.ServiceIP && got != ":2" {
			t.Errorf("%s: slices %s", tt.name, got)
		}
	}
}

// A Pod that moves from one source slice to another is in both for a moment. The labels of source slices do not count
// beside a strategy.
func TestStrategyOnce(t *testing.T) {
	all := zoned("a", "b")
	second := all[0].DeepCopy()
	second.Name, second.Labels[broker.LabelForRegion], second.Endpoints = "db-more", "r", second.Endpoints[1:]
	all[0].Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: ptr(false)}
	r := asked("RequireZone", false, append(all, second)...)
	if got := layout(r.Slices); got != "a:1 b:1" {
		t.Fatalf("slices = %s, want each endpoint once", got)
	}
	for _, s := range r.Slices {
		if !*s.Endpoints[0].Conditions.Ready || s.Labels[broker.LabelForRegion] != "" ||
			s.Annotations["endpoints.kubernetes.io/last-change-trigger-time"] == "" {
			t.Errorf("slice %+v, want the ready one of two endpoints, no region, and the time of the change", s)
		}
	}
	other := second.DeepCopy() // at another port it is another endpoint
	other.Name, other.Ports[0].Port = "db-other", ptr[int32](9999)
	if got := layout(asked("RequireZone", false, append(all, second, other)...).Slices); got != "a:1 b:1 b:1" {
		t.Errorf("with another port: slices = %s, want another slice", got)
	}
}

// docs/spec/controller.md 3.7, docs/spec/controller.md 10: every endpoint exactly once, in slices of at most 100, and
// few of them change with one endpoint.
func TestStrategyLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, strategy := range []string{"PreferZone", "RequireZone"} {
		// By number of the endpoint; "-" for one that is gone. There are more than fit into one slice of a zone.
		zones := times(40, "a", "b", "b", "c")
		var before map[string]string
		byZone, flips, writes, most := false, 0, 0, 0
		changes := tier.Size(200, 600)
		for n := range changes {
			if at := r.IntN(len(zones)); n > changes*3/4 && r.IntN(3) > 0 || r.IntN(4) == 0 {
				zones[at] = "-"
			} else {
				zones = append(zones, []string{"a", "b", "b", "c"}[r.IntN(4)])
			}
			sources := present(zones)
			for _, s := range sources {
				s.Annotations[corev1.EndpointsLastChangeTriggerTime] = time.Unix(int64(n), 0).UTC().Format(time.RFC3339)
			}
			got := asked(strategy, byZone, sources...)
			after, labelled := check(t, sources, got)
			if t.Failed() {
				t.Fatalf("%s, change %d", strategy, n)
			}
			changed := differences(before, after)
			if n > 0 && labelled != byZone {
				flips++
			} else if n > 0 {
				writes, most = writes+changed, max(most, changed)
			}
			if before, byZone = after, labelled; n%20 > 0 {
				continue
			}
			r.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
			if again, _ := check(t, sources, asked(strategy, byZone, sources...)); differences(after, again) > 0 {
				t.Fatalf("%s, change %d: another order of the sources gives other slices", strategy, n)
			}
		}
		// Rarely a slice is split into two, or two are joined: three writes.
		if writes > changes*5/4 || most > 4 || flips > 6 {
			t.Errorf("%s: %d writes after %d changes, at most %d after one, and all anew %d times", strategy, writes, changes,
				most, flips)
		}
	}
}

// present returns source slices of the endpoints that are there: each stays in its slice.
func present(zones []string) []*discoveryv1.EndpointSlice {
	all := zoned(zones...)
	for _, s := range all {
		s.Endpoints = slices.DeleteFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return *e.Zone == "-" })
	}
	return all
}

// check checks what holds for every result. It returns the content of each slice by name, and whether they are for
// zones.
func check(t *testing.T, sources []*discoveryv1.EndpointSlice, r Result) (content map[string]string, labelled bool) {
	t.Helper()
	want, got := map[string]string{}, map[string]string{}
	for _, s := range sources {
		for _, e := range s.Endpoints {
			want[e.Addresses[0]] = *e.Zone
		}
	}
	content = map[string]string{}
	for _, s := range r.Slices {
		if len(s.Endpoints) > 100 || content[s.Name] != "" {
			t.Errorf("slice %s: %d endpoints, want at most 100, and no other of its name", s.Name, len(s.Endpoints))
		}
		zone := s.Labels[broker.LabelForZone]
		labelled = labelled || zone != ""
		var texts []string
		for _, e := range s.Endpoints {
			if _, twice := got[e.Addresses[0]]; twice || zone != "" && zone != *e.Zone {
				t.Errorf("endpoint %s of zone %s: twice, or in a slice for %q", e.Addresses[0], *e.Zone, zone)
			}
			got[e.Addresses[0]] = *e.Zone
			texts = append(texts, e.Addresses[0])
		}
		content[s.Name] = fmt.Sprint(s.Labels, texts) // the broker's copy is not written for a time alone
	}
	for i, s := range r.Local {
		if s.Name != r.Slices[i].Name || len(s.Endpoints) != len(r.Slices[i].Endpoints) || len(s.Annotations) > 0 {
			t.Errorf("own slice %s: %d endpoints and %v, want those of the slice for the broker, and no time, which changes with every other slice",
				s.Name, len(s.Endpoints), s.Annotations)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%d endpoints, want %d, those of the sources", len(got), len(want))
	}
	return content, labelled
}

// differences returns how many slices are new, changed or gone.
func differences(before, after map[string]string) (n int) {
	for name, text := range after {
		if before[name] != text {
			n++
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			n++
		}
	}
	return n
}
