package merge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// A generator makes exports that meet often: few names, few numbers, few times.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 1))} }

func pick[T any](g generator, values ...T) T { return values[g.IntN(len(values))] }

var clusters = []string{"a", "b", "c.d", "east", "west"}

func (g generator) record(cluster string) Record {
	r := record(cluster, g.IntN(5))
	r.Admitted, r.Created = hour(g.IntN(3)), hour(g.IntN(6))
	if g.IntN(10) == 0 {
		r.Created = metav1.Time{}
	}
	s := &r.Spec
	s.Type = pick(g, v1alpha1.ClusterSetIP, v1alpha1.ClusterSetIP, v1alpha1.Headless)
	s.IPFamilies = pick(g, [][]corev1.IPFamily{{v4}, {v6}, {v4, v6}, {v6, v4}}...)
	s.Ports = nil
	for range g.IntN(4) {
		p := v1alpha1.ServicePort{
			Name: pick(g, "", "http", "dns"), Protocol: pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP),
			Port:        int32(1 + g.IntN(3)),
			AppProtocol: pick(g, nil, nil, ptr("h2c")),
		}
		s.Ports = append(s.Ports, p)
		if s.Validate() != nil {
			s.Ports = s.Ports[:len(s.Ports)-1]
		}
	}
	if g.IntN(3) == 0 {
		clientIP(pick[int32](g, 10, 20))(s)
	}
	s.TrafficDistribution = pick(g, nil, nil, ptr("PreferClose"))
	s.InternalTrafficPolicy = pick(g, nil, ptr(corev1.ServiceInternalTrafficPolicyCluster),
		ptr(corev1.ServiceInternalTrafficPolicyLocal))
	for _, f := range []func(*v1alpha1.ExportedServiceSpec){label("x", "1"), label("y", "2"), annotation("x", "1")} {
		if g.IntN(3) == 0 {
			f(s)
		}
	}
	s.VIP = pick(g, nil, &v1alpha1.VIP{}, &v1alpha1.VIP{Wanted: true})
	return r
}

// address is in the VIP CIDR of a cluster.
func (g generator) address(by int) netip.Addr {
	if g.IntN(3) == 0 {
		return netip.MustParseAddr(fmt.Sprintf("fd17:87d8:f436:%d::%d", by, 1+g.IntN(2)))
	}
	return netip.MustParseAddr(fmt.Sprintf("243.%d.0.%d", by, 1+g.IntN(2)))
}

func (g generator) records() []Record {
	var records []Record
	for _, cluster := range clusters[:g.IntN(len(clusters)+1)] {
		records = append(records, g.record(cluster))
	}
	if len(records) > 0 && g.IntN(5) == 0 {
		records = append(records, g.record(records[0].Cluster)) // a second one of a cluster
	}
	return records
}

func (g generator) options() Options {
	o := Options{Mode: pick(g, "", KEP, Lighthouse, First), VIP: pick(g, Derived, CIDR, NoVIP)}
	o.VIPNetworks = pick(g, VIPNetworks{}, DefaultVIPNetworks)
	v := &o.VIPs
	v.Stamps = make(map[string]int64)
	for i, cluster := range clusters {
		v.Pools = append(v.Pools, Pool{Cluster: cluster, Prefix: netip.MustParsePrefix(fmt.Sprintf("243.%d.0.0/16", i))},
			Pool{Cluster: cluster, Prefix: netip.MustParsePrefix(fmt.Sprintf("fd17:87d8:f436:%d::/64", i))})
		v.Stamps[cluster] = int64(g.IntN(3))
		if g.IntN(2) == 0 {
			v.Claims = append(v.Claims, Claim{Address{IP: g.address(g.IntN(len(clusters))), Cluster: cluster,
				Stamp: v.Stamps[cluster]}, hour(g.IntN(5)), hour(g.IntN(2)), pick(g, metav1.Time{}, hour(2+g.IntN(4)))})
		}
		if g.IntN(6) == 0 {
			v.Has = append(v.Has, Address{g.address(i), cluster, int64(g.IntN(3)), g.IntN(2) == 0})
		}
		if g.IntN(6) == 0 {
			v.Removed, v.Taken = append(v.Removed, cluster), append(v.Taken, g.address(i))
		}
	}
	return o
}

