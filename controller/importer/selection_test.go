package importer

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/about"
	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/identity"
	"github.com/clusterset-dns/clusterset/controller/importer/write"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/safety"
	"github.com/clusterset-dns/clusterset/controller/selection"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// docs/spec/selection.md 3, docs/spec/selection.md 4: clusters that are not selected are hidden from proxies; others
// are shown before, and each slice is written once.
func checkSelection(b *env, west partner) {
	b.Helper()
	i := b.start(func(*Config) {})
	i.affinity("local")
	exp, service, source := memberenv.NewExport(db), memberenv.NewService(db),
		memberenv.NewSourceSlice(db, "db-1", "10.1.0.1")
	record, slice := west.record(), west.slice("a", "10.2.0.1")
	b.Create(record, slice, exp, service, source)
	got := i.do("both", func() bool {
		return i.addressOf("west") != "" && i.Member.Export(db) != nil && i.Member.Service(db) != nil &&
			len(i.Member.SourceSlices(db)) == 1
	})
	i.Expect("a new service", got, newImportWrite, newServiceWrite, importWrite, newSliceWrite, newSliceWrite,
		importStatus, statusWrite)
	i.checkShown("east")
	imp := i.read().Import
	if got, want := imp.Annotations[apibroker.AnnotationResults], `[["east"]]`; got != want {
		i.Errorf("results = %s, want %s", got, want)
	}
	if s, err := selection.Parse(imp.Annotations[apibroker.AnnotationSelectors]); err != nil || len(s) != 1 {
		i.Errorf("selectors = %v, %v; want those of affinity local", s, err)
	}
	i = i.failOver(source)
	i.checkRegion(west)
	i.checkExporters(record)
	i.checkProtocol(record, slice)
	i.checkHints(record, slice, source)
	i.checkWithoutAddress(source)
	i.checkOption(record)
	i.affinity("next-door")
	i.Expect("an affinity that is none", i.do("", always), importWrite, importedWrite("PATCH", "east", "db-1"))
	i.checkShown("east", "west")
	if n := i.Log.Count(`affinity "next-door": want local, region, remote or none`); n != 1 {
		i.Errorf("logged %d times, want once: %v", n, i.Log)
	}
	i.checkIgnored(`annotation clusterset-dns.io/affinity: affinity "next-door": want local, region, remote or none`)
	i.affinity("nearby")
	i.do("", always)
	i.checkIgnored(`annotation clusterset-dns.io/affinity: affinity "nearby": want local, region, remote or none`)
	i.Delete(exp, service, source, slice, record)
	i.do("gone", func() bool {
		return len(i.Broker.Records(db)) == 0 && i.Member.Export(db) == nil && i.addressOf("west") == ""
	})
	if left := i.read(); left.Import != nil || len(left.Slices) > 0 {
		i.Errorf("left: %+v, want nothing", left)
	}
	i.edit(&corev1.Namespace{}, "shop", fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, apibroker.AnnotationAffinity))
	i.End()
}

// failOver lets the endpoint of this cluster go and come back, also with a long hold and while the broker is away.
func (i importing) failOver(source *discoveryv1.EndpointSlice) importing {
	i.Helper()
	var waits []time.Duration
	hold := func(d time.Duration) func(*Config) {
		return func(c *Config) {
			c.FailbackDelay, c.Retry = d, func(_ types.NamespacedName, d time.Duration) { waits = append(waits, d) }
		}
	}
	toWest := []string{importedWrite("PATCH", "west", "a"), importedWrite("PATCH", "east", "db-1")}
	toEast := []string{toWest[1], toWest[0]}

	i.Expect("our own Pods go", i.ready(source, false), toWest...)
	i.checkShown("west")
	i.Expect("again", i.do("", always))

	i = i.with(hold(time.Hour)) // a restart, too: it begins with the shown slices
	i.Expect("our own Pods are back for a moment", i.ready(source, true), importedWrite("PATCH", "east", "db-1"))
	i.checkShown("west")
	if len(waits) != 1 || waits[0] <= 0 || waits[0] > time.Hour {
		i.Errorf("reconciled again after %v, want once, within the hold", waits)
	}
	i.Expect("the preferred cluster fails again", i.ready(source, false), importedWrite("PATCH", "east", "db-1"))
	i = i.with(hold(0))
	i.Expect("our own Pods are back", i.ready(source, true), toEast...)
	i.checkShown("east")

	i.Freezes.Set(safety.BrokerEmpty, "why")
	i.Expect("our own Pods go while the broker is away", i.ready(source, false), toWest...)
	i.checkShown("west")
	i.Expect("and are back", i.ready(source, true), toEast...)
	i.checkShown("east")
	i.Freezes.Set(safety.BrokerEmpty, "")

	return i.besideTaken(source, toWest)
}

