package merge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/test/harness/exportspec"
)

// See package exportspec.
var (
	shop, hour                          = exportspec.Shop, exportspec.Hour
	ports, families, headless, clientIP = exportspec.Ports, exportspec.Families, exportspec.Headless, exportspec.ClientIP
	label, annotation                   = exportspec.Label, exportspec.Annotation
	distribution, policy, vip           = exportspec.Distribution, exportspec.Policy, exportspec.VIP
)

const v4, v6 = exportspec.V4, exportspec.V6

// record returns an export of shop/db by cluster, created at hour h, which the broker got a minute later.
func record(cluster string, h int, with ...func(*v1alpha1.ExportedServiceSpec)) Record {
	return Record{Cluster: cluster, Admitted: hour(0), Created: metav1.NewTime(hour(h).Add(time.Minute)),
		Spec: exportspec.New(h, with...)}
}

func selects(clusters ...string) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) {
		for _, id := range clusters {
			s.ClusterSelectors = append(s.ClusterSelectors, v1alpha1.ClusterSelector{MatchProperties: []v1alpha1.Property{
				{Name: "tier", Value: "gold"}, {Name: "cluster.clusterset.k8s.io", Value: id},
			}})
		}
	}
}

// summary shows an import in one line, or "none".
func summary(r Result) string {
	if r.Import == nil {
		return "none"
	}
	s := r.Import.Spec
	var p []string
	for _, port := range s.Ports {
		p = append(p, v1alpha1.ServicePort{Name: port.Name, Protocol: port.Protocol, Port: port.Port}.String())
	}
	var clusters []string
	for _, c := range r.Import.Status.Clusters {
		clusters = append(clusters, c.Cluster)
	}
	return fmt.Sprintf("%s %v %v of %v", s.Type, p, s.IPFamilies, clusters)
}

// mapping shows what the slices of a member become, e.g. "b: web=http"; a port under its own name is shown once.
func mapping(r Result) string {
	var members []string
	for _, m := range r.Members {
		var p []string
		for _, port := range m.Ports {
			text := port.From + "=" + port.To
			if port.From == port.To {
				text = port.To
			}
			p = append(p, text)
		}
		if m.LeftOut != "" {
			p = append(p, "!"+string(m.LeftOut))
		}
		members = append(members, m.Cluster+": "+strings.Join(p, " "))
	}
	return strings.Join(members, "; ")
}

func reasonsOf(r Result) string { return Condition(r.Conflicts, 1).Reason }

