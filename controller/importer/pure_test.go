package importer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/metrics"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
)

// docs/spec/controller.md 4, as it holds for an import that stays as it is: which ports of our own count under which
// name.
func TestOwnContribution(t *testing.T) {
	port := func(name string, number int32) v1alpha1.ServicePort {
		return v1alpha1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: number}
	}
	imp := &mcsv1beta1.ServiceImport{Spec: mcsv1beta1.ServiceImportSpec{
		Type: mcsv1beta1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports: []mcsv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80},
			{Protocol: corev1.ProtocolTCP, Port: 443}},
	}}
	derived := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "tcp-443", Protocol: corev1.ProtocolTCP, Port: 443},
	}}}
	for _, tt := range []struct {
		name string
		own  []v1alpha1.ServicePort
		want string
	}{
		{name: "by name", own: []v1alpha1.ServicePort{port("http", 80)}, want: "http=http"},
		{name: "by number", own: []v1alpha1.ServicePort{port("web", 80)}, want: "web=http"},
		{name: "the name of another", own: []v1alpha1.ServicePort{port("http", 443)}, want: "PortConflict"},
		{name: "unnamed, as the derived Service has it", own: []v1alpha1.ServicePort{port("", 443)}, want: "=tcp-443"},
		{name: "unknown", own: []v1alpha1.ServicePort{port("new", 81), port("http", 80)}, want: "http=http"},
		{name: "none known", own: []v1alpha1.ServicePort{port("new", 81)}, want: "PortConflict"},
	} {
		r := ownContribution(imp, derived, merge.Merge(db, []merge.Record{{Cluster: "east",
			Spec: v1alpha1.ExportedServiceSpec{
				Namespace: "shop", Name: "db", Type: v1alpha1.ClusterSetIP, IPFamilies: imp.Spec.IPFamilies, Ports: tt.own,
				ExportCreated: metav1.Now(),
			}}}, merge.Options{}))
		if len(r.Members) != 1 || len(r.Import.Spec.Ports) != 2 {
			t.Fatalf("%s: result = %+v, want one member, and the ports of the import", tt.name, r)
		}
		got := string(r.Members[0].LeftOut)
		for _, p := range r.Members[0].Ports {
			got += p.From + "=" + p.To
		}
		if got != tt.want {
			t.Errorf("%s: ports = %s, want %s", tt.name, got, tt.want)
		}
	}
	if r := ownContribution(imp, nil, merge.Result{}); r.Import != nil {
		t.Error("an import of no record, want none")
	}
}

