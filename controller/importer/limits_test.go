package importer

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

func emptyLimits(services, endpoints, ofService, addresses, members int) *limits {
	return &limits{
		services: services, endpoints: endpoints, ofService: ofService,
		addresses: func() int { return addresses }, members: func() int { return members },
		records: func(string) int { return 0 },
		held:    make(map[types.NamespacedName]map[string]contribution), byCluster: make(map[string]usage),
		inNamespace: make(map[clusterNamespace]int),
		turns:       make(map[string]*turns),
	}
}

func inNamespace(namespace string, n int) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("s", n)}
}

func noCluster(string) bool    { return false }
func everyCluster(string) bool { return true }

// docs/spec/controller.md 9.6: one member has at most half, and its equal share also where others have filled all.
func TestLimitsOfServices(t *testing.T) {
	l := emptyLimits(40, 0, 0, 0, 4)
	admitted := func(cluster string) (n int) {
		for i := range 100 {
			if l.admit(inNamespace(cluster, i), cluster, false, false) == "" {
				n++
			}
		}
		return n
	}
	for _, tt := range []struct {
		cluster string
		want    int
	}{{"mallory", 20}, {"trudy", 20}, {"west", 10}, {"north", 10}, {"mallory", 20}} {
		if got := admitted(tt.cluster); got != tt.want {
			t.Errorf("%s has %d services, want %d", tt.cluster, got, tt.want)
		}
	}
	l.release(inNamespace("west", 0), noCluster)
	if why := l.admit(inNamespace("west", 50), "west", false, false); why == "" {
		t.Error("west has 11 services, want 10")
	}
	l.release(inNamespace("west", 0), everyCluster)
	if why := l.admit(inNamespace("west", 50), "west", false, false); why != "" {
		t.Errorf("west has 9 services, and one more is rejected: %s", why)
	}
	// A service that is imported costs the total nothing.
	if why := l.admit(inNamespace("mallory", 0), "north", false, false); why == "" {
		t.Error("north has 11 services, want 10")
	}
	l.members = func() int { return 1 }
	if why := l.admit(inNamespace("mallory", 0), "north", false, false); why != "" {
		t.Errorf("a service that is imported is rejected for another exporter: %s", why)
	}
}

func TestLimitsOfAddresses(t *testing.T) {
	l := emptyLimits(1000, 0, 0, 40, 2)
	admitted := func(cluster, namespace string) (n int) {
		for i := range 100 {
			if l.admit(inNamespace(namespace, i), cluster, false, true) == "" {
				n++
			}
		}
		return n
	}
	for _, tt := range []struct {
		cluster, namespace string
		want               int
	}{{"mallory", "a", 10}, {"mallory", "b", 10}, {"mallory", "c", 0}, {"west", "d", 10}, {"west", "e", 10}} {
		if got := admitted(tt.cluster, tt.namespace); got != tt.want {
			t.Errorf("%s got %d cluster IPs in namespace %s, want %d", tt.cluster, got, tt.namespace, tt.want)
		}
	}
	// Another exporter of a service with an address takes no other, also beyond its own limit.
	if why := l.admit(inNamespace("a", 0), "west", true, false); why != "" {
		t.Errorf("an import that has an address is rejected: %s", why)
	}
	if why := l.admit(inNamespace("c", 0), "mallory", false, false); why != "" {
		t.Errorf("an import that needs no address is rejected: %s", why)
	}
	for _, tt := range []struct {
		networks string
		want     int
	}{{"10.96.0.0/16", 1 << 15}, {"10.96.0.0/24 10.97.0.0/24", 256}, {"fd00::/108 10.96.0.0/20", 1 << 11},
		{"fd00::/64", 1<<31 - 1}, {"", 1<<31 - 1}} {
		if got := addressLimit(prefixes(t, tt.networks)); got != tt.want {
			t.Errorf("of %q imports may take %d addresses, want %d", tt.networks, got, tt.want)
		}
	}
}