// besideTaken lets the name of a slice of this cluster, which is preferred, be taken by an object that is not ours, so
// that it is never shown: the others are not hidden meanwhile. At first it is shown, and so it is in the end.
func (i importing) besideTaken(source *discoveryv1.EndpointSlice, toWest []string) importing {
	i.Helper()
	i.Expect("our own Pods go again", i.ready(source, false), toWest...)
	taken := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	for _, e := range i.read().Slices {
		if e.Labels[mcsv1beta1.LabelSourceCluster] == memberenv.ID && desired.IsImported(e) {
			taken.Namespace, taken.Name = e.Namespace, e.Name
			i.Delete(e)
		}
	}
	i.Create(taken)
	i.Await("the hidden slice is gone", func() bool { return len(i.Member.ImportedSlices(db)) == 1 })
	i.ready(source, true)
	i.checkShown("west")
	// which is tried
	i.Expect("again", slices.DeleteFunc(i.do("", always), func(w string) bool { return w == newSliceWrite }))
	i.Delete(taken)
	i.Expect("the name is free", i.do("", always), newSliceWrite, toWest[0], importStatus)
	i.checkShown("east")
	return i
}

// checkRegion publishes the region of this cluster, and selects by that of both: docs/spec/selection.md 2. It leaves
// the broker with an older CRD, which has no properties.
func (i importing) checkRegion(west partner) {
	i.Helper()
	property := func(name, value string) *aboutv1beta1.ClusterProperty {
		return &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: aboutv1beta1.ClusterPropertySpec{Value: value}}
	}
	region := []v1alpha1.Property{{Name: about.RegionName, Value: "eu"}}
	i.Create(property(about.RegionName, "eu"), property("too.long", strings.Repeat("x", apibroker.MaxPropertyValue+1)))
	i.Await("properties", func() bool { return len(i.Member.Properties()) == 4 })
	i.publishAs("v1", func() bool {
		status := i.Broker.Members.Get(memberenv.ID).Status
		return slices.Equal(status.Properties, region) && status.Version == "v1" && status.VIP == "derived"
	})
	if n := i.Log.Count(`ClusterProperties that are not published: property too.long has value "xxx`); n != 1 {
		i.Errorf("logged %d times, want once: %v", n, i.Log)
	}
	m := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: west.id}, Status: v1alpha1.MemberStatus{Properties: region}}
	if err := i.Admin.Apply(i.Context(), m, "west", "status"); err != nil {
		i.Fatal(err)
	}
	i.affinity("region")
	i.Expect("both in one region", i.do("region of west",
		func() bool { return len(i.Broker.Members.Get(west.id).Status.Properties) == 1 }), importWrite)
	if got, want := i.read().Import.Annotations[apibroker.AnnotationResults], `[["east"],["east","west"]]`; got != want {
		i.Errorf("results = %s, want %s", got, want)
	}

	i.DropFields(crd.Members, ".status.properties")
	i.publishAs("v2", func() bool { return i.Log.Count("the status of this member is not published: ") > 0 })
}