// docs/spec/controller.md 6: Ready of the import.
func TestReadiness(t *testing.T) {
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	port := []mcsv1beta1.ServicePort{{Port: 1}}
	for _, tt := range []struct {
		name    string
		spec    mcsv1beta1.ServiceImportSpec
		local   []corev1.IPFamily
		derived bool
		wanted  bool
		taken   []string
		failure error
		want    string
	}{
		{name: "ready", spec: mcsv1beta1.ServiceImportSpec{IPs: []string{"10.0.0.1"}, Ports: port}, derived: true,
			want: "True Ready The service can be used in this cluster."},
		{name: "no address wanted", spec: mcsv1beta1.ServiceImportSpec{Ports: port},
			want: "True Ready The service can be used in this cluster."},
		{name: "headless without ports", spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.Headless}, wanted: true,
			want: "True Ready The service can be used in this cluster."},
		{name: "other families", local: []corev1.IPFamily{v6}, spec: mcsv1beta1.ServiceImportSpec{Ports: port},
			want: "False IPFamilyNotSupported The service has IPv4, and this cluster has IPv6. [import-families]"},
		{name: "name taken", taken: []string{"Service shop/a", "Service shop/b"},
			spec: mcsv1beta1.ServiceImportSpec{Ports: port},
			want: "False Pending Waiting for a name that is taken by an object which is not ours: Service shop/a, Service shop/b. [import-pending]"},
		{name: "no address yet", derived: true, spec: mcsv1beta1.ServiceImportSpec{Ports: port},
			want: "False Pending Waiting for the addresses of the derived Service. [import-pending]"},
		{name: "a Service that fails", derived: true, failure: errors.New("no"),
			spec: mcsv1beta1.ServiceImportSpec{Ports: port},
			want: "False Pending Waiting for the derived Service: the last attempt to write it failed and is repeated. [import-pending]"},
		{name: "a dead webhook", derived: true,
			failure: errors.New(`Internal error occurred: failed calling webhook "away.example.org": failed to call webhook: EOF`),
			spec:    mcsv1beta1.ServiceImportSpec{Ports: port},
			want: `False Pending Waiting for the derived Service: the API server cannot call the admission webhook "away.example.org". ` +
				"[import-webhook]"},
		{name: "nothing allocated", wanted: true, spec: mcsv1beta1.ServiceImportSpec{Ports: port},
			want: "False Pending Waiting for an exporter to claim a clusterset IP. [import-pending]"},
		{name: "reached on no node",
			want: "True Ready The service has its addresses, but connections to them fail: its internalTrafficPolicy is Local, " +
				"and no node of this cluster has an endpoint of it.",
			spec: mcsv1beta1.ServiceImportSpec{IPs: []string{"10.0.0.1"}, Ports: port,
				InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyLocal)}},
		{name: "no port", want: "False Pending Waiting for a port: the exports have none. [import-pending]"},
	} {
		if tt.spec.Type == "" {
			tt.spec.Type = mcsv1beta1.ClusterSetIP
		}
		tt.spec.IPFamilies = []corev1.IPFamily{v4}
		if tt.local == nil {
			tt.local = []corev1.IPFamily{v4, v6}
		}
		imp := &mcsv1beta1.ServiceImport{Spec: tt.spec}
		p := plan{result: merge.Result{Import: imp}, cluster: desired.ImportingCluster{Families: tt.local}, wanted: tt.wanted}
		o := desired.Objects{Import: imp}
		if tt.derived {
			o.Service = &corev1.Service{}
		}
		c := readiness(p, o, tt.taken, tt.failure)
		if got := fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// Each rejection is logged once, and the memory for that is bounded.
func TestRejections(t *testing.T) {
	rs := NewRejections(&logtest.Recorder{}, metrics.New(nil, metrics.Labels{}))
	var named int
	for n := range maxNamed + 10 {
		r := merge.Rejection{Cluster: "west", Object: types.NamespacedName{Name: fmt.Sprint(n)}.String(),
			Reason: merge.BadSlice}
		first, last := rs.first(r)
		if again, _ := rs.first(r); again {
			t.Fatal("a rejection is logged twice")
		}
		if first {
			named++
		}
		if last != (first && named == maxNamed) {
			t.Fatalf("rejection %d: last = %t", n, last)
		}
	}
	if named != maxNamed || len(rs.logged["west"]) != maxNamed {
		t.Errorf("logged %d and remembered %d, want %d", named, len(rs.logged["west"]), maxNamed)
	}
	if first, _ := rs.first(merge.Rejection{Cluster: "north", Object: "0", Reason: merge.BadSlice}); !first {
		t.Error("the rejections of one cluster hide those of another")
	}
	for _, cluster := range []string{"north", merge.Local} {
		again := merge.Rejection{Cluster: cluster, Object: "Namespace shop", Reason: merge.BadWeights}
		var logged []bool
		for _, again.Detail = range []string{"a", "a", "b"} {
			first, _ := rs.first(again)
			logged = append(logged, first)
		}
		if want := []bool{true, false, cluster == merge.Local}; !slices.Equal(logged, want) {
			t.Errorf("of cluster %q: logged %t, want %t", cluster, logged, want)
		}
	}
}

// docs/spec/explain.md 4: the log line of a rejection ends with the code of its cause.
func TestRejectionsNameCodes(t *testing.T) {
	log := &logtest.Recorder{}
	rs := NewRejections(log, metrics.New(nil, metrics.Labels{}))
	for want, r := range map[string]merge.Rejection{
		`rejected of cluster "west": a (cidr): d [endpoints-undeclared]`:    {Cluster: "west", Object: "a", Reason: merge.AlienCIDR, Detail: "d"},
		`rejected of cluster "west": b (undecodable): d [record-invalid]`:   {Cluster: "west", Object: "b", Reason: merge.Undecodable, Detail: "d"},
		`rejected of cluster "west": c (namespace): d [source-not-allowed]`: {Cluster: "west", Object: "c", Reason: merge.NotTaken, Detail: "d"},
		`rejected of cluster "west": e (namespace): d [namespace-excluded]`: {
			Cluster: "west", Object: "e", Reason: merge.NotTaken, Detail: "d", Code: reason.NamespaceExcluded,
		},
	} {
		if rs.Report(r); log.Count(want) != 1 {
			t.Errorf("%+v: not logged as %s", r, want)
		}
	}
	const local = "(undecodable): of this cluster"
	rs.Report(merge.Rejection{Cluster: merge.Local, Object: "a", Reason: merge.Undecodable, Detail: "of this cluster"})
	if log.Count(local) != 1 || log.Count(local+" [") != 0 {
		t.Error("the rejection of an object of this cluster has a code of those of other clusters, or is not logged")
	}
}

// The freeze names the imports that wait for a webhook, up to a number: clusterset explain looks for its service there.
func TestWaitingText(t *testing.T) {
	webhooks := make(map[types.NamespacedName]string)
	if got := waitingText(webhooks); got != "" {
		t.Errorf("without any: %q, want nothing", got)
	}
	for n := range maxNamedImports + 2 {
		webhooks[types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("s%02d", n)}] = "away.example.org"
	}
	got := waitingText(webhooks)
	if want := "webhook away.example.org, which"; !strings.Contains(got, want) || !strings.Contains(got, ": shop/s00, shop/s01, ") ||
		!strings.HasSuffix(got, "shop/s04, and 2 more") {
		t.Errorf("got %q, want the webhook once, five imports, and that there are more", got)
	}
}
