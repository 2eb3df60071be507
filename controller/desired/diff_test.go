package desired

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

func desiredOf(t *testing.T, records ...merge.Record) Objects {
	t.Helper()
	o, rejected := ObjectsOf(merge.Merge(shop, records, merge.Options{}), ImportingCluster{
		Sources:  []Source{sourceOf(source([]string{"http"}, "10.1.0.1"))},
		Families: []corev1.IPFamily{v4, v6}, ClusterIPs: []string{"10.96.0.9"},
	})
	o.Import.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Ready"}}
	if len(rejected) > 0 {
		t.Fatal(rejected)
	}
	return o
}

// existingOf returns what an API server holds after desiredOf was applied, with what it and others add.
func existingOf(t *testing.T, records ...merge.Record) Objects {
	t.Helper()
	var o Objects
	o.apply(Diff(desiredOf(t, records...), Objects{}))
	own(o.Import)
	o.Import.UID, o.Import.ResourceVersion, o.Import.Generation = "uid-1", "7", 3
	o.Import.Labels["someone"] = "else"
	metav1.SetMetaDataAnnotation(&o.Import.ObjectMeta, "someone", "else")
	o.Import.Status.Conditions[0].LastTransitionTime = hour(4)
	o.Import.Status.Conditions = append(o.Import.Status.Conditions, metav1.Condition{Type: "Other", Status: "False"})
	if o.Service != nil {
		o.Service.Spec.ClusterIP, o.Service.Spec.ClusterIPs = "10.96.0.9", []string{"10.96.0.9"}
		o.Service.Spec.Ports[0].TargetPort.IntVal = 80
		o.Service.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
		o.Service.UID, o.Service.ResourceVersion = "uid-2", "8"
	}
	for _, s := range o.Slices {
		s.Labels["someone"], s.UID, s.ResourceVersion, s.Generation = "else", "uid-3", "9", 2
	}
	return o
}

// written shows which objects are created, updated and deleted: import, Service, slices, status.
func written(c Changes) string {
	text := func(o Objects) string {
		var s string
		if o.Import != nil {
			s += "i"
		}
		if o.Service != nil {
			s += "s"
		}
		for range o.Slices {
			s += "e"
		}
		return s
	}
	status := ""
	if c.Status != nil {
		status = " status"
	}
	if c.ServiceStatus != nil {
		status += " service status"
	}
	return fmt.Sprintf("+%s ~%s -%s%s", text(c.Create), text(c.Update), text(c.Delete), status)
}