// docs/spec/controller.md 4, docs/spec/controller.md 6.2, docs/spec/controller.md 11.
func TestMerge(t *testing.T) {
	for _, tt := range []struct {
		name    string
		records []Record
		options Options
		want    string // import
		members string // port maps; "" if not looked at
		reason  string // "NoConflicts" if empty
	}{
		{name: "merge of nothing", want: "none"},
		{
			name: "one export", records: []Record{record("a", 1)},
			want: "ClusterSetIP [http/TCP/80] [IPv4] of [a]", members: "a: http",
		}, {
			name: "clusters sorted, whoever is the oldest", records: []Record{record("b", 1), record("a", 2)},
			want: "ClusterSetIP [http/TCP/80] [IPv4] of [a b]",
		}, {
			name:    "the oldest decides about the type, the other's endpoints are kept",
			records: []Record{record("a", 2, headless), record("b", 1)},
			want:    "ClusterSetIP [http/TCP/80] [IPv4] of [a b]", members: "a: http; b: http", reason: "TypeConflict",
		}, {
			name: "lighthouse leaves the other type out", options: Options{Mode: Lighthouse},
			records: []Record{record("a", 2, headless, ports("x/TCP/1"), clientIP(5)), record("b", 1)},
			want:    "ClusterSetIP [http/TCP/80] [IPv4] of [b]", members: "a: !TypeConflict; b: http", reason: "TypeConflict",
		}, {
			name: "first withholds", options: Options{Mode: First},
			records: []Record{record("a", 2, headless), record("b", 1)},
			want:    "none", members: "a: !Conflict; b: !Conflict", reason: "TypeConflict",
		}, {
			name:    "first does not mind ports that only add up (first KEP: superset)",
			options: Options{Mode: First},
			records: []Record{record("a", 1), record("b", 2, ports("http/TCP/80", "dns/UDP/53"))},
			want:    "ClusterSetIP [http/TCP/80 dns/UDP/53] [IPv4] of [a b]", reason: "PortConflict",
		}, {
			name: "first minds different ports with the same name", options: Options{Mode: First},
			records: []Record{record("a", 1), record("b", 2, ports("http/TCP/81"))}, want: "none", reason: "PortConflict",
		}, {
			name:    "first does not mind cluster selectors, which members of older versions do not have",
			options: Options{Mode: First},
			records: []Record{record("a", 1), record("b", 2, selects("a"))},
			want:    "ClusterSetIP [http/TCP/80] [IPv4] of [a b]", members: "a: http; b: http",
			reason: "ClusterSelectorsConflict",
		}, {
			name: "union in the order of the oldest",
			records: []Record{record("a", 2, ports("https/TCP/443", "http/TCP/80")),
				record("b", 1, ports("http/TCP/80", "dns/UDP/53"))},
			want:    "ClusterSetIP [http/TCP/80 dns/UDP/53 https/TCP/443] [IPv4] of [a b]",
			members: "a: https http; b: http dns", reason: "PortConflict",
		}, {
			name: "lighthouse intersects ports", options: Options{Mode: Lighthouse},
			records: []Record{record("a", 2, ports("https/TCP/443", "http/TCP/80")),
				record("b", 1, ports("http/TCP/80", "dns/UDP/53"))},
			want: "ClusterSetIP [http/TCP/80] [IPv4] of [a b]", members: "a: http; b: http", reason: "PortConflict",
		}, {
			name: "with an empty intersection the ports of the oldest count", options: Options{Mode: Lighthouse},
			records: []Record{record("a", 2, ports("https/TCP/443", "http/TCP/80")), record("b", 3, ports("dns/UDP/53")),
				record("c", 1, ports("https/TCP/443", "x/TCP/1"))},
			want:    "ClusterSetIP [https/TCP/443 x/TCP/1] [IPv4] of [a b c]",
			members: "a: https; b: !PortConflict; c: https x", reason: "PortConflict",
		}, {
			name:    "as sets: the same ports in another order are no conflict",
			records: []Record{record("a", 1, ports("x/TCP/1", "y/TCP/2")), record("b", 2, ports("y/TCP/2", "x/TCP/1"))},
			want:    "ClusterSetIP [x/TCP/1 y/TCP/2] [IPv4] of [a b]", members: "a: x y; b: y x",
		}, {
			name:    "a name with another number is not served by the newer",
			records: []Record{record("a", 1), record("b", 2, ports("http/TCP/8080", "dns/UDP/53"))},
			want:    "ClusterSetIP [http/TCP/80 dns/UDP/53] [IPv4] of [a b]", members: "a: http; b: dns", reason: "PortConflict",
		}, {
			name:    "a number under another name is served, under the older name",
			records: []Record{record("a", 1), record("b", 2, ports("web/TCP/80"))},
			want:    "ClusterSetIP [http/TCP/80] [IPv4] of [a b]", members: "a: http; b: web=http", reason: "PortConflict",
		}, {
			name:    "first by name, then by number",
			records: []Record{record("a", 1, ports("x/TCP/1", "y/TCP/2")), record("b", 2, ports("x/TCP/2", "z/TCP/1"))},
			want:    "ClusterSetIP [x/TCP/1 y/TCP/2] [IPv4] of [a b]", members: "a: x y; b: z=x", reason: "PortConflict",
		}, {
			name:    "the protocol is part of the number",
			records: []Record{record("a", 1, ports("x/TCP/42")), record("b", 2, ports("y/UDP/42"))},
			want:    "ClusterSetIP [x/TCP/42 y/UDP/42] [IPv4] of [a b]", members: "a: x; b: y", reason: "PortConflict",
		}, {
			name:    "a member without any port of the union is withheld",
			records: []Record{record("a", 1), record("b", 2, ports("http/TCP/81"))},
			want:    "ClusterSetIP [http/TCP/80] [IPv4] of [a b]", members: "a: http; b: !PortConflict", reason: "PortConflict",
		}, {
			name:    "Headless services without ports agree",
			records: []Record{record("a", 1, headless, ports()), record("b", 2, headless, ports())},
			want:    "Headless [] [IPv4] of [a b]", members: "a: ; b: ",
		}, {
			name:    "another appProtocol is a conflict, and served",
			records: []Record{record("a", 1, ports("http/TCP/80/h2c")), record("b", 2)},
			want:    "ClusterSetIP [http/TCP/80] [IPv4] of [a b]", members: "a: http; b: http", reason: "PortConflict",
		}, {
			name:    "derived Services need a name for every port",
			records: []Record{record("a", 1, ports("/TCP/80")), record("b", 2, ports("dns/UDP/53"))},
			want:    "ClusterSetIP [TCP/80 dns/UDP/53] [IPv4] of [a b]", members: "a: =tcp-80; b: dns", reason: "PortConflict",
		}, {
			name:    "a port that is alone has the name that it has beside others",
			records: []Record{record("a", 1, ports("/TCP/80"))},
			want:    "ClusterSetIP [TCP/80] [IPv4] of [a]", members: "a: =tcp-80",
		}, {
			name:    "a made-up name gives way to a given one",
			records: []Record{record("a", 1, ports("/TCP/80")), record("b", 2, ports("tcp-80/UDP/53"))},
			want:    "ClusterSetIP [TCP/80 tcp-80/UDP/53] [IPv4] of [a b]", members: "a: =tcp-80-2; b: tcp-80",
			reason: "PortConflict",
		}, {
			name: "without a derived Service the empty name stays", options: Options{VIP: NoVIP},
			records: []Record{record("a", 1, ports("/TCP/80")), record("b", 2, ports("dns/UDP/53"))},
			want:    "ClusterSetIP [TCP/80 dns/UDP/53] [IPv4] of [a b]", members: "a: ; b: dns", reason: "PortConflict",
		}, {
			name:    "families are those of the oldest, in its order; none less for another that lacks one",
			records: []Record{record("a", 1, families(v6, v4)), record("b", 2, families(v4, v6)), record("c", 3, families(v4))},
			want:    "ClusterSetIP [http/TCP/80] [IPv6 IPv4] of [a b c]", members: "a: http; b: http; c: http",
			reason: "IPFamilyConflict",
		}, {
			name:    "nor one more",
			records: []Record{record("a", 1, families(v4)), record("b", 2, families(v6, v4))},
			want:    "ClusterSetIP [http/TCP/80] [IPv4] of [a b]", members: "a: http; b: http",
		}, {
			name: "one that lacks a family is no reason to withhold", options: Options{Mode: First},
			records: []Record{record("a", 1, families(v6, v4)), record("b", 2, families(v4))},
			want:    "ClusterSetIP [http/TCP/80] [IPv6 IPv4] of [a b]", members: "a: http; b: http", reason: "IPFamilyConflict",
		}, {
			name:    "without a family of the oldest a member is left out",
			records: []Record{record("a", 1, families(v6)), record("b", 2, families(v4), ports("x/TCP/1"))},
			want:    "ClusterSetIP [http/TCP/80] [IPv6] of [a]", members: "a: http; b: !IPFamilyConflict",
			reason: "IPFamilyConflict",
		}, {
			name:    "for Headless they are united, and one that is not everywhere is a conflict",
			records: []Record{record("a", 1, headless, families(v6)), record("b", 2, headless, families(v4))},
			want:    "Headless [http/TCP/80] [IPv6 IPv4] of [a b]", members: "a: http; b: http", reason: "IPFamilyConflict",
		}, {
			name:    "nil is Cluster",
			records: []Record{record("a", 1), record("b", 2, policy(corev1.ServiceInternalTrafficPolicyCluster))},
			want:    "ClusterSetIP [http/TCP/80] [IPv4] of [a b]",
		}, {
			name: "reasons in the order of the table",
			records: []Record{
				record("a", 1, families(v4, v6)),
				record("b", 2, headless, ports("x/TCP/1"), clientIP(10), policy("Local"), distribution("PreferClose"),
					label("l", "1"), annotation("a", "1"), families(v6), selects("b")),
				record("c", 3, families(v4)),
			},
			want: "ClusterSetIP [http/TCP/80 x/TCP/1] [IPv4 IPv6] of [a b c]",
			reason: "TypeConflict,PortConflict,SessionAffinityConflict,SessionAffinityConfigConflict,InternalTrafficPolicyConflict," +
				"TrafficDistributionConflict,LabelsConflict,AnnotationsConflict,IPFamilyConflict,ClusterSelectorsConflict",
		}, {
			name: "a default spelled out is no conflict",
			records: []Record{record("a", 1, clientIP(10800)),
				record("b", 2, clientIP(10800), func(s *v1alpha1.ExportedServiceSpec) { s.SessionAffinityConfig = nil })},
			want: "ClusterSetIP [http/TCP/80] [IPv4] of [a b]",
		}, {
			name:    "another service's record counts for nothing",
			records: []Record{record("a", 1, func(s *v1alpha1.ExportedServiceSpec) { s.Name = "web" }), record("b", 2)},
			want:    "ClusterSetIP [http/TCP/80] [IPv4] of [b]",
		}, {
			name: "nor one of no cluster", records: []Record{record("a.b.c", 1), record("b", 2)},
			want: "ClusterSetIP [http/TCP/80] [IPv4] of [b]",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Merge(shop, tt.records, tt.options)
			if s := summary(got); s != tt.want {
				t.Errorf("import = %s, want %s", s, tt.want)
			}
			if s := mapping(got); tt.members != "" && s != tt.members {
				t.Errorf("members = %s, want %s", s, tt.members)
			}
			if want := cmp.Or(tt.reason, "NoConflicts"); reasonsOf(got) != want {
				t.Errorf("reason = %s, want %s", reasonsOf(got), want)
			}
		})
	}
}

