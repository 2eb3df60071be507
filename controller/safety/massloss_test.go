package safety_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/safety"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

const west = "west"

func record(svc types.NamespacedName, namespace string) *v1alpha1.ExportedService {
	return &v1alpha1.ExportedService{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: apibroker.RecordName(svc.Namespace, svc.Name), Labels: map[string]string{
				mcsv1beta1.LabelServiceName: svc.Name, mcsv1beta1.LabelSourceCluster: west, apibroker.LabelSourceNamespace: svc.Namespace,
			},
		},
		Spec: v1alpha1.ExportedServiceSpec{
			Namespace: svc.Namespace, Name: svc.Name, Type: v1alpha1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:         []v1alpha1.ServicePort{{Name: "pg", Protocol: corev1.ProtocolTCP, Port: 5432}},
			ExportCreated: metav1.Now().Rfc3339Copy(),
		},
	}
}

// docs/spec/controller.md 8.7: more than a few losses by watch within a TTL, more than half of what is imported, freeze; when the records are
// back nothing is frozen.
func TestMassLossByWatch(t *testing.T) {
	t.Run("at once", func(t *testing.T) { testMassLossByWatch(t, 20, 0) }) // 11 is one more than a few
	t.Run("after a pause", func(t *testing.T) { testMassLossByWatch(t, 22, 11) })
}

// testMassLossByWatch loses the exports of so many services: some of them first, and as many as make a mass loss when these are confirmed.
func testMassLossByWatch(t *testing.T, services, first int) {
	env := memberenv.New(t)
	env.Join()
	namespace := env.AddMember(west, "")
	var all []types.NamespacedName
	for n := range services {
		svc := memberenv.Service(fmt.Sprint("app-", n))
		imp := &mcsv1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name, Labels: map[string]string{
				apibroker.LabelManagedBy: apibroker.ManagedBy,
			}},
			Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}},
		}
		env.Create(record(svc, namespace), imp)
		status := &mcsv1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name},
			Status:     mcsv1beta1.ServiceImportStatus{Clusters: []mcsv1beta1.ClusterStatus{{Cluster: west}}},
		}
		if err := env.Admin.Apply(t.Context(), status, "test", "status"); err != nil {
			t.Fatal(err)
		}
		all = append(all, svc)
	}
	i := env.Start()
	i.Follow(broker.Handlers{})
	l := safety.NewMassLoss(safety.MassLossConfig{
		Member: i.Member, Broker: i.Broker, ClusterID: memberenv.ID, Freezes: i.Freezes, TTL: time.Hour,
		Requeue: func(types.NamespacedName) {}, RequeueAll: func() {},
	})
	records := func(want int) func() bool {
		return func() bool {
			n := 0
			for _, svc := range all {
				n += len(i.Broker.Records(svc))
			}
			return n == want
		}
	}
	env.Await("all records", records(services))
	review := func(what string, ok func() bool) {
		t.Helper()
		env.Await(what, func() bool { l.Review(); return ok() }) // the caches may show the newest list a moment after they are complete
	}
	frozen := func() bool { return i.Freezes.Any(safety.LostRecords) }
	if review("a list that is compared", l.Compared); frozen() {
		t.Fatal("frozen with all records")
	}
	unconfirmed := func(svc types.NamespacedName) []string {
		return l.Unconfirmed(svc, i.Member.Import(svc), i.Broker.View(svc))
	}
	lose := func(from, to int) {
		for _, svc := range all[from:to] {
			env.Delete(record(svc, namespace))
		}
		env.Await("the records are gone", records(services-to))
		for _, svc := range all[from:to] {
			if got := unconfirmed(svc); !slices.Equal(got, []string{west}) {
				t.Errorf("%s: unconfirmed are %v, want %s", svc, got, west)
			}
		}
	}
	if lose(0, first); first > 0 {
		review("confirmed, as this is half", func() bool { return len(unconfirmed(all[0])) == 0 })
	}
	lose(first, services/2+1)
	review("frozen, as more than a few are lost, and more than half", frozen)
	for _, svc := range all[:services/2+1] {
		env.Create(record(svc, namespace))
	}
	env.Await("all records are back", records(services))
	review("not frozen, as the records are back", func() bool { return !frozen() })
}
