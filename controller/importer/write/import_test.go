package write

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/test/harness/allocs"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
)

// filledOf reads imported slices of west from a text such as "a=12 (b)=3 !c=": a has the endpoints 1 and 2, b is
// hidden, and c is not ours.
func filledOf(text string) (all []*discoveryv1.EndpointSlice) {
	for _, field := range strings.Fields(text) {
		name, endpoints, _ := strings.Cut(field, "=")
		e := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: strings.Trim(name, "()!"),
			Labels: map[string]string{
				discoveryv1.LabelManagedBy: apibroker.ManagedBy, mcsv1beta1.LabelSourceCluster: "west",
			}}, Ports: []discoveryv1.EndpointPort{{Name: new("pg")}}}
		switch name[0] {
		case '(':
			desired.Hide(e)
		case '!':
			e.Labels[discoveryv1.LabelManagedBy] = "someone"
		}
		for _, address := range strings.Split(endpoints, "") {
			e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
		}
		all = append(all, e)
	}
	return all
}

// filling is the inverse of filledOf, after the name of the operation; "" without slices.
func filling(what string, all []*discoveryv1.EndpointSlice) string {
	if len(all) == 0 {
		return ""
	}
	for _, e := range all {
		what += " " + e.Name + "="
		for _, ep := range e.Endpoints {
			what += strings.Join(ep.Addresses, "")
		}
	}
	return what + ". "
}

// docs/spec/controller.md 5.5: no endpoint leaves a slice for one that is known to be rejected, or that has to wait,
// whatever the order of the two is.
func TestChangesThatAreInVain(t *testing.T) {
	for _, tt := range []struct {
		name              string
		existing, desired string
		chosen            bool   // clusters are selected
		rejected          string // known rejections
		want              string
	}{
		{name: "nothing is rejected", existing: "a=12 b=34", desired: "a=13 b=24", want: "update a=132 b=24. "},
		{name: "one moves to a slice that is known to be rejected", existing: "a=y1 b=x", desired: "a=y b=1",
			rejected: "b=1"},
		{name: "and another one goes", existing: "a=12y b=x", desired: "a=y b=1", rejected: "b=1", want: "update a=y1. "},
		{name: "from one that comes later", existing: "a=x b=y1", desired: "a=1 b=y", rejected: "a=1"},
		{name: "over three slices, none of them can", existing: "a=1 b=2 c=3", desired: "a=2 b=3 c=1",
			rejected: "a=21 b=32 c=13"},
		{name: "the last of three cannot", existing: "a=1 b=2 c=3", desired: "a=2 b=3 c=1", rejected: "c=1",
			want: "update a=21 b=3. "},
		{name: "as it is with what stays", existing: "a=12y b=x", desired: "a=y b=1", rejected: "a=y1 b=1"},
		{name: "from one that goes", existing: "a=12 b=x", desired: "b=1", rejected: "b=1", want: "update a=1. "},
		{name: "to a new one", existing: "a=21", desired: "a=2 b=1", rejected: "b=1"},
		{name: "to one whose name is taken", existing: "a=12 !b=x", desired: "a=1 b=2"},
		{name: "and another one goes", existing: "a=123 !b=x", desired: "a=1 b=2", want: "update a=12. "},
		{name: "by a slice that has it", existing: "a=12 !b=2", desired: "a=1 b=2"},
		{name: "from one that goes", existing: "a=12 !b=x", desired: "b=1", want: "update a=1. "},
		{name: "of one that goes nothing moves", existing: "a=2 !b=x", desired: "b=1", want: "delete a=2. "},
		{
			name: "to one that is hidden later", existing: "a=21 b=3", desired: "a=2 (b)=13 c=4", chosen: true, rejected: "c=4",
			want: "update b=13. ",
		},
		{
			name: "to one that cannot be hidden, and cannot be changed as it is", existing: "a=21 b=3",
			desired: "a=2 (b)=13 c=4",
			chosen:  true, rejected: "c=4 (b)=13",
		},
	} {
		log := &logtest.Recorder{}
		existing := desired.Objects{Slices: filledOf(tt.existing)}
		w := New(Config{Log: log}).ImportOf(db, existing)
		wanted := filledOf(tt.desired)
		if tt.chosen {
			w.Show(wanted)
		}
		for _, o := range filledOf(tt.rejected) {
			if desired.IsHidden(o) { // as it is until others are shown
				form := w.visibility.intermediate(o, w.requests.objects)
				w.requests.writer.responses.set(db, intermediateName(o),
					response{fingerprint(form), fingerprint(w.requests.objects.existing(o))})
				continue
			}
			w.requests.writer.responses.set(db, nameOf(o),
				response{fingerprint(o), fingerprint(w.requests.objects.existing(o))})
		}
		c := w.withoutFutile(desired.Diff(desired.Objects{Slices: wanted}, w.Objects()))
		got := filling("create", c.Create.Slices) + filling("update", c.Update.Slices) + filling("delete", c.Delete.Slices)
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if n := log.Count("keeps the"); n > 0 {
			t.Errorf("%s: logged %d times that something is kept that was not asked for", tt.name, n)
		}
	}
}

// The comparison for a member that swaps the endpoints of many small slices grows with the slices, not with their
// square.
func TestChangesAreLinear(t *testing.T) {
	of := func(n int) float64 {
		var existing, wanted []*discoveryv1.EndpointSlice
		for i := range n {
			was, is := filledOf("s=1")[0], filledOf("s=1")[0]
			was.Name = fmt.Sprint("s", i)
			is.Name = was.Name
			was.Endpoints[0].Addresses, is.Endpoints[0].Addresses = []string{fmt.Sprint(i)}, []string{fmt.Sprint(i ^ 1)}
			existing, wanted = append(existing, was), append(wanted, is)
		}
		w := New(Config{Log: &logtest.Recorder{}}).ImportOf(db,
			desired.Objects{Slices: slices.Clone(existing)})
		c := desired.Diff(desired.Objects{Slices: wanted}, w.Objects())
		return allocs.PerRun(3, func() {
			clear(w.requests.asked)
			w.withoutFutile(c)
		})
	}
	few, many := of(50), of(500)
	t.Logf("%.0f allocations with 50 slices, %.0f with 500", few, many)
	if many > 11*few {
		t.Errorf("%.0f allocations with 500 slices and %.0f with 50, want at most eleven times as many", many, few)
	}
}