// checkExporters has west, with the oldest export, prefer west: docs/spec/selection.md 5. The setting of the namespace,
// region at first and then none, counts before that.
func (i importing) checkExporters(record *v1alpha1.ExportedService) {
	i.Helper()
	west := []v1alpha1.ClusterSelector{{MatchProperties: []v1alpha1.Property{{Name: "cluster.clusterset.k8s.io",
		Value: "west"}}}}
	record.Spec.ClusterSelectors = west
	i.Update(record)
	i.do("selectors of west", func() bool {
		return slices.ContainsFunc(i.Broker.Records(db), func(r merge.Record) bool {
			return len(r.Spec.ClusterSelectors) == 1
		})
	})
	i.checkShown("east")

	i.affinity("none")
	i.do("", always)
	i.checkShown("east", "west")

	i.edit(&corev1.Namespace{}, "shop", fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, apibroker.AnnotationAffinity))
	i.Await("no annotation", func() bool {
		return i.Member.Namespace("shop").Annotations[apibroker.AnnotationAffinity] == ""
	})
	off := i.with(func(c *Config) { c.ExportedAffinity = false })
	off.do("", always)
	off.checkShown("east", "west")
	i.affinity("none")

	i.edit(&corev1.Namespace{}, "shop", fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, apibroker.AnnotationAffinity))
	i.Await("no annotation", func() bool {
		return i.Member.Namespace("shop").Annotations[apibroker.AnnotationAffinity] == ""
	})
	i.do("", always)
	i.checkShown("west")
	imp := i.read().Import
	if got, want := imp.Annotations[apibroker.AnnotationSelectors], selection.FromRecord(west).String(); got != want {
		i.Errorf("selectors = %s, want %s", got, want)
	}
	if got, want := imp.Annotations[apibroker.AnnotationResults], `[["west"]]`; got != want {
		i.Errorf("results = %s, want %s", got, want)
	}
}

// checkProtocol gives the port of west, which is in use, another protocol and the same name, and back.
func (i importing) checkProtocol(record *v1alpha1.ExportedService, slice *discoveryv1.EndpointSlice) {
	i.Helper()
	for _, protocol := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
		record.Spec.Ports[0].Protocol, slice.Ports[0].Protocol = protocol, &protocol
		i.Update(record)
		i.Update(slice)
		i.do(string(protocol), func() bool {
			all := i.Broker.Slices(db, "west")
			return len(all) == 1 && *all[0].Ports[0].Protocol == protocol &&
				slices.ContainsFunc(i.Broker.Records(db), func(r merge.Record) bool {
					return r.Cluster == "west" && r.Spec.Ports[0].Protocol == protocol
				})
		})
		for _, e := range i.read().Slices {
			if e.Name == imported("west", "a") && (len(e.Ports) != 1 || *e.Ports[0].Protocol != protocol) {
				i.Errorf("ports of west = %+v, want pg/%s alone", e.Ports, protocol)
			}
		}
		i.Expect("again", i.do("", always))
		i.checkShown("west")
	}
}

// orNull returns a string as JSON, null for "".
func orNull(s string) string {
	if s == "" {
		return "null"
	}
	return fmt.Sprintf("%q", s)
}

// checkHints has traffic prefer its own zone: docs/spec/controller.md 5.6. An endpoint without a zone takes no hint
// from others, and their slices are not written. In a Namespace that prefers no zone there are no hints.
func (i importing) checkHints(record *v1alpha1.ExportedService, slice, source *discoveryv1.EndpointSlice) {
	i.Helper()
	record.Spec.TrafficDistribution, slice.Endpoints[0].Zone = new(corev1.ServiceTrafficDistributionPreferClose), new("a")
	i.Update(record)
	i.Update(slice)
	for _, tt := range []struct{ zone, ofNamespace, want string }{{zone: "b", want: "a b"}, {want: "a"},
		{zone: "b", ofNamespace: "none"}} {
		i.edit(&corev1.Namespace{}, "shop", fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, apibroker.AnnotationTrafficDistribution, orNull(tt.ofNamespace)))
		if source.Endpoints[0].Zone = nil; tt.zone != "" {
			source.Endpoints[0].Zone = &tt.zone
		}
		i.Update(source)
		written := i.do("zone "+tt.zone, func() bool {
			west, own := i.Broker.Slices(db, "west"), i.Member.SourceSlices(db)[0].Endpoints[0].Zone
			return len(west) == 1 && west[0].Endpoints[0].Zone != nil && (own == nil) == (tt.zone == "") &&
				i.Member.Namespace("shop").Annotations[apibroker.AnnotationTrafficDistribution] == tt.ofNamespace &&
				slices.ContainsFunc(i.Broker.Records(db), func(r merge.Record) bool { return r.Spec.TrafficDistribution != nil })
		})
		var zones []string
		for _, e := range i.read().Slices {
			for _, ep := range e.Endpoints {
				if ep.Hints != nil {
					zones = append(zones, ep.Hints.ForZones[0].Name)
				}
			}
		}
		slices.Sort(zones)
		if got := strings.Join(zones, " "); got != tt.want {
			i.Errorf("own zone %q, distribution of the Namespace %q: hints for %q, want %q", tt.zone, tt.ofNamespace, got,
				tt.want)
		}
		if tt.zone == "" {
			i.Expect("no zone", written, importedWrite("PATCH", "east", "db-1"))
		}
		i.Expect("again", i.do("", always))
	}
}