// slices returns those that a cluster offers; some are not worth having.
func (g generator) slices(cluster string) []*discoveryv1.EndpointSlice {
	var list []*discoveryv1.EndpointSlice
	for i := range g.IntN(3) {
		s := slice(cluster, fmt.Sprintf("%s-%d", cluster, i),
			pick(g, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6))
		for range g.IntN(3) {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{pick(g, "10.1.0.1", "fd00:1::1", "127.0.0.1", "8.8.8.8")},
				Conditions: discoveryv1.EndpointConditions{Ready: pick(g, nil, ptr(true), ptr(false))},
			})
		}
		for _, name := range []string{"", "http", "dns"} {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: ptr[int32](8080),
				Protocol: ptr(pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP))})
		}
		list = append(list, s)
	}
	return list
}

func slice(cluster, source string, family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: broker.SliceName(shop.Namespace, shop.Name, source),
			Labels: map[string]string{
				"multicluster.kubernetes.io/service-name":   shop.Name,
				"multicluster.kubernetes.io/source-cluster": cluster,
				broker.LabelSourceNamespace:                 shop.Namespace,
			},
		},
		AddressType: family,
	}
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// docs/spec/controller.md 4.1: any permutation of the records and claims gives the same bytes.
func TestAnyOrderGivesTheSameBytes(t *testing.T) {
	for seed := range uint64(2000) {
		g := newGenerator(seed)
		records, o := g.records(), g.options()
		want := mustJSON(t, Merge(shop, records, o))
		for range 5 {
			g.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
			g.Shuffle(len(o.VIPs.Claims), func(i, j int) {
				o.VIPs.Claims[i], o.VIPs.Claims[j] = o.VIPs.Claims[j],
					o.VIPs.Claims[i]
			})
			if got := mustJSON(t, Merge(shop, records, o)); got != want {
				t.Fatalf("seed %d: %s\nin another order %s", seed, want, got)
			}
		}
	}
}

// docs/spec/controller.md 4.2: "oldest wins" means that nothing newer, present or not, changes what the oldest decides.
func TestRemovingTheNewestNeverChangesTheWinner(t *testing.T) {
	for seed := range uint64(2000) {
		g := newGenerator(seed)
		records, o := g.records(), Options{Mode: pick(g, KEP, Lighthouse)}
		entries, _ := admit(shop, records)
		if len(entries) < 2 {
			continue
		}
		all := Merge(shop, records, o)
		newest := entries[len(entries)-1].Cluster
		rest := Merge(shop, slices.DeleteFunc(records, func(r Record) bool { return r.Cluster == newest }), o)
		if rest.Oldest != all.Oldest {
			t.Fatalf("seed %d: oldest = %s without %s, want %s", seed, rest.Oldest, newest, all.Oldest)
		}
		a, b := all.Import, rest.Import
		for _, pair := range [][2]any{
			{a.Spec.Type, b.Spec.Type}, {a.Spec.SessionAffinity, b.Spec.SessionAffinity},
			{a.Spec.SessionAffinityConfig, b.Spec.SessionAffinityConfig},
			{a.Spec.InternalTrafficPolicy, b.Spec.InternalTrafficPolicy},
			{a.Spec.TrafficDistribution, b.Spec.TrafficDistribution}, {a.Labels, b.Labels}, {a.Annotations, b.Annotations},
		} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				t.Fatalf("seed %d: %v with %s, %v without", seed, pair[0], newest, pair[1])
			}
		}
	}
}

// docs/spec/controller.md 4.3: every import obeys the rules of a Service: no name twice, and no protocol and number
// twice.
func TestPortsOfEveryImportAreThoseOfAService(t *testing.T) {
	for seed := range uint64(5000) {
		g := newGenerator(seed)
		r := Merge(shop, g.records(), g.options())
		if r.Import == nil {
			continue
		}
		names, numbers := map[string]bool{}, map[string]bool{}
		for i, p := range r.Import.Spec.Ports {
			number := fmt.Sprint(p.Protocol, p.Port)
			if names[p.Name] || numbers[number] {
				t.Fatalf("seed %d: ports = %v, want each name and number once", seed, r.Import.Spec.Ports)
			}
			names[p.Name], numbers[number] = true, true
			if slices.Contains(r.portNames[:i], r.portNames[i]) {
				t.Fatalf("seed %d: names in the derived Service = %q, want each once", seed, r.portNames)
			}
		}
		if len(r.Import.Spec.IPFamilies) == 0 {
			t.Fatalf("seed %d: no families", seed)
		}
	}
}