// docs/spec/controller.md 10.2: compare before write, owned fields only.
func TestDiff(t *testing.T) {
	b := record("b", 1, label("x", "1"), annotation("y", "2"))
	for _, tt := range []struct {
		name     string
		desired  Objects
		existing func(*Objects)
		want     string
	}{
		{name: "nothing but what others own", desired: desiredOf(t, b), want: "+ ~ -"},
		{name: "nothing exists", desired: desiredOf(t, b), existing: func(o *Objects) { *o = Objects{} }, want: "+ise ~ -"},
		{name: "last exporter gone", want: "+ ~ -ise"},
		{name: "drift of a label", desired: desiredOf(t, b), existing: func(o *Objects) { o.Import.Labels["x"] = "9" },
			want: "+ ~i -"},
		{name: "a label of ours was removed", desired: desiredOf(t, b),
			existing: func(o *Objects) { delete(o.Import.Labels, "x") }, want: "+ ~i -"},
		{name: "a label is exported no longer", desired: desiredOf(t, record("b", 1, annotation("y", "2"))), want: "+ ~i -"},
		{name: "an annotation is exported no longer", desired: desiredOf(t, record("b", 1, label("x", "1"))),
			existing: func(o *Objects) {
				o.Import.Annotations["y"] = "2"
			}, want: "+ ~i -"},
		{name: "drift of the spec", desired: desiredOf(t, b), existing: func(o *Objects) { o.Import.Spec.IPs = nil },
			want: "+ ~i -"},
		{name: "another port", desired: desiredOf(t, record("b", 1, label("x", "1"), annotation("y", "2"),
			ports("http/TCP/81"))), want: "+ ~is -"},
		{name: "drift of the status", desired: desiredOf(t, b),
			existing: func(o *Objects) { o.Import.Status.Clusters = nil }, want: "+ ~ - status"},
		{name: "a condition turns", desired: desiredOf(t, b),
			existing: func(o *Objects) { o.Import.Status.Conditions[0].Status = "False" }, want: "+ ~ - status"},
		{name: "turned Headless", desired: desiredOf(t, record("b", 1, label("x", "1"), annotation("y", "2"), headless)),
			want: "+ ~ie -s"},
		{name: "drift of a slice", desired: desiredOf(t, b), existing: func(o *Objects) { o.Slices[0].Endpoints = nil },
			want: "+ ~e -"},
		{name: "drift of a slice's label", desired: desiredOf(t, b),
			existing: func(o *Objects) { o.Slices[0].Labels[corev1.IsHeadlessService] = "" }, want: "+ ~e -"},
		{name: "a slice of another import", desired: desiredOf(t, b), existing: func(o *Objects) {
			o.Slices[0].Labels[mcsv1beta1.LabelServiceName] = "web"
		}, want: "+ ~e -"},
		{name: "a slice of another family", desired: desiredOf(t, b),
			existing: func(o *Objects) { o.Slices[0].AddressType = discoveryv1.AddressTypeIPv6 }, want: "+e ~ -e"},
		{name: "a slice too many", desired: desiredOf(t, b), existing: func(o *Objects) {
			more := o.Slices[0].DeepCopy()
			more.Name = "imported-more"
			o.Slices = append(o.Slices, more)
		}, want: "+ ~ -e"},
		{name: "derived Service with a selector", desired: desiredOf(t, b),
			existing: func(o *Objects) { o.Service.Spec.Selector = map[string]string{"a": "b"} }, want: "+ ~s -"},
		{name: "derived Service with another primary family", desired: desiredOf(t, b),
			existing: func(o *Objects) { o.Service.Spec.IPFamilies[0] = v6 }, want: "+ ~s -"},
		{name: "derived Service that became headless", desired: desiredOf(t, b),
			existing: func(o *Objects) { o.Service.Spec.ClusterIP = corev1.ClusterIPNone }, want: "+s ~ -s"},
		{name: "affinity of the derived Service", desired: desiredOf(t, b),
			existing: func(o *Objects) { o.Service.Spec.SessionAffinity = "ClientIP" }, want: "+ ~s -"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			existing := existingOf(t, b)
			if tt.existing != nil {
				tt.existing(&existing)
			}
			before := mustJSON(t, existing)
			got := Diff(tt.desired, existing)
			if text := written(got); text != tt.want || len(got.Foreign) > 0 {
				t.Errorf("changes = %s, foreign %v, want %s", text, got.Foreign, tt.want)
			}
			if empty := tt.want == "+ ~ -"; got.Empty() != empty {
				t.Errorf("Empty = %v, want %v", got.Empty(), empty)
			}
			for _, o := range []metav1.Object{got.Update.Import, got.Update.Service} {
				if !isNil(o) && (o.GetUID() == "" || o.GetResourceVersion() == "") {
					t.Errorf("update of %s without UID and resource version", o.GetName())
				}
			}
			if after := mustJSON(t, existing); after != before {
				t.Errorf("existing = %s after the diff, want %s", after, before)
			}
		})
	}
}

func isNil(o metav1.Object) bool {
	switch o := o.(type) {
	case *mcsv1beta1.ServiceImport:
		return o == nil
	case *corev1.Service:
		return o == nil
	}
	return false
}

