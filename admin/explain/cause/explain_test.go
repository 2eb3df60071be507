package cause

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/wiring"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/resolver"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func present[T any](v T) Read[T] { return Read[T]{State: Present, Value: v} }

func lease(age time.Duration) *coordinationv1.LeaseSpec {
	return &coordinationv1.LeaseSpec{HolderIdentity: ptr.To("one"), RenewTime: &metav1.MicroTime{Time: now.Add(-age)}}
}

// input is a cluster west in which the headless service shop/db of east resolves, with nothing wrong.
func input() *Input {
	labels := map[string]string{
		mcsv1beta1.LabelServiceName: "db", mcsv1beta1.LabelSourceCluster: "east", broker.LabelSourceNamespace: "shop",
	}
	slice := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "b-east", Labels: labels}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, Hostname: ptr.To("db-0")}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("pg"), Port: ptr.To(int32(5432))}},
	}
	local := slice.DeepCopy()
	local.Namespace = "shop"
	port := v1alpha1.ServicePort{Name: "pg", Protocol: corev1.ProtocolTCP, Port: 5432}
	member := func(id, uid, cidr string) v1alpha1.Member {
		return v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1alpha1.MemberSpec{
			KubeSystemUID: uid, Namespace: "b-" + id, PodCIDRs: []string{cidr},
		}}
	}
	namespace := func(id string) corev1.Namespace {
		return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b-" + id,
			Labels: map[string]string{broker.LabelClusterID: id}}}
	}
	return &Input{
		Name: "db.shop.svc.clusterset.local.", Type: dns.TypeA, Zone: "clusterset.local", Now: now, TTL: time.Minute,
		Namespace: "system",
		Here: Cluster{
			UID: present(types.UID("w")), ClusterID: present(Property{Value: "west"}),
			ClusterSet: present(Property{Value: "set", Annotations: map[string]string{broker.AnnotationBrokerUID: "b"}}),
			Namespace:  present(&corev1.Namespace{}), Slices: present([]*discoveryv1.EndpointSlice{local}),
			Import: importOf("Headless", nil, "east"),
			Export: Read[*mcsv1beta1.ServiceExport]{State: Absent}, Leader: present(lease(0)),
			Credential: present(Credential{Expires: now.Add(time.Hour)}),
		},
		Broker: Broker{
			UID: present(types.UID("b")), Namespaces: present([]corev1.Namespace{namespace("east"), namespace("west")}),
			Members: present([]v1alpha1.Member{member("east", "e", "10.1.0.0/16"), member("west", "w", "10.2.0.0/16")}),
			Records: present([]v1alpha1.ExportedService{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "b-east", Name: "db.shop", Labels: labels,
					CreationTimestamp: metav1.NewTime(now)},
				Spec: v1alpha1.ExportedServiceSpec{
					Namespace: "shop", Name: "db", Type: v1alpha1.Headless, Ports: []v1alpha1.ServicePort{port},
					ExportCreated: metav1.NewTime(now), Stamp: 1, ExportUID: "01234567-89ab-cdef-0123-456789abcdef",
					IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
				},
			}}),
			Slices:     present([]discoveryv1.EndpointSlice{slice}),
			Heartbeats: present(map[string]*coordinationv1.LeaseSpec{"b-east": lease(0), "b-west": lease(0)}),
		},
	}
}

func importOf(kind mcsv1beta1.ServiceImportType, ready *metav1.Condition, clusters ...string) Read[Import] {
	imp := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db",
			Labels: map[string]string{broker.LabelManagedBy: broker.ManagedBy}},
		Spec: mcsv1beta1.ServiceImportSpec{Type: kind, Ports: []mcsv1beta1.ServicePort{{Name: "pg", Port: 5432}}},
	}
	for _, id := range clusters {
		imp.Status.Clusters = append(imp.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: id})
	}
	if ready != nil {
		imp.Status.Conditions = []metav1.Condition{*ready}
	}
	text, err := json.Marshal(imp)
	if err != nil {
		panic(err)
	}
	return present(Import{JSON: text, Object: imp})
}