// checkWithoutAddress selects for DNS while the import has no address: docs/spec/selection.md 4.
func (i importing) checkWithoutAddress(source *discoveryv1.EndpointSlice) {
	i.Helper()
	none := i.with(func(c *Config) { c.Merge.VIP = merge.NoVIP })
	none.do("", always)
	if left := none.read(); left.Service != nil || len(left.Import.Spec.IPs) > 0 {
		i.Errorf("addresses %v, Service %v; want none", left.Import.Spec.IPs, left.Service)
	}
	none.checkShown("west")
	none.affinity("local")
	none.do("", always)
	none.checkShown("east")
	toWest := []string{importedWrite("PATCH", "west", "a"), importedWrite("PATCH", "east", "db-1")}
	none.Expect("our own Pods go", none.ready(source, false), toWest...)
	none.checkShown("west")
	none.Expect("and are back", none.ready(source, true), toWest[1], toWest[0])
	none.checkShown("east")

	none.checkWeights()

	i.edit(&corev1.Namespace{}, "shop", fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, apibroker.AnnotationAffinity))
	i.Await("no annotation", func() bool {
		return i.Member.Namespace("shop").Annotations[apibroker.AnnotationAffinity] == ""
	})
	i.do("", always)
	i.checkShown("west")
}

// checkOption has the option affinity prefer this cluster: docs/spec/selection.md 1. The selectors of the oldest
// export, which are those of west at first, and the annotation of the Namespace count before it.
func (i importing) checkOption(record *v1alpha1.ExportedService) {
	i.Helper()
	local, err := selection.Local.Selectors()
	if err != nil {
		i.Fatal(err)
	}
	i = i.with(func(c *Config) { c.Selectors = local })
	i.do("", always)
	i.checkShown("west")
	record.Spec.ClusterSelectors = nil
	i.Update(record)
	i.do("no selectors of west", func() bool {
		return slices.ContainsFunc(i.Broker.Records(db), func(r merge.Record) bool {
			return r.Cluster == "west" && len(r.Spec.ClusterSelectors) == 0
		})
	})
	i.checkShown("east")
	i.affinity("remote")
	i.do("", always)
	i.checkShown("west")
}

// checkWeights has the Namespace weigh the clusters: docs/spec/selection.md 6.
func (i importing) checkWeights() {
	i.Helper()
	for _, tt := range []struct{ given, want string }{{"west=1, east=3", "east=3,west=1"}, {"west=often", ""},
		{"west=2", "west=2"}, {"", ""}} {
		i.edit(&corev1.Namespace{}, "shop", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, apibroker.AnnotationWeights, tt.given))
		i.Await("weights", func() bool {
			value, set := i.Member.Namespace("shop").Annotations[apibroker.AnnotationWeights]
			return set && value == tt.given
		})
		i.Expect("weights "+tt.given, i.do("", always), importWrite)
		if got := i.read().Import.Annotations[apibroker.AnnotationWeights]; got != tt.want {
			i.Errorf("weights %q: those of the import are %q, want %q", tt.given, got, tt.want)
		}
	}
	if n := i.Log.Count(`annotation clusterset-dns.io/weights: weight "west=often": want CLUSTER=1 to CLUSTER=1000`); n != 1 {
		i.Errorf("logged %d times, want once: %v", n, i.Log)
	}
}

// publishAs publishes the status of the member, with a version, until the broker shows it.
func (i importing) publishAs(version string, shown func() bool) {
	i.Helper()
	ctx, cancel := context.WithCancel(i.Context())
	var g errgroup.Group
	p := &identity.Publication{Membership: i.Membership, Status: v1alpha1.MemberStatus{Version: version, VIP: "derived"},
		Log: i.Log}
	g.Go(func() error { return p.Run(ctx) })
	i.Await("status "+version, shown)
	cancel()
	if err := g.Wait(); err != nil {
		i.Error(err)
	}
}