// docs/spec/controller.md 1.4: objects without our label are neither changed nor deleted. docs/spec/controller.md 5.6:
// such a Service is never adopted.
func TestDiffLeavesOthersAlone(t *testing.T) {
	b := record("b", 1)
	existing := existingOf(t, b)
	delete(existing.Import.Labels, broker.LabelManagedBy)
	existing.Service.Labels = nil
	existing.Slices[0].Labels[discoveryv1.LabelManagedBy] = "someone"
	got := Diff(desiredOf(t, record("b", 1, ports("http/TCP/81"))), existing)
	if !got.Empty() {
		t.Errorf("changes = %s, want none", written(got))
	}
	want := fmt.Sprintf("[EndpointSlice shop/%s Service shop/%s ServiceImport shop/db]", existing.Slices[0].Name,
		existing.Service.Name)
	if fmt.Sprint(got.Foreign) != want {
		t.Errorf("foreign = %v, want %s", got.Foreign, want)
	}
	if len(got.Blocked) != 1 || got.Blocked[0].Name != existing.Slices[0].Name || len(got.Blocked[0].Endpoints) == 0 {
		t.Errorf("blocked = %v, want the slice as it is desired", got.Blocked)
	}
	if got := Diff(Objects{}, existing); !got.Empty() || len(got.Foreign) > 0 {
		t.Errorf("changes = %s, foreign %v when nothing is desired, want neither", written(got), got.Foreign)
	}
}

// docs/spec/controller.md 1.4: the mark alone does not make an object ours.
func TestDiffOfWhatIsOurs(t *testing.T) {
	b := record("b", 1)
	for _, tt := range []struct {
		name     string
		existing func(*Objects)
		want     string // of nothing desired
	}{
		{name: "all", existing: func(*Objects) {}, want: "+ ~ -ise"},
		{name: "an exported slice", existing: func(o *Objects) { o.Slices[0].Labels[broker.LabelSourceNamespace] = "shop" },
			want: "+ ~ -is"},
		{name: "a Service of no import", existing: func(o *Objects) {
			delete(o.Service.Labels,
				mcsv1beta1.LabelServiceName)
		}, want: "+ ~ -ie"},
		{name: "a Service with the name of another import",
			existing: func(o *Objects) { o.Service.Labels[mcsv1beta1.LabelServiceName] = "web" }, want: "+ ~ -ie"},
	} {
		existing := existingOf(t, b)
		tt.existing(&existing)
		if got := written(Diff(Objects{}, existing)); got != tt.want {
			t.Errorf("%s: changes = %s, want %s", tt.name, got, tt.want)
		}
	}
}

// docs/spec/controller.md 6.1: lastTransitionTime moves only with status.
func TestTransitionTime(t *testing.T) {
	b := record("b", 1)
	desired, existing := desiredOf(t, b), existingOf(t, b)
	desired.Import.Status.Conditions[0].Message = "new"
	got := Diff(desired, existing).Status
	if got == nil || !got.Status.Conditions[0].LastTransitionTime.Equal(new(hour(4))) || len(got.Status.Conditions) != 1 {
		t.Errorf("status = %+v, want our condition with the time that stands", got)
	}
	desired.Import.Status.Conditions[0].Status = "False"
	if got := Diff(desired, existing).Status.Status.Conditions[0].LastTransitionTime; !got.IsZero() {
		t.Errorf("time of transition = %s, want none: it is the writer's", got)
	}
}