func exported(conditions ...metav1.Condition) Read[*mcsv1beta1.ServiceExport] {
	return present(&mcsv1beta1.ServiceExport{Status: mcsv1beta1.ServiceExportStatus{Conditions: conditions}})
}

// answered has a server answer as the objects want it.
func answered(in *Input, role Role) {
	t, _ := parse(in.Name, in.Zone)
	e := newWalk(in, t).expected
	r := Reply{Asked: true, Zone: in.Zone, Values: e.values}
	if e.outcome == resolver.NXDomain {
		r.Rcode = dns.RcodeNameError
	}
	in.Servers = []Server{{Name: "pod/dns", Role: role, TCP: r}}
}

// away takes out what makes the name resolve.
func away(in *Input) {
	in.Here.Import = Read[Import]{State: Absent}
	in.Here.Slices = present([]*discoveryv1.EndpointSlice(nil))
}

// docs/spec/explain.md 2: faults that test/suites/explain cannot seed with the shipped rights and policies, and
// warnings.
func TestVerdict(t *testing.T) {
	invalid := func(reason string) metav1.Condition {
		return metav1.Condition{Type: "Valid", Status: metav1.ConditionFalse, Reason: reason, Message: "m"}
	}
	for _, tt := range []struct {
		name     string
		change   func(*Input)
		want     reason.Code
		resolves bool
		problem  bool // though it resolves
	}{
		{name: "nothing is wrong", change: func(*Input) {}, want: reason.Resolves, resolves: true},
		{name: "no import", change: away, want: reason.ImportMissing},
		{name: "a namespace of OpenShift", want: reason.NamespaceExcluded,
			change: func(in *Input) { away(in); in.Name = "db.openshift-dns.svc.clusterset.local." }},
		{name: "the namespace of the controller", want: reason.NamespaceExcluded,
			change: func(in *Input) { away(in); in.Name = "db.system.svc.clusterset.local." }},
		{name: "a namespace of a broker", want: reason.NamespaceExcluded,
			change: func(in *Input) {
				away(in)
				in.Here.Namespace = present(
					&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{broker.LabelClusterID: "east"}}})
			}},
		{name: "a namespace that import_namespaces does not name", want: reason.NamespaceExcluded,
			change: func(in *Input) { away(in); in.Here.Namespaces = wellknown.NamespaceChoice{Names: []string{"bank"}} }},
		{name: "a namespace that import_namespaces names", want: reason.ImportMissing,
			change: func(in *Input) { away(in); in.Here.Namespaces = wellknown.NamespaceChoice{Names: []string{"shop"}} }},
		{name: "import_namespaces of a controller that leads no more", want: reason.ControllerStopped,
			change: func(in *Input) {
				away(in)
				in.Here.Namespaces, in.Here.Leader = wellknown.NamespaceChoice{Names: []string{"bank"}}, present(lease(time.Hour))
			}},
		{name: "namespace default", want: reason.NamespaceExcluded,
			change: func(in *Input) { away(in); in.Name = "db.default.svc.clusterset.local." }},
		{name: "namespace default, which import_namespaces selects", want: reason.NotExported,
			change: func(in *Input) {
				away(in)
				in.Name, in.Here.Namespaces = "db.default.svc.clusterset.local.", wellknown.NamespaceChoice{Selector: "stage=prod"}
				in.Here.Namespace = present(
					&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"stage": "prod"}}})
				in.Broker.Records, in.Broker.Slices = present([]v1alpha1.ExportedService(nil)),
					present([]discoveryv1.EndpointSlice(nil))
			}},
		{name: "the controller stopped, and the import is there", want: reason.ControllerStopped, resolves: true,
			change: func(in *Input) { in.Here.Leader = present(lease(time.Hour)) }},
		{name: "the controller stopped before the import", want: reason.ControllerStopped,
			change: func(in *Input) { away(in); in.Here.Leader = present(lease(time.Hour)) }},
		{name: "another question, and the controller stopped", want: reason.FamilyMissing,
			change: func(in *Input) { in.Type = dns.TypeAAAA; in.Here.Leader = present(lease(time.Hour)) }},
		{name: "the property was deleted", want: reason.MembershipDeleted,
			change: func(in *Input) { away(in); in.Here.ClusterSet = Read[Property]{State: Absent} }},
		{name: "no cluster ID", want: reason.ClusterIDMissing,
			change: func(in *Input) { away(in); in.Here.ClusterID = Read[Property]{State: Absent} }},
		{name: "a copy of another cluster", want: reason.ClusterIDTaken,
			change: func(in *Input) { away(in); in.Here.UID = present(types.UID("copy")) }},
		{name: "an export of a namespace that takes no part", want: reason.ExportNamespace,
			change: func(in *Input) {
				away(in)
				in.Broker.Records = present([]v1alpha1.ExportedService(nil))
				in.Here.Export = exported(invalid("NamespaceNotAllowed"))
			}},
		{name: "an export of a cluster that was no member", want: reason.ExportNotMember,
			change: func(in *Input) {
				away(in)
				in.Broker.Records = present([]v1alpha1.ExportedService(nil))
				in.Here.Export = exported(invalid("NotMember"))
			}},
		{name: "a record without a stamp, which importers reject", want: reason.RecordInvalid,
			change: func(in *Input) { in.Broker.Records.Value[0].Spec.Stamp = 0 }},
		{name: "a frozen controller, with all that the broker has", want: reason.ClusterCloned, resolves: true,
			change: func(in *Input) {
				in.Here.Frozen = []wellknown.Freeze{{Reason: "broker_identity", Imports: true, Code: "cluster-cloned"}}
			}},
		{name: "a frozen controller, without the import", want: reason.ControllerFrozen,
			change: func(in *Input) {
				away(in)
				in.Here.Frozen = []wellknown.Freeze{{Reason: "not_synced", Imports: true, Code: "controller-frozen"}}
			}},
		{name: "a webhook that stops the import", want: reason.ImportWebhook, change: func(in *Input) {
			away(in)
			in.Here.Frozen = []wellknown.Freeze{{Code: "import-webhook", Detail: "imports wait for the webhook x: shop/db, and 9 more"}}
		}},
		{name: "a webhook that stops another import", want: reason.ImportMissing, change: func(in *Input) {
			away(in)
			in.Here.Frozen = []wellknown.Freeze{{Code: "import-webhook", Detail: "imports wait for the webhook x: shop/web"}}
		}},
		{name: "a reason that suspends no imports, without the import", want: reason.ImportMissing,
			change: func(in *Input) {
				away(in)
				in.Here.Frozen = []wellknown.Freeze{{Reason: "mass_expiry", Code: "controller-frozen"}}
			}},
		{name: "a code of a newer controller", want: reason.ControllerFrozen, resolves: true,
			change: func(in *Input) {
				in.Here.Frozen = []wellknown.Freeze{{Reason: "broker_identity", Imports: true, Code: "of-tomorrow"}}
			}},
		{name: "what a controller has said that leads no more", want: reason.ControllerStopped, resolves: true,
			change: func(in *Input) {
				in.Here.Frozen = []wellknown.Freeze{{Reason: "broker_identity", Imports: true, Code: "cluster-cloned"}}
				in.Here.Leader = present(lease(time.Hour))
			}},
		{name: "an own export with malformed selectors", want: reason.ExportSelectors, resolves: true,
			change: func(in *Input) { in.Here.Export = exported(invalid("InvalidClusterSelector")) }},
		{name: "an own export with an annotation that does not count", want: reason.ExportAnnotation, resolves: true,
			change: func(in *Input) {
				in.Broker.Records = Read[[]v1alpha1.ExportedService]{State: Forbidden, Why: "no right"}
				in.Here.Export = exported(metav1.Condition{Type: "Valid", Status: metav1.ConditionTrue,
					Reason: "AnnotationIgnored"},
					metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Exported"})
			}},
		{name: "an own export that is invalid for a reason of another implementation", want: reason.ExportPending,
			resolves: true,
			change:   func(in *Input) { in.Here.Export = exported(invalid("Other")) }},
		{name: "an own export without Service beside that of another cluster", want: reason.ExportNoService, resolves: true,
			change: func(in *Input) { in.Here.Export = exported(invalid("NoService")) }},
		{name: "an import of another type", change: func(in *Input) { in.Here.Import = importOf("Other", nil, "east") },
			want: reason.ImportInvalid},
		{name: "an import that waits", want: reason.ImportPending,
			change: func(in *Input) {
				in.Here.Import = importOf("ClusterSetIP", &metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse,
					Reason: "Pending"}, "east")
			}},
		{name: "an import that does not decode", want: reason.ImportInvalid,
			change: func(in *Input) {
				in.Here.Import = present(Import{JSON: []byte(`{"spec":1}`), Undecodable: "spec is 1"})
			}},
		{name: "an address that leads to no node", want: reason.EndpointsNotLocal, resolves: true,
			change: func(in *Input) { local(in) }},
		{name: "an address that leads to nodes of this cluster", want: reason.Resolves, resolves: true,
			change: func(in *Input) {
				local(in).Endpoints[0].NodeName = ptr.To("node-1")
			}},
		{name: "an address without endpoints", want: reason.EndpointsNone, resolves: true, problem: true,
			change: func(in *Input) { withoutEndpoints(in, "east", "west") }},
		{name: "an address with endpoints in one of two clusters", want: reason.EndpointsNone, resolves: true,
			change: func(in *Input) { withoutEndpoints(in, "west") }},
		{name: "an address without endpoints after a heartbeat has expired", want: reason.ExporterExpired, resolves: true,
			problem: true, change: func(in *Input) {
				withoutEndpoints(in, "east", "west")
				in.Broker.Heartbeats.Value["b-east"] = lease(time.Hour)
			}},
		{name: "an address without endpoints, of another implementation", want: reason.EndpointsNone, resolves: true,
			change: func(in *Input) {
				withoutEndpoints(in, "east", "west")
				in.Here.Import.Value.Object.Labels, in.Here.ClusterSet = nil, Read[Property]{State: Absent}
			}},
		{name: "an export to other clusters", want: reason.NotExportedHere,
			change: func(in *Input) { away(in); elsewhere(in) }},
		{name: "an export that its cluster rejects", want: reason.ExportNoService, change: func(in *Input) {
			away(in)
			rejects(in, "NoService")
		}},
		{name: "an export that its cluster rejects for another reason", want: reason.NotExported,
			change: func(in *Input) {
				away(in)
				rejects(in, "Other")
			}},
		{name: "an export that its cluster rejects, with control characters", want: reason.NotExported,
			change: func(in *Input) {
				away(in)
				rejects(in, "NoService\x1b[2J")
			}},
		{name: "beside an export to other clusters", want: reason.Resolves, resolves: true, change: func(in *Input) {
			secondExport(in)
			elsewhere(in)
			in.Here.Import = importOf("Headless", nil, "west")
			own := in.Here.Slices.Value[0].DeepCopy()
			own.Labels[mcsv1beta1.LabelSourceCluster] = "west"
			in.Here.Slices = present([]*discoveryv1.EndpointSlice{own})
		}},
		{name: "exports of two families", want: reason.ConflictFamilies, resolves: true, change: secondExport},
		{name: "exports of two families, which the cluster withholds", want: reason.ConflictWithheld,
			change: func(in *Input) {
				secondExport(in)
				withholds(in)
				away(in)
			}},
		{name: "exports that agree, in a cluster that withholds", want: reason.Resolves, resolves: true, change: withholds},
		{name: "nothing may be read", change: func(in *Input) {
			in.Here.Import = Read[Import]{State: Forbidden,
				Why: "no right"}
		}, want: reason.NotReadable},
		{name: "the broker may not be read", change: func(in *Input) { in.Broker = Broker{} }, want: reason.NotReadable,
			resolves: true},
	} {
		in := input()
		tt.change(in)
		answered(in, ClusterDNS)
		r := Find(*in)
		if v := r.Verdict; v.Code != tt.want || v.Resolves != tt.resolves || v.Resolves && v.Problem() != tt.problem {
			t.Errorf("%s: verdict = %+v, want %s, resolves %t, problem %t; chain %+v", tt.name, v, tt.want, tt.resolves,
				tt.problem, r.Chain)
		}
	}
}