// A clusterset is what a member of the clusterset sees, and what it has written for it.
type clusterset struct {
	records  map[string]Record
	sources  map[string][]*discoveryv1.EndpointSlice
	existing Objects
}

// step applies one operation of a cluster and lets the importer catch up, as in docs/spec/controller.md 10.2: compare,
// then write.
func (w *clusterset) step(t *testing.T, cluster string, op operation, o Options) {
	t.Helper()
	w.records[cluster], w.sources[cluster] = op.record, op.slices
	if op.unexport {
		delete(w.records, cluster)
		delete(w.sources, cluster)
	}
	desired := w.desired(o)
	w.existing.apply(Diff(desired, w.existing))
	if again := Diff(desired, w.existing); !again.Empty() {
		t.Fatalf("after its own changes the diff is %s, want none", mustJSON(t, again))
	}
}

func (w *clusterset) desired(o Options) Objects {
	var records []Record
	c := Cluster{Families: []corev1.IPFamily{v4, v6}}
	for cluster, r := range w.records { // in any order
		records = append(records, r)
		c.Sources = append(c.Sources, Source{
			Cluster: cluster, Slices: w.sources[cluster], Local: cluster == "a",
			Declared: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		})
	}
	desired, _ := Desired(Merge(shop, records, o), c)
	return desired
}

// An operation is what one cluster does to its export.
type operation struct {
	unexport bool
	record   Record
	slices   []*discoveryv1.EndpointSlice
}

// Any interleaving of 200 operations of 5 clusters ends in the same bytes: nothing that was there before is left over.
func TestAnyInterleavingEndsInTheSameBytes(t *testing.T) {
	for seed := range uint64(tier.Size(3, 10)) {
		g := newGenerator(seed)
		o := g.options()
		todo := map[string][]operation{}
		for _, cluster := range clusters {
			for range 200 / len(clusters) {
				todo[cluster] = append(todo[cluster], operation{
					unexport: g.IntN(4) == 0, record: g.record(cluster), slices: g.slices(cluster),
				})
			}
		}
		var want string
		for round := range 6 {
			w := clusterset{records: map[string]Record{}, sources: map[string][]*discoveryv1.EndpointSlice{}}
			next := map[string]int{}
			for _, cluster := range g.interleaving() {
				w.step(t, cluster, todo[cluster][next[cluster]], o)
				next[cluster]++
			}
			got, direct := stripped(t, w.existing), stripped(t, w.desired(o))
			if round == 0 {
				want = got
			}
			if got != want {
				t.Fatalf("seed %d: %s\nin another interleaving %s", seed, want, got)
			}
			if direct != got {
				t.Fatalf("seed %d: %s\nmade at once %s", seed, got, direct)
			}
		}
	}
}

// interleaving returns the cluster of each of 200 operations.
func (g generator) interleaving() []string {
	turns := slices.Repeat(clusters, 200/len(clusters))
	g.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
	return turns
}