// docs/spec/controller.md 4.2: min(max(claimed, admission), creation of the record), ties by cluster id.
func TestPrecedence(t *testing.T) {
	at := func(cluster string, claimed, admitted, created int) Record {
		r := record(cluster, claimed)
		r.Admitted, r.Created = hour(admitted), hour(created)
		return r
	}
	pending := record("a", 1)
	pending.Created = metav1.Time{}
	for _, tt := range []struct {
		name    string
		records []Record
		want    string
	}{
		{name: "older claim", records: []Record{at("b", 1, 0, 9), at("a", 2, 0, 3)}, want: "b"},
		{name: "equal times: lower cluster id", records: []Record{at("b", 1, 0, 9), at("a", 1, 0, 9)}, want: "a"},
		{name: "equal times: a dotted id", records: []Record{at("a.b", 1, 0, 9), at("a-b", 1, 0, 9)}, want: "a-b"},
		{name: "nobody backdates past their admission", records: []Record{at("a", 1, 7, 9), at("b", 6, 0, 9)}, want: "b"},
		{name: "a clock that runs ahead does not hurt", records: []Record{at("a", 20, 0, 3), at("b", 4, 0, 5)}, want: "a"},
		{name: "what the broker does not have yet comes last", records: []Record{pending, at("b", 8, 0, 9)}, want: "b"},
	} {
		if got := Merge(shop, tt.records, Options{}).Oldest; got != tt.want {
			t.Errorf("%s: oldest = %s, want %s", tt.name, got, tt.want)
		}
	}
}