// withoutEndpoints has the import be one with an address, and clusters have no endpoint.
func withoutEndpoints(in *Input, clusters ...string) {
	local(in).Endpoints[0].NodeName = ptr.To("node-1")
	for _, s := range in.Here.Slices.Value {
		if slices.Contains(clusters, sourceOf(s)) {
			s.Endpoints = nil
		}
	}
	if slices.Contains(clusters, "east") {
		in.Broker.Slices.Value[0].Endpoints = nil
	}
}

// local has the import be one of this cluster, too, with an address and internal traffic policy Local. It returns the
// slice of this cluster.
func local(in *Input) *discoveryv1.EndpointSlice {
	imp := importOf("ClusterSetIP", nil, "east", "west").Value.Object
	imp.Spec.IPs, imp.Spec.InternalTrafficPolicy = []string{"10.96.0.1"}, ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	text, err := json.Marshal(imp)
	if err != nil {
		panic(err)
	}
	in.Here.Import = present(Import{JSON: text, Object: imp})
	in.Broker.Records.Value[0].Spec.Type = v1alpha1.ClusterSetIP
	own := in.Here.Slices.Value[0].DeepCopy()
	own.Labels[mcsv1beta1.LabelSourceCluster] = "west"
	in.Here.Slices = present(append(in.Here.Slices.Value, own))
	return own
}