// stripped shows objects without what only an API server fills in.
func stripped(t *testing.T, o Objects) string {
	t.Helper()
	strip := func(m metav1.Object) {
		m.SetUID("")
		m.SetResourceVersion("")
		m.SetManagedFields(nil)
	}
	if o.Import != nil {
		o.Import = o.Import.DeepCopy()
		strip(o.Import)
	}
	if o.Service != nil {
		o.Service = o.Service.DeepCopy()
		strip(o.Service)
		// They are a matter of history, too: the primary family of a Service cannot change.
		o.Service.Spec.IPFamilies, o.Service.Spec.IPFamilyPolicy = nil, nil
	}
	var list []*discoveryv1.EndpointSlice
	for _, s := range o.Slices {
		s = s.DeepCopy()
		strip(s)
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	o.Slices = list
	return mustJSON(t, o)
}

// apply does to objects what an API server does by server-side apply, with one field manager.
func (o *Objects) apply(c Changes) {
	if c.Delete.Import != nil {
		o.Import = nil
	}
	if c.Delete.Service != nil {
		o.Service = nil
	}
	o.Slices = slices.DeleteFunc(o.Slices, func(s *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(c.Delete.Slices, func(d *discoveryv1.EndpointSlice) bool { return d.Name == s.Name })
	})
	for _, write := range []Objects{c.Create, c.Update} {
		if write.Import != nil {
			o.Import = write.Import.DeepCopy()
			own(o.Import)
		}
		if write.Service != nil {
			o.Service = write.Service.DeepCopy()
			own(o.Service)
		}
		for _, s := range write.Slices {
			o.Slices = slices.DeleteFunc(o.Slices, func(e *discoveryv1.EndpointSlice) bool { return e.Name == s.Name })
			o.Slices = append(o.Slices, s.DeepCopy())
		}
	}
	if c.Status != nil {
		o.Import.Status = *c.Status.Status.DeepCopy()
	}
	if c.ServiceStatus != nil {
		o.Service.Status = *c.ServiceStatus.Status.DeepCopy()
	}
}

// own notes that all labels and annotations were set by us.
func own(m metav1.Object) {
	keys := func(m map[string]string) map[string]any {
		fields := map[string]any{".": map[string]any{}}
		for key := range m {
			fields["f:"+key] = map[string]any{}
		}
		return fields
	}
	text, err := json.Marshal(map[string]any{"f:metadata": map[string]any{
		"f:labels": keys(m.GetLabels()), "f:annotations": keys(m.GetAnnotations()),
	}})
	if err != nil {
		panic(err)
	}
	m.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: wellknown.ManagerImporter,
		FieldsV1: metav1.NewFieldsV1(string(text))}})
}

// FuzzMerge decodes anything into records and slices. Whatever it is, nothing panics, what comes out is no larger than
// what went in allows, the order of the records does not matter, and the import is one that an API server takes.
func FuzzMerge(f *testing.F) {
	for seed := range uint64(20) {
		g := newGenerator(seed)
		records := g.records()
		var offered []*discoveryv1.EndpointSlice
		for _, r := range records {
			offered = append(offered, g.slices(r.Cluster)...)
		}
		f.Add([]byte(mustJSON(f, records)), []byte(mustJSON(f, offered)), uint8(seed))
	}
	f.Fuzz(func(t *testing.T, text, offered []byte, seed uint8) {
		var records []Record
		var list []*discoveryv1.EndpointSlice
		_ = json.Unmarshal(text, &records) // as far as it goes
		_ = json.Unmarshal(offered, &list)
		o := newGenerator(uint64(seed)).options()
		r := Merge(shop, records, o)
		rejected := len(r.Rejected)
		for _, rejection := range r.Rejected {
			if rejection.Reason == AlienVIP { // no record, but a claim
				rejected--
			}
		}
		if len(r.Members)+rejected != len(records) {
			t.Fatalf("%d members and %d rejected of %d records", len(r.Members), rejected, len(records))
		}
		for _, rejection := range r.Rejected {
			if len(rejection.Detail) > 1000 {
				t.Fatalf("detail of %d octets", len(rejection.Detail))
			}
		}
		if c := Condition(r.Conflicts, 1); len(c.Message) > 32768 || len(c.Reason) > 1024 {
			t.Fatalf("condition of %d octets, reason of %d", len(c.Message), len(c.Reason))
		}
		slices.Reverse(records)
		if a, b := mustJSON(t, r), mustJSON(t, Merge(shop, records, o)); a != b {
			t.Fatalf("%s\nreversed %s", a, b)
		}
		for _, m := range r.Members {
			imported, rejected := r.Slices(Source{Cluster: m.Cluster, Slices: list,
				Declared: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
			checkImported(t, imported)
			if len(imported) > len(list) || len(rejected) > 5*len(list) {
				t.Fatalf("%d imported and %d rejected of %d slices", len(imported), len(rejected), len(list))
			}
		}
	})
}

func checkImported(t *testing.T, imported []*discoveryv1.EndpointSlice) {
	t.Helper()
	for _, s := range imported {
		if len(s.Endpoints) > broker.MaxEndpoints || len(s.Ports) > broker.MaxPorts || s.Namespace != shop.Namespace {
			t.Fatalf("slice %s/%s with %d endpoints and %d ports", s.Namespace, s.Name, len(s.Endpoints), len(s.Ports))
		}
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				if addr := netip.MustParseAddr(text); !netip.MustParsePrefix("10.0.0.0/8").Contains(addr) {
					t.Fatalf("address %s was imported", addr)
				}
			}
		}
	}
}