func prefixes(t *testing.T, text string) (all []netip.Prefix) {
	t.Helper()
	for _, field := range strings.Fields(text) {
		p, err := netip.ParsePrefix(field)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func TestLimitsOfEndpoints(t *testing.T) {
	l := emptyLimits(1000, 100, 40, 0, 2)
	slice := func(name string, age time.Duration, n int) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
			Endpoints:  make([]discoveryv1.Endpoint, n),
		}
	}
	old, young := slice("z", time.Hour, 15), slice("a", time.Minute, 10)
	for _, tt := range []struct {
		name     string
		svc      int
		cluster  string
		slices   []*discoveryv1.EndpointSlice
		rejected []*discoveryv1.EndpointSlice
	}{
		{name: "the newest does not fit into half of a service", svc: 1, cluster: "mallory",
			slices:   []*discoveryv1.EndpointSlice{young, old},
			rejected: []*discoveryv1.EndpointSlice{young}},
		{name: "the same again", svc: 1, cluster: "mallory", slices: []*discoveryv1.EndpointSlice{young, old},
			rejected: []*discoveryv1.EndpointSlice{young}},
		{name: "another member has as much", svc: 1, cluster: "west", slices: []*discoveryv1.EndpointSlice{old}},
		{name: "a second service", svc: 2, cluster: "mallory", slices: []*discoveryv1.EndpointSlice{old}},
		{name: "a third", svc: 3, cluster: "mallory", slices: []*discoveryv1.EndpointSlice{old}},
		{name: "beyond half of all", svc: 4, cluster: "mallory", slices: []*discoveryv1.EndpointSlice{young},
			rejected: []*discoveryv1.EndpointSlice{young}},
		{name: "others are not affected", svc: 4, cluster: "west", slices: []*discoveryv1.EndpointSlice{young}},
	} {
		svc := inNamespace("shop", tt.svc)
		if why := l.admit(svc, tt.cluster, false, false); why != "" {
			t.Fatal(why)
		}
		fits, rejected := l.fit(svc, tt.cluster, tt.slices)
		if !slices.Equal(rejected, tt.rejected) || len(fits)+len(rejected) != len(tt.slices) {
			t.Errorf("%s: %d slices fit, %v are rejected, want %v", tt.name, len(fits), rejected, tt.rejected)
		}
	}
	l.endpoints, l.ofService = 10, 10 // as of another version
	svc := inNamespace("shop", 1)
	if _, rejected := l.fit(svc, "west", []*discoveryv1.EndpointSlice{old}); len(rejected) > 0 {
		t.Errorf("%d slices that are imported are rejected beyond a new limit, want none", len(rejected))
	}
	if _, rejected := l.fit(svc, "west", []*discoveryv1.EndpointSlice{old, young}); !slices.Equal(rejected,
		[]*discoveryv1.EndpointSlice{young}) {
		t.Errorf("beside what is imported, %v are rejected beyond a new limit, want the newer slice", rejected)
	}
}

// The sums always match the held services, and no limit is exceeded by more than the equal shares.
func TestLimitsCount(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	l := emptyLimits(20, 60, 30, 16, 3)
	for step := range 5_000 {
		svc, cluster := inNamespace(fmt.Sprint("n", random.IntN(3)), random.IntN(12)), fmt.Sprint("c", random.IntN(3))
		switch random.IntN(3) {
		case 0:
			l.release(svc, func(c string) bool { return c == cluster })
		default:
			if l.admit(svc, cluster, l.hasAddress(svc), random.IntN(2) == 0) == "" {
				l.fit(svc, cluster, []*discoveryv1.EndpointSlice{{Endpoints: make([]discoveryv1.Endpoint, random.IntN(9))}})
			}
		}
		counted := emptyLimits(0, 0, 0, 0, 0)
		for svc, of := range l.held {
			for cluster, c := range of {
				counted.set(svc, cluster, c)
			}
		}
		if counted.total != l.total || !reflect.DeepEqual(counted.byCluster, l.byCluster) ||
			!reflect.DeepEqual(counted.inNamespace, l.inNamespace) {
			t.Fatalf("step %d: counted %+v %v %v, want %+v %v %v", step, l.total, l.byCluster, l.inNamespace, counted.total,
				counted.byCluster, counted.inNamespace)
		}
		for cluster, own := range l.byCluster {
			if own.services > 10 || own.endpoints > 30 {
				t.Fatalf("step %d: %s has %+v, want at most half of 20 services and 60 endpoints", step, cluster, own)
			}
		}
		if l.total.services > 40 || l.total.endpoints > 120 {
			t.Fatalf("step %d: all have %+v, want at most twice the limits", step, l.total)
		}
	}
}