// elsewhere has the export select another cluster.
func elsewhere(in *Input) { in.Broker.Records.Value[0].Spec.ToClusters = to("south") }

// rejects has east reject the export, with a condition of this reason.
func rejects(in *Input, reason string) {
	in.Broker.Records = present([]v1alpha1.ExportedService(nil))
	in.Broker.Slices = present([]discoveryv1.EndpointSlice(nil))
	in.Broker.Members.Value[0].Status.Rejected = []v1alpha1.RejectedExport{{Name: "db.shop", Reason: reason, Message: "m"}}
}

// withholds gives the cluster options with which it withholds what conflicts.
func withholds(in *Input) {
	in.Broker.Members.Value[1].Status.Merge = string(merge.First)
}

func to(cluster string) []v1alpha1.ClusterSelector {
	return []v1alpha1.ClusterSelector{{MatchProperties: []v1alpha1.Property{{Name: "cluster.clusterset.k8s.io",
		Value: cluster}}}}
}

// The verdict names all clusters without endpoints, ends with one full stop, and suggests a name in the zone.
func TestSentence(t *testing.T) {
	for _, tt := range []struct {
		want   string
		change func(*Input)
	}{
		{"A cluster exports the service without endpoints: no endpoint in west.",
			func(in *Input) { withoutEndpoints(in, "west") }},
		{"A cluster exports the service without endpoints: no endpoint in east, west; no cluster has a ready endpoint, " +
			"so connections fail.", func(in *Input) { withoutEndpoints(in, "east", "west") }},
		{`Exports of the service have different IP families: IPFamilyConflict: Conflicting IP families. Using "IPv4" from ` +
			`oldest service export in "east". 1/2 clusters disagree. Left out: "west".`, secondExport},
		{"The name is not in the zone of the clusterset: db.shop.svc.cluster.local is not below clusterset.local; " +
			"did you mean db.shop.svc.clusterset.local.", func(in *Input) { in.Name = "db.shop.svc.cluster.local." }},
		{"The name is not in the zone of the clusterset: shop.svc.cluster.local is not below clusterset.local.",
			func(in *Input) { in.Name = "shop.svc.cluster.local." }},
	} {
		in := input()
		tt.change(in)
		if got := Find(*in).Verdict.Sentence; got != tt.want {
			t.Errorf("sentence %q, want %q", got, tt.want)
		}
	}
}

