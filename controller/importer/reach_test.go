package importer

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// docs/spec/controller.md 3.8: only exports that reach this cluster are imported, and compared with its own.
func TestReach(t *testing.T) {
	b := newEnv(t)
	west, north := b.partner("west"), b.partner("north")
	record, slice := west.record(), west.slice("a", "10.2.0.1")
	record.Spec.ToClusters = toProperty("cluster.clusterset.k8s.io", "north")
	b.Create(record, slice)
	i := b.start(func(*Config) {})
	i.Expect("to another cluster", i.do("record", func() bool { return i.addressOf("west") != "" }))

	changed := func() bool {
		r := i.Broker.Records(db)
		return len(r) > 0 && len(r[len(r)-1].Spec.ToClusters) > 0 &&
			r[len(r)-1].Spec.ToClusters[0].MatchProperties[0].Name == "tier"
	}
	record.Spec.ToClusters = toProperty("tier", "gold")
	b.Update(record)
	i.Expect("to a tier that is not ours", i.do("record", changed))
	b.Create(&aboutv1beta1.ClusterProperty{
		ObjectMeta: metav1.ObjectMeta{Name: "tier"}, Spec: aboutv1beta1.ClusterPropertySpec{Value: "gold"},
	})
	i.Expect("to our tier", i.do("property", func() bool { return i.reader.published(nil)["tier"] == "gold" }),
		newImportWrite, newServiceWrite, importWrite, newSliceWrite, importStatus)

	b.Create(memberenv.NewExport(db), memberenv.NewService(db))
	other := north.record()
	other.Spec.Ports, other.Spec.ToClusters = []v1alpha1.ServicePort{{Name: "other", Protocol: "TCP", Port: 1}},
		toProperty("cluster.clusterset.k8s.io", "west")
	b.Create(other)
	i.do("our export", func() bool {
		return i.Member.Export(db) != nil && i.Member.Service(db) != nil && len(i.Broker.Records(db)) == 2
	})
	if got, want := clustersOfImport(i), "east west"; got != want {
		t.Errorf("clusters of the import = %s, want %s", got, want)
	}
	i.checkConflict()

	record.Spec.ToClusters = toProperty("cluster.clusterset.k8s.io", "west")
	b.Update(record)
	i.do("record to itself", func() bool {
		r := i.Broker.Records(db)
		return len(r) == 2 && r[1].Spec.ToClusters[0].MatchProperties[0].Value == "west"
	})
	if got, want := clustersOfImport(i), "east"; got != want {
		t.Errorf("clusters of the import = %s, want %s: an export that no longer reaches it goes at once", got, want)
	}
}

// checkConflict wants the ports of our export in conflict in north and west, which the third export reaches, and not
// here.
func (i importing) checkConflict() {
	i.Helper()
	c := meta.FindStatusCondition(i.Member.Export(db).Status.Conditions, "Conflict")
	for id, want := range map[string]bool{"north": true, "west": true, "east": false} {
		if got := c != nil && strings.Contains(c.Message, `In "`+id+`": Conflicting ports.`); got != want {
			i.Errorf("a conflict of ports in %s = %t, want %t: %+v", id, got, want, c)
		}
	}
}

func toProperty(name, value string) []v1alpha1.ClusterSelector {
	return []v1alpha1.ClusterSelector{{MatchProperties: []v1alpha1.Property{{Name: name, Value: value}}}}
}

func clustersOfImport(i importing) string {
	i.Helper()
	imp := i.read().Import
	if imp == nil {
		return ""
	}
	var all []string
	for _, c := range imp.Status.Clusters {
		all = append(all, c.Cluster)
	}
	return strings.Join(all, " ")
}