// checkIgnored waits for the Event of the Namespace about an annotation that does not count.
func (i importing) checkIgnored(detail string) {
	i.Helper()
	i.Await("an Event about "+detail, func() bool {
		events, err := i.Server.Dynamic().Resource(eventsv1.SchemeGroupVersion.WithResource("events")).Namespace(
			"default").List(i.Context(), metav1.ListOptions{})
		if err != nil {
			i.Fatal(err)
		}
		return slices.ContainsFunc(events.Items, func(e unstructured.Unstructured) bool {
			kind, _, _ := unstructured.NestedString(e.Object, "regarding", "kind")
			name, _, _ := unstructured.NestedString(e.Object, "regarding", "name")
			return kind == "Namespace" && name == "shop" && e.Object["type"] == corev1.EventTypeWarning &&
				e.Object["reason"] == wellknown.ReasonAnnotationIgnored && e.Object["note"] == "Ignored: "+detail+"."
		})
	})
}

// affinity annotates the namespace.
func (i importing) affinity(value string) {
	i.Helper()
	i.edit(&corev1.Namespace{}, "shop", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, apibroker.AnnotationAffinity, value))
	i.Await("annotation", func() bool {
		return i.Member.Namespace("shop").Annotations[apibroker.AnnotationAffinity] == value
	})
}

// ready makes the endpoint of this cluster ready or not, and returns what was written.
func (i importing) ready(source *discoveryv1.EndpointSlice, ready bool) []string {
	i.Helper()
	source.Endpoints[0].Conditions.Ready = &ready
	i.Update(source)
	return i.do("readiness", func() bool { return *i.Member.SourceSlices(db)[0].Endpoints[0].Conditions.Ready == ready })
}

// checkShown compares the clusters with slices that proxies see.
func (i importing) checkShown(want ...string) {
	i.Helper()
	ours := func(e *discoveryv1.EndpointSlice) bool {
		return e.Labels[discoveryv1.LabelManagedBy] == apibroker.ManagedBy && e.Namespace == "shop"
	}
	all := i.read().Slices
	for _, label := range []string{"service.kubernetes.io/headless", "service.kubernetes.io/service-proxy-name"} {
		if got := clustersOf(all, func(e *discoveryv1.EndpointSlice) bool {
			_, hidden := e.Labels[label]
			return ours(e) && !hidden
		}); !slices.Equal(got, want) {
			i.Errorf("without the label %s: %q, want %q", label, got, want)
		}
	}
}

// docs/spec/selection.md 3: each port is selected by itself, so that no port is without endpoints because of another
// one.
func TestChoosePorts(t *testing.T) {
	svc := types.NamespacedName{Namespace: "shop", Name: "db"}
	prefers := preferences{selectors: `[local]`, results: selection.Results{{"east"}}}
	of := func(cluster string, ready bool, ports ...string) *discoveryv1.EndpointSlice {
		e := &discoveryv1.EndpointSlice{
			Endpoints: []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		}
		e.Labels = map[string]string{mcsv1beta1.LabelSourceCluster: cluster}
		for _, name := range ports {
			e.Ports = append(e.Ports, discoveryv1.EndpointPort{Name: &name})
		}
		return e
	}
	ipv6 := func(e *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		e.AddressType = discoveryv1.AddressTypeIPv6
		return e
	}
	for _, tt := range []struct {
		name    string
		desired []*discoveryv1.EndpointSlice
		want    string
	}{
		{"local Pods", []*discoveryv1.EndpointSlice{of("east", true, "a"), of("west", true, "a")}, "east[a] west hidden[a]"},
		{"no local Pods", []*discoveryv1.EndpointSlice{of("east", false, "a"), of("west", true, "a")},
			"east hidden[a] west[a]"},
		{"no Pods", []*discoveryv1.EndpointSlice{of("east", false, "a"), of("west", false, "a")}, "east[a] west[a]"},
		{"a port that only west has", []*discoveryv1.EndpointSlice{of("east", true, "a"), of("west", true, "a", "b")},
			"east[a] west[b]"},
		{"a family that only west has", []*discoveryv1.EndpointSlice{of("east", true, "a"), ipv6(of("west", true, "a"))},
			"east[a] west[a]"},
		{"west alone", []*discoveryv1.EndpointSlice{of("west", true, "a")}, "west[a]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			(&choices{hold: time.Hour}).choose(svc, prefers, proxies, tt.desired, desired.Objects{})
			var got string
			for _, e := range tt.desired {
				got += " " + e.Labels[mcsv1beta1.LabelSourceCluster]
				if desired.IsHidden(e) {
					got += " hidden"
				}
				var ports []string
				for _, p := range e.Ports {
					ports = append(ports, *p.Name)
				}
				got += fmt.Sprint(ports)
			}
			if got[1:] != tt.want {
				t.Errorf("slices:%s, want %s", got, tt.want)
			}
		})
	}
}