// docs/spec/controller.md 6.2: one sentence for each reason, in the words of KEP-1645.
func TestSentences(t *testing.T) {
	cluster := func(i int) string { return fmt.Sprintf("cluster-%d", i) }
	var five []Record
	for i := 1; i <= 5; i++ {
		five = append(five, record(cluster(i), i))
	}
	headless(&five[2].Spec)
	headless(&five[4].Spec)
	want := `Conflicting type. Using "ClusterSetIP" from oldest service export in "cluster-1". 2/5 clusters disagree. [conflict-type]`
	if got := Condition(Merge(shop, five, Options{}).Conflicts, 3); got.Message != want ||
		got.Status != metav1.ConditionTrue ||
		got.Type != "Conflict" || got.ObservedGeneration != 3 {
		t.Errorf("condition = %+v, want true with the message %s", got, want)
	}
	for _, tt := range []struct {
		name  string
		with  []func(*v1alpha1.ExportedServiceSpec)
		older []func(*v1alpha1.ExportedServiceSpec)
		opts  Options
		want  string
	}{
		{name: "ports", with: opts(ports("web/TCP/80", "dns/UDP/53")),
			want: `Conflicting ports. Using the union "http/TCP/80, dns/UDP/53", by precedence from oldest service export in "a". 2/2 clusters disagree. [conflict-ports]`},
		{name: "ports of a member that serves none", with: opts(ports("http/TCP/81")),
			want: `Conflicting ports. Using the union "http/TCP/80", by precedence from oldest service export in "a". 1/2 clusters disagree. Left out: "b". [conflict-ports]`},
		{name: "families", older: opts(families(v4, v6)), with: opts(headless, families(v6)), opts: Options{Mode: Lighthouse},
			want: `Conflicting type. Using "ClusterSetIP" from oldest service export in "a". 1/2 clusters disagree. Left out: "b". [conflict-type]`},
		{name: "a family that one lacks", older: opts(families(v4, v6)), with: opts(families(v6)),
			want: `Conflicting IP families. Using "IPv4, IPv6" from oldest service export in "a". 1/2 clusters disagree. Not reached by IPv4: "b". [conflict-families]`},
		{name: "affinity", with: opts(clientIP(7)),
			want: `Conflicting session affinity. Using "None" from oldest service export in "a". 1/2 clusters disagree. ` +
				`Conflicting session affinity config. Using "none" from oldest service export in "a". 1/2 clusters disagree. [conflict-properties]`},
		{name: "affinity config", older: opts(clientIP(8)), with: opts(clientIP(7)),
			want: `Conflicting session affinity config. Using "8s" from oldest service export in "a". 1/2 clusters disagree. [conflict-properties]`},
		{name: "labels", older: opts(label("b", "2"), label("a", "1")), with: opts(label("a", "1")),
			want: `Conflicting labels. Using "a=1, b=2" from oldest service export in "a". 1/2 clusters disagree. [conflict-properties]`},
		{name: "long annotations are cut", older: opts(annotation("a", strings.Repeat("ü", 100))),
			want: `Conflicting annotations. Using "a=` + strings.Repeat("ü", 39) + `..." from oldest service export in "a". 1/2 clusters disagree. [conflict-properties]`},
		{name: "cluster selectors of the newer", with: opts(selects("b")),
			want: `Conflicting cluster selectors. Using "none" from oldest service export in "a". 1/2 clusters disagree. [conflict-properties]`},
		{name: "cluster selectors in another order", older: opts(selects("a", "b")), with: opts(selects("b", "a")),
			want: `Conflicting cluster selectors. Using "[{\"propertySelector\":{\"matchProperties\":{\"cluster.clusterset.k8s.io\":\"a\",\"tier\":..." ` +
				`from oldest service export in "a". 1/2 clusters disagree. [conflict-properties]`},
		{name: "withheld", opts: Options{Mode: First}, with: opts(distribution("PreferClose")),
			want: `Conflicting traffic distribution. Service withheld, not using "none" from oldest service export in "a". 1/2 clusters disagree. [conflict-properties]`},
	} {
		got := Condition(Merge(shop, []Record{record("b", 2, tt.with...), record("a", 1, tt.older...)}, tt.opts).Conflicts, 0)
		if got.Message != tt.want {
			t.Errorf("%s: message = %s\nwant %s", tt.name, got.Message, tt.want)
		}
	}
}

