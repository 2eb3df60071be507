package desired

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

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
		if o.Service.Spec.InternalTrafficPolicy == nil { // the default
			o.Service.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
		}
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

// FuzzSlices decodes anything into records and slices. Whatever it is, nothing panics, and what comes out is no larger
// than what went in allows.
func FuzzSlices(f *testing.F) {
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
		var records []merge.Record
		var list []*discoveryv1.EndpointSlice
		_ = json.Unmarshal(text, &records) // as far as it goes
		_ = json.Unmarshal(offered, &list)
		list = slices.DeleteFunc(list, func(s *discoveryv1.EndpointSlice) bool { return s == nil })
		r := merge.Merge(shop, records, newGenerator(uint64(seed)).options())
		for _, m := range r.Members {
			imported, rejected := Slices(r, Source{Cluster: m.Cluster, Slices: list,
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