// The evidence has the message of a condition without its codes: the step has one.
func TestEvidenceOfACondition(t *testing.T) {
	in := input()
	in.Here.Export = exported(metav1.Condition{Type: "Valid", Status: metav1.ConditionFalse, Reason: "NoService",
		Message: "Nothing. [export-no-service]"})
	chain := Find(*in).Chain
	at := slices.IndexFunc(chain, func(s Step) bool { return s.Code == reason.ExportNoService })
	if at < 0 {
		t.Fatalf("chain %+v: want a step with %s", chain, reason.ExportNoService)
	}
	if got, want := chain[at].Evidence, "Valid=False/NoService: Nothing."; got != want {
		t.Errorf("evidence = %q, want %q", got, want)
	}
}

// The evidence names the cluster that rejects its export, also while a question is about that cluster alone.
func TestEvidenceOfARejectedExport(t *testing.T) {
	in := input()
	away(in)
	rejects(in, "NoService")
	in.Name = "east." + in.Name
	v := Find(*in).Verdict
	want := `A ServiceExport has no Service: cluster "east" has an export of shop/db, which is rejected: NoService: m.`
	if v.Code != reason.ExportNoService || v.Sentence != want {
		t.Errorf("verdict %s: %q, want %s: %q", v.Code, v.Sentence, reason.ExportNoService, want)
	}
}