func opts(f ...func(*v1alpha1.ExportedServiceSpec)) []func(*v1alpha1.ExportedServiceSpec) { return f }

// docs/spec/controller.md 9.4: the annotations of an import have a limit together, in octets; a record may have as many
// characters.
func TestAnnotationsAreBounded(t *testing.T) {
	var all []func(*v1alpha1.ExportedServiceSpec)
	for i := range 6 {
		all = append(all, annotation(fmt.Sprintf("key-%d", i), strings.Repeat("ü", broker.MaxValue)))
	}
	imp := Merge(shop, []Record{record("a", 1, append(all, annotation("small", "1"))...)}, Options{}).Import
	var size int
	for key, value := range imp.Annotations {
		size += len(key) + len(value)
	}
	if size > broker.MaxAnnotations || len(imp.Annotations) != 4 || imp.Annotations["small"] != "1" {
		t.Errorf("%d annotations of %d octets, want the first 3 and the small one, at most %d octets", len(imp.Annotations),
			size, broker.MaxAnnotations)
	}
}

// docs/spec/controller.md 5.4: all fields of the import.
func TestImport(t *testing.T) {
	old := record("west", 1, ports("http/TCP/80/h2c"), clientIP(60), policy("Local"), distribution("PreferClose"),
		label("tier", "gold"), annotation("example.org/a", "b"))
	got := Merge(shop, []Record{record("east", 2), old}, Options{}).Import
	want := `{"kind":"ServiceImport","apiVersion":"multicluster.x-k8s.io/v1beta1","metadata":{"name":"db","namespace":"shop",` +
		`"labels":{"app.kubernetes.io/managed-by":"controller.clusterset-dns.io","tier":"gold"},"annotations":{"example.org/a":"b"}},` +
		`"spec":{"ports":[{"name":"http","protocol":"TCP","appProtocol":"h2c","port":80}],"type":"ClusterSetIP",` +
		`"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":60}},"ipFamilies":["IPv4"],` +
		`"internalTrafficPolicy":"Local","trafficDistribution":"PreferClose"},` +
		`"status":{"clusters":[{"cluster":"east"},{"cluster":"west"}]}}`
	text, err := json.Marshal(got)
	if err != nil || string(text) != want {
		t.Errorf("import = %s, %v\nwant %s", text, err, want)
	}
	if text, _ := json.Marshal(Merge(shop, []Record{record("a", 1, headless, ports())},
		Options{}).Import.Spec.Ports); string(text) != "[]" {
		t.Errorf("ports = %s, want [], never null", text)
	}
}