// docs/spec/controller.md 5.6: the derived Service, whole, and which families it may have.
func TestDerivedService(t *testing.T) {
	r := merge.Merge(shop, []merge.Record{
		record("a", 1, ports("/TCP/80/h2c"), families(v6, v4), clientIP(9), policy("Local"), distribution("PreferClose")),
		record("b", 2, ports("dns/UDP/53"), families(v6, v4), clientIP(9), policy("Local"), distribution("PreferClose")),
	}, merge.Options{})
	o, _ := ObjectsOf(r, ImportingCluster{Families: []corev1.IPFamily{v4, v6}, ClusterIPs: []string{"10.96.0.9", "fd00::9"}})
	want := `{"kind":"Service","apiVersion":"v1","metadata":{"name":"` + DerivedName("shop", "db") + `","namespace":"shop",` +
		`"labels":{"app.kubernetes.io/managed-by":"controller.clusterset-dns.io","multicluster.kubernetes.io/service-name":"db"}},` +
		`"spec":{"ports":[{"name":"tcp-80","protocol":"TCP","appProtocol":"h2c","port":80,"targetPort":0},{"name":"dns","protocol":"UDP","port":53,"targetPort":0}],` +
		`"type":"ClusterIP","sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":9}},` +
		`"ipFamilies":["IPv6","IPv4"],"ipFamilyPolicy":"RequireDualStack","internalTrafficPolicy":"Local","trafficDistribution":"PreferClose"},` +
		`"status":{"loadBalancer":{}}}`
	if got := mustJSON(t, o.Service); got != want {
		t.Errorf("Service = %s\nwant %s", got, want)
	}
	if fmt.Sprint(o.Import.Spec.IPs, o.Import.Spec.IPFamilies) != "[10.96.0.9 fd00::9] [IPv4 IPv6]" {
		t.Errorf("import has %v of %v, want the cluster IPs and their families", o.Import.Spec.IPs, o.Import.Spec.IPFamilies)
	}
	if named := o.Import.Annotations[broker.AnnotationDerivedService]; named != o.Service.Name {
		t.Errorf("import names %q, want %s", named, o.Service.Name)
	}
	if o, _ := ObjectsOf(r, ImportingCluster{Families: []corev1.IPFamily{v4,
		v6}}); o.Import.Annotations[broker.AnnotationDerivedService] != "" {
		t.Errorf("import names a Service without addresses: its name may be taken")
	}
	if o, _ := ObjectsOf(r, ImportingCluster{Families: []corev1.IPFamily{v4}}); fmt.Sprint(o.Service.Spec.IPFamilies) != "[IPv4]" ||
		*o.Service.Spec.IPFamilyPolicy != "SingleStack" {
		t.Errorf("families = %v, want those of the cluster", o.Service.Spec.IPFamilies)
	}
	v6only := merge.Merge(shop, []merge.Record{record("a", 1, families(v6))}, merge.Options{})
	if o, _ := ObjectsOf(v6only, ImportingCluster{Families: []corev1.IPFamily{v4}}); o.Service != nil ||
		len(v6only.Families([]corev1.IPFamily{v4})) > 0 {
		t.Errorf("Service = %+v in a cluster without IPv6, want none", o.Service)
	}
	for name, r := range map[string]merge.Result{
		"headless": merge.Merge(shop, []merge.Record{record("a", 1, headless)}, merge.Options{}),
		"none":     merge.Merge(shop, []merge.Record{record("a", 1)}, merge.Options{VIP: merge.NoVIP}),
		"no ports": merge.Merge(shop, []merge.Record{record("a", 1, ports())}, merge.Options{}),
	} {
		if o, _ := ObjectsOf(r, ImportingCluster{Families: []corev1.IPFamily{v4}}); o.Service != nil ||
			o.Import.Annotations[broker.AnnotationDerivedService] != "" {
			t.Errorf("%s: Service = %+v, import has %v, want none", name, o.Service, o.Import.Annotations)
		}
	}
}