// secondExport lets west export the service, too, with IPv6 alone.
func secondExport(in *Input) {
	r := in.Broker.Records.Value[0].DeepCopy()
	r.Namespace, r.Labels[mcsv1beta1.LabelSourceCluster] = "b-west", "west"
	r.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	r.Spec.Type, in.Broker.Records.Value[0].Spec.Type = v1alpha1.ClusterSetIP, v1alpha1.ClusterSetIP
	r.CreationTimestamp = metav1.NewTime(now.Add(time.Minute))
	in.Broker.Records.Value = append(in.Broker.Records.Value, *r)
	in.Here.Import = importOf("Headless", nil, "east", "west")
}

// docs/spec/explain.md 2: which clusters traffic goes to, who prefers them, and since when.
func TestSelection(t *testing.T) {
	in := input()
	secondExport(in)
	in.Here.Import = importOf("ClusterSetIP", nil, "east", "west")
	imp := in.Here.Import.Value.Object
	imp.Annotations = map[string]string{
		broker.AnnotationSelectors: `[{"propertySelector":{"matchProperties":{"tier":"gold"}}}]`, broker.AnnotationResults: `[["west"],[]]`,
	}
	slice := func(cluster, address string, age time.Duration) *discoveryv1.EndpointSlice {
		e := in.Here.Slices.Value[0].DeepCopy()
		e.Labels[mcsv1beta1.LabelSourceCluster], e.Labels[discoveryv1.LabelManagedBy] = cluster, broker.ManagedBy
		e.Endpoints[0].Addresses = []string{address}
		written := metav1.NewTime(now.Add(-age))
		e.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: wellknown.ManagerImporter, Time: &written}}
		return e
	}
	east, west := slice("east", "10.1.0.1", time.Minute), slice("west", "10.2.0.1", time.Hour)
	west.Labels[corev1.IsHeadlessService] = ""
	in.Here.Slices = present([]*discoveryv1.EndpointSlice{east, west})
	evidence := func() string {
		for _, s := range Find(*in).Chain {
			if s.Name == "selection" {
				return s.Evidence
			}
		}
		return ""
	}
	const state = "in use [east], not in use [west], for 1m0s at least; preferred by "
	if got, want := evidence(),
		state+"the option affinity, or an export that was not read: west, then no cluster"; got != want {
		t.Errorf("selection = %q, want %q", got, want)
	}
	in.Broker.Records.Value[0].Spec.ClusterSelectors = []v1alpha1.ClusterSelector{{MatchProperties: []v1alpha1.Property{{Name: "tier", Value: "gold"}}}}
	if got, want := evidence(), state+"the export of east: west, then no cluster"; got != want {
		t.Errorf("selection = %q, want %q", got, want)
	}
	in.Here.Namespace = present(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{broker.AnnotationAffinity: "local"}}})
	if got, want := evidence(), state+"annotations of Namespace shop: west, then no cluster"; got != want {
		t.Errorf("selection = %q, want %q", got, want)
	}
	imp.Annotations = nil
	if got := evidence(); got != "" {
		t.Errorf("selection = %q, want no step without a preference", got)
	}
}