// docs/spec/selection.md 1.1: the oldest export decides, and the same selectors in another order of properties agree.
func TestSelectors(t *testing.T) {
	old, same := record("west", 1, selects("west")), record("east", 2, selects("west"))
	slices.Reverse(same.Spec.ClusterSelectors[0].MatchProperties)
	r := Merge(shop, []Record{same, old}, Options{})
	if !reflect.DeepEqual(r.Selectors, old.Spec.ClusterSelectors) || len(r.Conflicts) > 0 {
		t.Errorf("selectors = %v, conflicts %v; want those of the oldest, and none", r.Selectors, r.Conflicts)
	}
	r.Selectors[0].MatchProperties[0].Value = "changed"
	if old.Spec.ClusterSelectors[0].MatchProperties[0].Value == "changed" {
		t.Error("the result shares memory with the record")
	}
	if r := Merge(shop, []Record{record("west", 1), record("east", 2, selects("east"))}, Options{}); len(r.Selectors) > 0 {
		t.Errorf("selectors = %v, want none, as the oldest has none", r.Selectors)
	}
	bad := record("west", 1, selects(""))
	if r := Merge(shop, []Record{bad, record("east", 2)}, Options{}); len(r.Rejected) != 1 || r.Oldest != "east" {
		t.Errorf("rejected %v, oldest %s; want the record of west rejected", r.Rejected, r.Oldest)
	}
}