// docs/spec/selection.md 3, docs/spec/selection.md 4: while the broker may have lost one cluster, the slices of all
// others are replaced, and decide on the selection together. A slice with hidden ports must not look as if it had lost
// them: its hold would begin anew.
func TestReplaceSlicesKeepsHold(t *testing.T) {
	cfg := writerConfig{choices: &choices{hold: time.Hour}, retry: func(types.NamespacedName, time.Duration) {}}
	objects := desired.Objects{
		Import:  &mcsv1beta1.ServiceImport{Spec: mcsv1beta1.ServiceImportSpec{IPs: []string{"10.96.0.1"}}},
		Service: &corev1.Service{},
	}
	preferences{selectors: `[local]`, results: selection.Results{{"east"}}}.annotate(objects.Import)
	wanted := func(ready bool) (all []*discoveryv1.EndpointSlice) {
		for cluster, ports := range map[string][]string{"east": {"pg", "admin"}, "west": {"pg"}} {
			e := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: cluster},
				AddressType: discoveryv1.AddressTypeIPv4}
			e.Labels = map[string]string{mcsv1beta1.LabelSourceCluster: cluster, discoveryv1.LabelManagedBy: apibroker.ManagedBy}
			e.Endpoints = []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: new(ready ||
				cluster == "west")}}}
			for _, name := range ports {
				e.Ports = append(e.Ports, discoveryv1.EndpointPort{Name: &name})
			}
			all = append(all, e)
		}
		return all
	}
	prefers := writtenPreferences(objects.Import)
	cfg.choices.choose(db, prefers, proxies, wanted(false), objects)
	existing := wanted(true)
	// east is back, and waits; the port that only it has is in use
	cfg.choices.choose(db, prefers, proxies, existing, objects)
	objects.Slices = existing
	before := cfg.choices.get(db)
	w := &writer{cfg: cfg, svc: db, written: write.New(write.Config{}).ImportOf(db, objects)}
	if err := w.replaceSlices(t.Context(), []string{"east", "west"}, wanted(true)); err != nil {
		t.Fatal(err)
	}
	if after := cfg.choices.get(db); !reflect.DeepEqual(after, before) {
		t.Errorf("the choice was %+v, and is %+v: want the same", before, after)
	}
}

