package exporter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// docs/spec/controller.md 3.7: the strategy of an export, what it writes as endpoints come and go, and that a restart
// writes nothing.
func TestExportStrategies(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(*Config) {})
	source := memberenv.NewSourceSlice(db, "db-1", "10.1.0.1")
	source.Labels[apibroker.LabelForRegion] = "r"
	b.Create(memberenv.NewExport(db), memberenv.NewService(db), source)
	again := func() bool { return true }
	step := func(what string, got []string, layout string, writes ...string) {
		t.Helper()
		for i, w := range got { // names are hashes
			verb, _, _ := strings.Cut(w, " broker/endpointslices/")
			got[i] = verb
		}
		a.Expect(what, got, writes...)
		_, all := a.Broker.Own.Objects(db)
		if is := layoutOf(all); is != layout {
			t.Errorf("%s: slices = %s, want %s", what, is, layout)
		}
		a.Expect(what+", again", a.do(db, "", again))
	}
	endpoints := func(zones ...string) []string {
		source.Endpoints = nil
		for i, zone := range zones {
			source.Endpoints = append(source.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.1.0.%d", i+1)}, Zone: &zone,
				Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			})
		}
		b.Update(source)
		return a.do(db, "endpoints seen", func() bool {
			all := a.Member.SourceSlices(db)
			return len(all) == 1 && slices.EqualFunc(all[0].Endpoints, zones, func(e discoveryv1.Endpoint, zone string) bool {
				return e.Zone != nil && *e.Zone == zone
			})
		})
	}
	strategy := func(name string) []string {
		patch, err := json.Marshal(
			map[string]any{"metadata": map[string]any{"annotations": map[string]string{apibroker.AnnotationSliceStrategy: name}}})
		if err != nil {
			t.Fatal(err)
		}
		exports := b.Server.Dynamic().Resource(mcsv1beta1.SchemeGroupVersion.WithResource("serviceexports")).Namespace(
			db.Namespace)
		if _, err := exports.Patch(t.Context(), db.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		return a.do(db, "strategy "+name, func() bool {
			return a.Member.Export(db).Annotations[apibroker.AnnotationSliceStrategy] == name
		})
	}

	a.do(db, "export seen", func() bool {
		return a.Member.Export(db) != nil && a.Member.Service(db) != nil && len(a.Member.SourceSlices(db)) == 1
	})
	step("five endpoints", endpoints("a", "a", "a", "b", "b"), "/r:5", "PATCH")
	step("unknown", strategy("zone"), "/r:5", statusWrite)
	if got, want := a.ConditionsOf(db), "Ready=True/Exported Valid=True/AnnotationIgnored"; got != want {
		t.Errorf("unknown strategy: conditions = %s, want %s", got, want)
	}
	b.Await("the Event", func() bool { return slices.Contains(b.events(), "Warning AnnotationIgnored") })
	step("PreferZone, too few", strategy("PreferZone"), "/:5", "PATCH", recordWrite, "DELETE", statusWrite)
	step("enough", endpoints("a", "a", "a", "b", "b", "b"), "a/:3 b/:3", "PATCH", "PATCH", recordWrite, "DELETE")
	step("one goes", endpoints("a", "a", "a", "b", "b"), "a/:3 b/:2", "PATCH")
	a.End()
	a = b.start(func(*Config) {})
	step("a restart", a.do(db, "", again), "a/:3 b/:2")
	step("too few", endpoints("a", "a", "a", "b"), "/:4", "PATCH", recordWrite, "DELETE", "DELETE")
	step("RequireZone", strategy("RequireZone"), "a/:3 b/:1", "PATCH", "PATCH", recordWrite, "DELETE")
	step("a zone is empty", endpoints("a", "a", "a"), "a/:3", recordWrite, "DELETE")
	step("no endpoint", endpoints(), "/:0", "PATCH", recordWrite, "DELETE")
	step("Original", strategy("Original"), "/r:0", "PATCH", recordWrite, "DELETE")
}

// layoutOf returns for which zone and region slices are, and how many endpoints they have: "zone/region:endpoints",
// sorted.
func layoutOf(all []*discoveryv1.EndpointSlice) string {
	var text []string
	for _, s := range all {
		text = append(text, fmt.Sprintf("%s/%s:%d", s.Labels[apibroker.LabelForZone], s.Labels[apibroker.LabelForRegion],
			len(s.Endpoints)))
	}
	slices.Sort(text)
	return strings.Join(text, " ")
}