func TestRejected(t *testing.T) {
	twin := record("b", 5, headless)
	records := []Record{
		record("b", 2), twin, record("UPPER", 1), record("c", 1, ports("x/TCP/0")),
		record("d", 1, label("a.kubernetes.io/b", "c")),
		record("e", 1, func(s *v1alpha1.ExportedServiceSpec) { s.Namespace = "kube-system" }),
		record("f", 1, ports(slices.Repeat([]string{"x/TCP/1"}, broker.MaxPorts+1)...)),
	}
	got := Merge(shop, records, Options{})
	if s := summary(got); s != "ClusterSetIP [http/TCP/80] [IPv4] of [b]" {
		t.Errorf("import = %s, want that of the record that counts", s)
	}
	var reasons []string
	for _, r := range got.Rejected {
		if r.Object != "db.shop" || r.Detail == "" {
			t.Errorf("rejection = %+v, want object and detail", r)
		}
		reasons = append(reasons, r.Cluster+":"+string(r.Reason))
	}
	want := []string{"UPPER:cluster_id", "b:duplicate", "c:record", "d:record", "e:name", "f:record"}
	if !slices.Equal(reasons, want) {
		t.Errorf("rejected = %v, want %v", reasons, want)
	}
}

// Rejected records and rejected clusterset IPs are found one after the other, and listed by cluster.
func TestRejectedInOrder(t *testing.T) {
	got := Merge(shop, []Record{record("z", 1, ports("x/TCP/0")), record("b", 2, vip(true))},
		Options{VIP: CIDR, VIPs: VIPs{Pools: pools(), Claims: claims("a 243.9.0.1 1")}})
	if len(got.Rejected) != 2 || got.Rejected[0].Cluster != "a" || got.Rejected[1].Cluster != "z" {
		t.Errorf("rejected = %v, want that of a, then that of z", got.Rejected)
	}
}

func TestResultSharesNoMemory(t *testing.T) {
	records := []Record{record("a", 1, ports("http/TCP/80/h2c"), clientIP(9), policy("Local"),
		distribution("PreferClose"))}
	before, _ := json.Marshal(records)
	r := Merge(shop, records, Options{})
	*r.Import.Spec.Ports[0].AppProtocol, *r.Import.Spec.TrafficDistribution = "changed", "changed"
	*r.Import.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, *r.Import.Spec.InternalTrafficPolicy = 1, "changed"
	r.Import.Spec.IPFamilies[0], *r.Members[0].Ports[0].AppProtocol = "changed", "changed"
	if after, _ := json.Marshal(records); string(after) != string(before) {
		t.Errorf("records = %s after a change of the result, want %s", after, before)
	}
}

func TestConditionWithoutConflict(t *testing.T) {
	got := Condition(nil, 1)
	want := metav1.Condition{
		Type: "Conflict", Status: "False", Reason: string(mcsv1beta1.ServiceExportReasonNoConflicts), ObservedGeneration: 1,
		Message: "All service exports agree.",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("condition = %+v, want %+v", got, want)
	}
}

// docs/spec/controller.md 3.3: a record of an older member may have keys that no longer travel.
func TestReservedKeysAreLeftOut(t *testing.T) {
	r := Merge(shop, []Record{record("a", 1, label("tier", "gold"), label("helm.sh/chart", "x"), annotation("note", "n"),
		annotation("argocd.argoproj.io/tracking-id", "x"))}, Options{})
	if l, a := r.Import.Labels, r.Import.Annotations; l["tier"] != "gold" || l["helm.sh/chart"] != "" || len(a) != 1 ||
		a["note"] != "n" {
		t.Errorf("labels %v and annotations %v, want tier and note without the reserved ones", l, a)
	}
}