// docs/spec/selection.md 3: where the import has no address DNS decides, for all ports and families together, on what
// it answers with.
func TestChooseForDNS(t *testing.T) {
	prefers := preferences{selectors: `[local]`, results: selection.Results{{"east"}}}
	of := func(cluster string, family discoveryv1.AddressType, ready bool) *discoveryv1.EndpointSlice {
		e := &discoveryv1.EndpointSlice{AddressType: family}
		e.Labels = map[string]string{mcsv1beta1.LabelSourceCluster: cluster}
		c := discoveryv1.EndpointConditions{Ready: &ready, Serving: new(true), Terminating: new(!ready)}
		e.Endpoints = []discoveryv1.Endpoint{{Conditions: c}}
		e.Ports = []discoveryv1.EndpointPort{{Name: &cluster}}
		return e
	}
	const v4, v6 = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	for _, tt := range []struct {
		name    string
		desired []*discoveryv1.EndpointSlice
		shown   []string
	}{
		{"a port and a family that only west has", []*discoveryv1.EndpointSlice{of("east", v4, true), of("west", v4, true),
			of("west", v6, true)}, []string{"east"}},
		{"one of two slices is ready", []*discoveryv1.EndpointSlice{of("east", v4, false), of("east", v6, true),
			of("west", v4, true)}, []string{"east"}},
		{"no answer has what terminates", []*discoveryv1.EndpointSlice{of("east", v4, false), of("west", v4, true)},
			[]string{"west"}},
		{"nothing is ready", []*discoveryv1.EndpointSlice{of("east", v4, false), of("west", v4, false)},
			[]string{"east", "west"}},
	} {
		(&choices{hold: time.Hour}).choose(db, prefers, dns, tt.desired, desired.Objects{})
		if got := clustersOf(tt.desired, func(e *discoveryv1.EndpointSlice) bool {
			return !desired.IsHidden(e)
		}); !slices.Equal(got, tt.shown) {
			t.Errorf("%s: shown %q, want %q", tt.name, got, tt.shown)
		}
		for _, e := range tt.desired {
			if len(e.Ports) != 1 {
				t.Errorf("%s: ports = %+v, want all", tt.name, e.Ports)
			}
		}
	}
}

// docs/spec/selection.md 4: who follows the selection.
func TestConsumer(t *testing.T) {
	prefers := preferences{selectors: `[local]`, results: selection.Results{{"east"}}}
	without := &mcsv1beta1.ServiceImport{}
	with := &mcsv1beta1.ServiceImport{Spec: mcsv1beta1.ServiceImportSpec{IPs: []string{"10.96.0.1"}}}
	local := corev1.ServiceInternalTrafficPolicyLocal
	for _, tt := range []struct {
		name    string
		prefers preferences
		imp     *mcsv1beta1.ServiceImport
		service *corev1.Service
		want    consumer
	}{
		{"derived", prefers, with, &corev1.Service{}, proxies},
		{"own node alone", prefers, with, &corev1.Service{Spec: corev1.ServiceSpec{InternalTrafficPolicy: &local}}, nothing},
		{"own node alone, but for clusterset IPs", prefers, with,
			&corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, InternalTrafficPolicy: &local}},
			proxies},
		{"an address of a CIDR", prefers, with, nil, nothing},
		{"no address", prefers, without, nil, dns},
		{"no preference", preferences{}, without, nil, nothing},
	} {
		if got := tt.prefers.consumer(tt.imp, tt.service); got != tt.want {
			t.Errorf("%s: consumer = %d, want %d", tt.name, got, tt.want)
		}
	}
}

// docs/spec/selection.md 3: endpoints that terminate count where no cluster has one that is ready.
func TestEligible(t *testing.T) {
	yes, no := true, false
	unknown, ready := discoveryv1.EndpointConditions{}, discoveryv1.EndpointConditions{Ready: &yes}
	notReady := discoveryv1.EndpointConditions{Ready: &no}
	drained := discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
	gone := discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &yes}
	for _, tt := range []struct {
		name         string
		east, west   discoveryv1.EndpointConditions
		proxies, dns []string
	}{
		{"ready, or not known", ready, unknown, []string{"east", "west"}, []string{"east", "west"}},
		{"one is drained", drained, ready, []string{"west"}, []string{"west"}},
		{"one is drained, the other not ready", drained, notReady, []string{"east"}, nil},
		{"both are drained", drained, drained, []string{"east", "west"}, nil},
		{"nothing serves", gone, notReady, nil, nil},
	} {
		var all []*discoveryv1.EndpointSlice
		for cluster, c := range map[string]discoveryv1.EndpointConditions{"east": tt.east, "west": tt.west} {
			e := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Conditions: c}}}
			e.Labels = map[string]string{mcsv1beta1.LabelSourceCluster: cluster}
			all = append(all, e)
		}
		has := func(*discoveryv1.EndpointSlice) bool { return true }
		if p, d := proxies.eligible(all, has), dns.eligible(all, has); !slices.Equal(p, tt.proxies) ||
			!slices.Equal(d, tt.dns) {
			t.Errorf("%s: %q by proxies, %q by DNS; want %q, %q", tt.name, p, d, tt.proxies, tt.dns)
		}
	}
}