// docs/spec/explain.md 3: a server with records is named where the objects have no records.
func TestOldAnswer(t *testing.T) {
	w := walk{in: input(), target: Target{Service: "db"}, expected: expectation{known: true}}
	if f := w.answerFault(&Reply{Values: []string{"10.1.0.9"}}, "NOERROR"); f.code != reason.DNSOldAnswer {
		t.Errorf("fault = %+v, want %s", f, reason.DNSOldAnswer)
	}
}

// The chain ends with the cause, and a report is the same for the same input.
func TestChain(t *testing.T) {
	in := input()
	away(in)
	r := Find(*in)
	last := r.Chain[len(r.Chain)-2:]
	if last[0].Mark != Wrong || last[1].Mark != Skipped {
		t.Errorf("the chain ends with %+v, want the cause and what is skipped", last)
	}
	if again := Find(*in); !slices.Equal(again.Chain, r.Chain) {
		t.Errorf("chains of one input = %+v and %+v", r.Chain, again.Chain)
	}
}

func TestLocate(t *testing.T) {
	for _, tt := range []struct {
		name string
		want Target
		ok   bool
	}{
		{"DB.Shop.svc.clusterset.local.", Target{Relative: "db.shop.svc", Namespace: "shop", Service: "db"}, true},
		{"a.b.c.db.shop.svc.clusterset.local", Target{Relative: "a.b.c.db.shop.svc", Namespace: "shop", Service: "db",
			Left: "a.b.c"}, true},
		{"_p._udp.a.b.db.shop.svc.clusterset.local", Target{Relative: "_p._udp.a.b.db.shop.svc", Namespace: "shop",
			Service: "db",
			Port:    "p", Protocol: "udp", Left: "a.b"}, true},
		{"clusterset.local", Target{}, false},
		{"db.shop", Target{}, false},
	} {
		if got, ok := Locate(tt.name, "clusterset.local"); got != tt.want || ok != tt.ok {
			t.Errorf("Locate(%q) = %+v, %t, want %+v, %t", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

// docs/spec/explain.md 2: only answers prove that a name resolves, each server counts, and a Pod that was not asked is
// never overruled.
func TestServers(t *testing.T) {
	good := Reply{Asked: true, Values: []string{"10.1.0.1"}}
	nx := Reply{Asked: true, Rcode: dns.RcodeNameError}
	gone := Reply{Asked: true, Failure: "no answer in time"}
	const none = "Service kube-system/kube-dns has no ready Pod"
	for name, tt := range map[string]struct {
		servers  []Server
		want     reason.Code
		resolves bool
	}{
		"nothing to ask":    {want: reason.ObjectsOK},
		"nothing was asked": {servers: []Server{{Role: ClusterDNS, Unread: "no right"}}, want: reason.ObjectsOK},
		"all are right": {servers: []Server{{Role: ClusterSetDNS, TCP: good}, {Role: ClusterDNS, TCP: good}},
			want: reason.Resolves, resolves: true},
		"one was not asked": {servers: []Server{{Role: ClusterDNS, TCP: good}, {Role: ClusterDNS, Unread: "no right"}},
			want: reason.NotReadable, resolves: true},
		"one of two lacks the zone": {servers: []Server{{Role: ClusterDNS, TCP: good}, {Role: ClusterDNS, TCP: nx}},
			want: reason.DNSReplicasDiffer},
		"one of two hangs": {servers: []Server{{Role: ClusterSetDNS, TCP: gone}, {Role: ClusterSetDNS, TCP: good}},
			want: reason.DNSReplicasDiffer},
		"the cluster's alone lacks the zone": {servers: []Server{{Role: ClusterSetDNS, TCP: good},
			{Role: ClusterDNS, TCP: nx}}, want: reason.DNSNotWired},
		"the clusterset's hangs": {servers: []Server{{Role: ClusterSetDNS, TCP: gone},
			{Role: ClusterDNS, TCP: Reply{Asked: true, Rcode: dns.RcodeServerFailure}}}, want: reason.DNSUnreachable},
		"only the node cache has the zone": {servers: []Server{{Role: ClusterSetDNS, TCP: good},
			{Role: ClusterDNS, TCP: nx}}, want: reason.DNSNotWired, resolves: true},
		"the cluster's has no Pod": {servers: []Server{{Role: ClusterSetDNS, TCP: good},
			{Role: ClusterDNS, Without: true, TCP: Reply{Asked: true, Failure: none}}}, want: reason.DNSUnreachable},
		"the clusterset's has no Pod": {servers: []Server{{Role: ClusterSetDNS, Without: true,
			TCP: Reply{Asked: true, Failure: none}}}, want: reason.DNSNoEndpoint},
	} {
		in := input()
		in.Servers = tt.servers
		if name == "only the node cache has the zone" {
			in.Wiring = present(Wiring{Resolvers: []wiring.Resolver{{Kind: wiring.NodeLocal, Route: wiring.RouteWanted}}})
		}
		if v := Find(*in).Verdict; v.Code != tt.want || v.Resolves != tt.resolves {
			t.Errorf("%s: verdict %+v, want %s, resolves %t", name, v, tt.want, tt.resolves)
		}
	}
}

// Not each answer to a question above the services is right.
func TestServersAbove(t *testing.T) {
	const zone = "clusterset.local"
	for _, tt := range []struct {
		name  string
		reply Reply
		want  reason.Code
	}{
		{zone, Reply{Zone: zone}, reason.Resolves},
		{"ns.dns." + zone, Reply{Values: []string{"10.0.0.1"}}, reason.Resolves},
		{zone, Reply{}, reason.DNSNotWired},
		{zone, Reply{Zone: zone, Rcode: dns.RcodeNameError}, reason.DNSLacksName},
		{"dns-version." + zone, Reply{Values: []string{"192.0.2.1"}}, reason.DNSOtherAnswer},
	} {
		in := input()
		tt.reply.Asked = true
		in.Name, in.Servers = tt.name, []Server{{Role: ClusterDNS, TCP: tt.reply}}
		if v := Find(*in).Verdict; v.Code != tt.want {
			t.Errorf("%s, reply %+v: verdict %+v, want %s", tt.name, tt.reply, v, tt.want)
		}
	}
}

// docs/spec/explain.md 5: a warning alone is no problem, if all servers were asked.
func TestWarning(t *testing.T) {
	good := Reply{Asked: true, Values: []string{"10.1.0.1"}}
	for name, tt := range map[string]struct {
		servers []Server
		known   bool
	}{
		"all were asked":    {[]Server{{Role: ClusterDNS, TCP: good}}, true},
		"one was not":       {[]Server{{Role: ClusterDNS, TCP: good}, {Role: ClusterDNS, Unread: "no right"}}, false},
		"nothing was asked": {nil, false},
	} {
		in := input()
		in.Servers = tt.servers
		in.Wiring = present(Wiring{Problem: "no Service", Resolvers: []wiring.Resolver{{Kind: wiring.NodeLocal,
			Route: wiring.RouteElsewhere}}})
		if v := Find(*in).Verdict; v.Code != reason.DNSWiredElsewhere || !v.Found() || !v.Resolves || v.Known() != tt.known {
			t.Errorf("%s: verdict %+v, known %t; want a warning, known %t", name, v, v.Known(), tt.known)
		}
	}
}