// checkLimits has docs/spec/controller.md 9.6 on a real API server without imports: a member that is at its limit gets
// no more, keeps what it has, also over a restart, and others do not notice. Of the 16 addresses of the Service network
// imports have 8, a member 4, and in one namespace 2.
func checkLimits(t *testing.T, b *env, west partner) {
	t.Helper()
	mallory := b.partner("mallory")
	network := netip.MustParsePrefix("10.96.0.0/28")
	var retried []string
	retry := func(c *Config) {
		c.Retry = func(svc types.NamespacedName, _ time.Duration) { retried = append(retried, svc.Name) }
	}
	i := b.start(retry, network)
	for _, name := range []string{"a", "b", "c", "d"} {
		b.Create(mallory.recordOf(name))
	}
	i.importAll("a", "b", "c", "d")
	i.checkImports("a mallory", "b mallory")
	if n := i.Log.Count("rejected of cluster \"mallory\": c.shop (limit)"); n != 1 ||
		i.Metric("rejected_objects_total", string(merge.BeyondLimit)) != 2 {
		t.Errorf("logged %d times, want once, and two counted: %v", n, i.Log)
	}
	if want := []string{"c", "d"}; !slices.Equal(retried, want) {
		t.Errorf("to be reconciled again: %q, want %q", retried, want)
	}
	// The endpoints of a service are limited, too.
	i.planner.limits.ofService = 4
	b.Create(mallory.sliceOf("a", "x", "10.2.0.1", "10.2.0.2", "10.2.0.3"), mallory.sliceOf("a", "y", "10.2.0.4"))
	i.Await("slices", func() bool { return len(i.Broker.Slices(memberenv.Service("a"), "mallory")) == 2 })
	i.reconcile("a")
	if s := i.Member.ImportedSlices(memberenv.Service("a")); len(s) != 1 || len(s[0].Endpoints) != 1 {
		t.Errorf("imported slices = %+v, want the one that is within the limit", s)
	}
	i.planner.limits.ofService = 1000
	i.reconcile("a")
	if s := i.Member.ImportedSlices(memberenv.Service("a")); len(s) != 2 {
		t.Errorf("imported slices = %+v, want both when there is room", s)
	}

	b.Create(west.recordOf("c"), west.recordOf("e"))
	i.Await("a record of west", func() bool { return len(i.Broker.Records(memberenv.Service("c"))) == 2 })
	i.importAll("c", "e", "d", "c") // the second time, as the import of west has an address that mallory need not have
	i.checkImports("a mallory", "b mallory", "c mallory west", "e west")

	i.End()
	i = b.start(retry, network)
	i.importAll("d", "c", "b", "a", "e")
	i.checkImports("a mallory", "b mallory", "c mallory west", "e west")

	b.Delete(mallory.recordOf("a"), mallory.sliceOf("a", "x"), mallory.sliceOf("a", "y"), mallory.recordOf("c"))
	i.Await("records", func() bool {
		return len(i.Broker.Records(memberenv.Service("a"))) == 0 && len(i.Broker.Records(memberenv.Service("c"))) == 1
	})
	for range 2 { // the second follows from the deletion of the import
		i.reconcile("a", "c")
	}
	i.importAll("d")
	i.checkImports("b mallory", "c west", "d mallory", "e west")
}

// recordOf returns the record of another service.
func (p partner) recordOf(name string) *v1alpha1.ExportedService {
	r := p.record()
	r.Name, r.Spec.Name, r.Labels[mcsv1beta1.LabelServiceName] = apibroker.RecordName("shop", name), name, name
	return r
}

func (p partner) sliceOf(name, source string, addresses ...string) *discoveryv1.EndpointSlice {
	s := p.slice(source, addresses...)
	s.Name, s.Labels[mcsv1beta1.LabelServiceName] = apibroker.SliceName("shop", name, source), name
	return s
}

// importAll reconciles services of shop, in this order, when the broker has a record of each.
func (i importing) importAll(names ...string) {
	i.Helper()
	for _, name := range names {
		svc := memberenv.Service(name)
		i.Await("record "+name, func() bool { return len(i.Broker.Records(svc)) > 0 })
	}
	i.reconcile(names...)
}

func (i importing) reconcile(names ...string) {
	i.Helper()
	for _, name := range names {
		svc := memberenv.Service(name)
		i.Await("inventories", func() bool { return i.Listed(svc) })
		if err := i.Reconcile(i.Context(), svc); err != nil {
			i.Fatal(err)
		}
	}
}

// checkImports compares the imports of shop, each with its clusters, and that each has an address.
func (i importing) checkImports(want ...string) {
	i.Helper()
	list := &mcsv1beta1.ServiceImportList{}
	if err := i.Admin.List(i.Context(), &mcsv1beta1.ServiceImport{}, list, "shop", ""); err != nil {
		i.Fatal(err)
	}
	var got []string
	for _, imp := range list.Items {
		text := imp.Name
		for _, c := range imp.Status.Clusters {
			text += " " + c.Cluster
		}
		if got = append(got, text); len(imp.Spec.IPs) == 0 {
			i.Errorf("import %s has no address", imp.Name)
		}
	}
	if !slices.Equal(got, want) {
		i.Errorf("imports = %q, want %q", got, want)
	}
}
