package importer

import (
	"slices"
	"strings"
	"sync"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// otherLabels are changes of the labels by which a slice is found, by slice.
var otherLabels = map[string]string{
	"a": `{"multicluster.kubernetes.io/service-name":"other"}`,
	"b": `{"multicluster.kubernetes.io/service-name":null}`,
	"c": `{"kubernetes.io/service-name":"other"}`,
	"d": `{"multicluster.kubernetes.io/service-name":null,"kubernetes.io/service-name":null}`,
	"e": `{"multicluster.kubernetes.io/service-name":"other","kubernetes.io/service-name":"other"}`,
}

func (i importing) relabel() {
	i.Helper()
	for source, labels := range otherLabels {
		i.edit(&discoveryv1.EndpointSlice{}, imported("west", source), `{"metadata":{"labels":`+labels+`}}`)
	}
}

// slicesNow returns the names of all slices on the API server, with the imports that their labels name.
func (i importing) slicesNow() string {
	i.Helper()
	list := &discoveryv1.EndpointSliceList{}
	if err := i.Admin.List(i.Context(), &discoveryv1.EndpointSlice{}, list, db.Namespace, ""); err != nil {
		i.Fatal(err)
	}
	var all []string
	for n := range list.Items {
		e := &list.Items[n]
		name := e.Name
		if imp := desired.ImportName(e); imp != "" &&
			e.Labels[discoveryv1.LabelServiceName] == desired.DerivedName(e.Namespace, imp) {
			name += " of " + imp
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// docs/spec/controller.md 5.5: slice labels that someone has changed are put right while there is an import, also if no
// controller ran. Without an import the slices are deleted. Foreign slices stay.
func TestSlicesWithOtherLabels(t *testing.T) {
	b := newEnv(t)
	west := b.partner("west")
	record := west.record()
	b.Create(record)
	var sources []*discoveryv1.EndpointSlice
	var right []string
	for source := range otherLabels {
		sources = append(sources, west.slice(source, "10.2.0.1"))
		b.Create(sources[len(sources)-1])
		right = append(right, imported("west", source)+" of db")
	}
	slices.Sort(right)
	i := b.start(func(*Config) {})
	i.do("slices", func() bool { return len(i.Broker.Slices(db, "west")) == len(sources) })
	if got, want := i.slicesNow(), strings.Join(right, ", "); got != want {
		t.Fatalf("slices = %s, want %s", got, want)
	}

	i.End()
	i.relabel()
	i = b.start(func(*Config) {})
	i.do("", always)
	if got, want := i.slicesNow(), strings.Join(right, ", "); got != want {
		t.Errorf("slices of an import = %s, want %s", got, want)
	}

	i.End()
	i.relabel()
	foreign := i.createForeign()
	for _, s := range sources {
		b.Delete(s)
	}
	b.Delete(record, i.read().Import)
	i = b.start(func(*Config) {})
	for _, svc := range i.Member.Leftovers() {
		i.reconcile(svc.Name)
	}
	if got := i.slicesNow(); got != foreign {
		t.Fatalf("without an import: slices = %s, want those that are not ours: %s", got, foreign)
	}
	i.deletesWhatAppears(foreign)
}

// createSlice makes a slice as someone else would.
func (i importing) createSlice(name string, labels map[string]string) {
	i.Helper()
	i.Create(&discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: db.Namespace, Name: name, Labels: labels},
		AddressType: discoveryv1.AddressTypeIPv4,
	})
}

// createForeign makes slices with labels of imported ones that are not ours, and returns their names.
func (i importing) createForeign() string {
	i.Helper()
	const imp, service, by = mcsv1beta1.LabelServiceName, discoveryv1.LabelServiceName, discoveryv1.LabelManagedBy
	i.createSlice("by-someone", map[string]string{imp: "other", service: "other", by: "someone"})
	i.createSlice("exported", map[string]string{imp: "other", by: apibroker.ManagedBy,
		apibroker.LabelSourceNamespace: "shop"})
	i.createSlice("unmarked", map[string]string{imp: "other", service: "other"})
	return "by-someone, exported, unmarked"
}

// deletesWhatAppears lets someone give our mark to slices of no import while the controller runs.
func (i importing) deletesWhatAppears(foreign string) {
	i.Helper()
	var mu sync.Mutex
	var changed []types.NamespacedName
	err := i.Member.Handle(i.Context(), func(a member.Affected) {
		mu.Lock()
		defer mu.Unlock()
		changed = append(changed, a.Imports...)
	})
	if err != nil {
		i.Fatal(err)
	}
	i.createSlice("marked", map[string]string{discoveryv1.LabelManagedBy: apibroker.ManagedBy})
	i.createSlice("labelled", map[string]string{
		discoveryv1.LabelManagedBy: apibroker.ManagedBy, mcsv1beta1.LabelServiceName: "other",
		discoveryv1.LabelServiceName: desired.DerivedName(db.Namespace, db.Name),
	})
	i.Await("the end of what has our mark", func() bool {
		mu.Lock()
		due := changed
		changed = nil
		mu.Unlock()
		for _, svc := range due {
			i.reconcile(svc.Name)
		}
		return i.slicesNow() == foreign
	})
}