// docs/spec/controller.md 5.7: a Service carries the clusterset IPs of the families that this cluster has, as addresses
// of a load balancer that no cloud makes.
func TestRoutedService(t *testing.T) {
	of := func(ip string) merge.Result {
		o := merge.Options{VIP: merge.CIDR, VIPs: merge.VIPs{Pools: pools()}}
		o.VIPs.Claims = claims("a "+ip+" 1", "a fd17:87d8:f436::1 1")
		exported := record("a", 1, ports("/TCP/80", "dns/UDP/53"), families(v6, v4), vip(true))
		return merge.Merge(shop, []merge.Record{exported}, o)
	}
	both := ImportingCluster{Families: []corev1.IPFamily{v4, v6}, ClusterIPs: []string{"fd00::9", "10.96.0.9"}}
	made, _ := ObjectsOf(of("243.0.0.1"), both)
	want := `{"ports":[{"name":"tcp-80","protocol":"TCP","port":80,"targetPort":0},{"name":"dns","protocol":"UDP","port":53,"targetPort":0}],` +
		`"type":"LoadBalancer","sessionAffinity":"None","externalTrafficPolicy":"Cluster","ipFamilies":["IPv6","IPv4"],"ipFamilyPolicy":"RequireDualStack",` +
		`"allocateLoadBalancerNodePorts":false,"loadBalancerClass":"clusterset-dns.io/vip"}`
	if got := mustJSON(t, made.Service.Spec); got != want {
		t.Errorf("Service = %s\nwant %s", got, want)
	}
	ingress := func(s *corev1.Service) string { return mustJSON(t, s.Status.LoadBalancer.Ingress) }
	if got, want := ingress(made.Service), `[{"ip":"fd17:87d8:f436::1","ipMode":"VIP"},{"ip":"243.0.0.1","ipMode":"VIP"}]`; got != want {
		t.Errorf("ingress = %s, want %s", got, want)
	}
	if fmt.Sprint(made.Import.Spec.IPs) != "[fd17:87d8:f436::1 243.0.0.1]" ||
		made.Import.Annotations[broker.AnnotationDerivedService] != made.Service.Name {
		t.Errorf("import has %v and %v, want the clusterset IPs and the name of the Service", made.Import.Spec.IPs,
			made.Import.Annotations)
	}
	single, _ := ObjectsOf(of("243.0.0.1"), ImportingCluster{Families: []corev1.IPFamily{v4}})
	if got, want := ingress(single.Service), `[{"ip":"243.0.0.1","ipMode":"VIP"}]`; got != want {
		t.Errorf("ingress = %s in a cluster without IPv6, want %s", got, want)
	}

	var existing Objects
	existing.apply(Diff(made, Objects{}))
	existing.Service.Status = corev1.ServiceStatus{} // the API server takes no status with the Service
	if got := written(Diff(made, existing)); got != "+ ~ - service status" {
		t.Errorf("after the Service was created: %s, want its status", got)
	}
	existing.apply(Diff(made, existing))
	existing.Service.Status.LoadBalancer.Ingress[0].IPMode = nil // as before Kubernetes 1.30
	if got := Diff(made, existing); !got.Empty() {
		t.Errorf("again: %s, want nothing", written(got))
	}
	other, _ := ObjectsOf(of("243.0.0.2"), both)
	if got := written(Diff(other, existing)); got != "+ ~i - service status" {
		t.Errorf("another address: %s, want the import and the status of the Service", got)
	}
	existing.Service.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
	if got := written(Diff(made, existing)); got != "+ ~s -" {
		t.Errorf("drift: %s, want the Service", got)
	}
	taken := existing.Service.DeepCopy()
	taken.Spec.LoadBalancerClass = new("someone.example/lb")
	if got := written(Diff(Objects{Service: made.Service}, Objects{Service: taken})); got != "+s ~ -s" {
		t.Errorf("another class: %s, want the Service made anew, as its class cannot change", got)
	}
	plain, _ := ObjectsOf(merge.Merge(shop, []merge.Record{record("a", 1, ports("/TCP/80", "dns/UDP/53"), families(v6, v4))},
		merge.Options{}), both)
	if got := Diff(Objects{Service: made.Service}, Objects{Service: plain.Service}); got.Update.Service == nil ||
		got.Delete.Service != nil {
		t.Errorf("another type: %s, want the Service to be changed in place", written(got))
	}
	both.Unrouted = true
	if kept, _ := ObjectsOf(of("243.0.0.1"), both); fmt.Sprint(kept.Import.Spec.IPs) != "[fd00::9 10.96.0.9]" ||
		kept.Import.Annotations[broker.AnnotationAllocatedBy] != "" ||
		ingress(kept.Service) != ingress(made.Service) {
		t.Errorf("import = %+v, Service = %+v; want the cluster IPs until the Service carries the clusterset IPs",
			kept.Import, kept.Service)
	}
	without := merge.Merge(shop, []merge.Record{record("a", 1)}, merge.Options{VIP: merge.CIDR})
	if o, _ := ObjectsOf(without, both); o.Service != nil {
		t.Errorf("Service = %+v of an import without clusterset IPs, want none", o.Service)
	}
}

// docs/spec/controller.md 5.6: whatever field of the spec someone else changes is put right, but for those that the API
// server allocates.
func TestDerivedServiceIsPutRight(t *testing.T) {
	const allocated = "clusterIP clusterIPs healthCheckNodePort"
	theirs := map[string]string{
		"type": `"NodePort"`, "ports": `[{"port":81}]`, "selector": `{"a":"b"}`, "clusterIP": `"10.96.0.8"`, "clusterIPs": `["10.96.0.8"]`,
		"ipFamilies": `["IPv4"]`, "ipFamilyPolicy": `"PreferDualStack"`, "externalName": `"a.example"`, "externalIPs": `["192.0.2.1"]`,
		"sessionAffinity": `"ClientIP"`, "sessionAffinityConfig": `{"clientIP":{"timeoutSeconds":9}}`, "publishNotReadyAddresses": `true`,
		"internalTrafficPolicy": `"Local"`, "externalTrafficPolicy": `"Local"`, "trafficDistribution": `"PreferClose"`, "healthCheckNodePort": `30000`,
		"loadBalancerIP": `"192.0.2.1"`, "loadBalancerSourceRanges": `["192.0.2.0/24"]`, "loadBalancerClass": `"a.example/b"`,
		"allocateLoadBalancerNodePorts": `true`,
	}
	b := record("b", 1, families(v4, v6))
	desired := desiredOf(t, b)
	for f := range reflect.TypeFor[corev1.ServiceSpec]().Fields() {
		field, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		existing := existingOf(t, b)
		if err := json.Unmarshal(fmt.Appendf(nil, `{%q:%s}`, field, theirs[field]), &existing.Service.Spec); err != nil {
			t.Errorf("%s: %v; want a value that someone else may set", field, err)
			continue
		}
		update := Diff(desired, existing).Update.Service
		if ours := !strings.Contains(allocated, field); (update != nil) != ours {
			t.Errorf("%s: put right: %t, want %t", field, update != nil, ours)
		} else if ours && !strings.Contains(string(Patch(update, existing.Service)), fmt.Sprintf("%q:", field)) {
			t.Errorf("%s: patch = %s, want the field in it", field, Patch(update, existing.Service))
		}
	}
}

// The primary family of a Service cannot change, so another order is no reason to write it or make it anew.
func TestPrimaryFamilyStays(t *testing.T) {
	both := ImportingCluster{Families: []corev1.IPFamily{v4, v6}}
	first, _ := ObjectsOf(merge.Merge(shop, []merge.Record{record("a", 1, families(v4, v6))}, merge.Options{}), both)
	second, _ := ObjectsOf(merge.Merge(shop, []merge.Record{record("a", 1, families(v6, v4))}, merge.Options{}), both)
	if got := Diff(Objects{Service: second.Service}, Objects{Service: first.Service}); !got.Empty() {
		t.Errorf("changes = %s, families %v, want none", written(got), got.Update.Service.Spec.IPFamilies)
	}
	more, _ := ObjectsOf(merge.Merge(shop, []merge.Record{record("a", 1, families(v6, v4))}, merge.Options{}), both)
	single := first.Service.DeepCopy()
	single.Spec.IPFamilies, single.Spec.IPFamilyPolicy = []corev1.IPFamily{v4}, new(corev1.IPFamilyPolicySingleStack)
	got := Diff(Objects{Service: more.Service}, Objects{Service: single})
	if got.Update.Service == nil || fmt.Sprint(got.Update.Service.Spec.IPFamilies) != "[IPv4 IPv6]" {
		t.Errorf("changes = %s, want an update to IPv4 and IPv6", written(got))
	}
	other, _ := ObjectsOf(merge.Merge(shop, []merge.Record{record("a", 1, families(v6))}, merge.Options{}), both)
	got = Diff(other, Objects{Import: other.Import, Service: single})
	if got.Update.Service == nil || fmt.Sprintf("%v %s", got.Update.Service.Spec.IPFamilies,
		*got.Update.Service.Spec.IPFamilyPolicy) != "[IPv4 IPv6] RequireDualStack" {
		t.Errorf("changes = %s when only IPv6 is exported, want an update that adds IPv6", written(got))
	}
}
