package member

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/metrics"
)

// docs/spec/controller.md 6: an Event on each transition, none otherwise.
func TestNewEvent(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "1"}
	exp, imp := &mcsv1beta1.ServiceExport{ObjectMeta: meta}, &mcsv1beta1.ServiceImport{ObjectMeta: meta}
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for _, tt := range []struct {
		name     string
		obj      apiserver.Object
		typ      string
		was      metav1.ConditionStatus // "" for none
		is       metav1.ConditionStatus
		reason   string
		want     string // type, reason and action; "" for none
		wantKind string
	}{
		{name: "appears", obj: exp, typ: "Valid", is: yes, reason: "Valid", want: "Normal Valid Export",
			wantKind: "ServiceExport"},
		{name: "turns false", obj: exp, typ: "Valid", was: yes, is: no, reason: "NoService",
			want: "Warning NoService Export", wantKind: "ServiceExport"},
		{name: "another reason", obj: exp, typ: "Valid", was: no, is: no, reason: "NotMember"},
		{name: "an annotation is ignored", obj: exp, typ: "Valid", was: yes, is: yes, reason: "AnnotationIgnored",
			want: "Warning AnnotationIgnored Export", wantKind: "ServiceExport"},
		{name: "another malformed selector", obj: exp, typ: "Valid", was: no, is: no, reason: "InvalidClusterSelector",
			want: "Warning InvalidClusterSelector Export", wantKind: "ServiceExport"},
		{name: "waits", obj: exp, typ: "Ready", was: yes, is: unknown, reason: "Pending", want: "Normal Pending Export",
			wantKind: "ServiceExport"},
		{name: "waits for an answer", obj: exp, typ: "Ready", was: yes, is: no, reason: "Pending",
			want: "Normal Pending Export", wantKind: "ServiceExport"},
		{name: "fails", obj: exp, typ: "Ready", was: unknown, is: no, reason: "Failed", want: "Warning Failed Export",
			wantKind: "ServiceExport"},
		{name: "no conflict at first", obj: exp, typ: "Conflict", is: no, reason: "NoConflicts"},
		{name: "a conflict at first", obj: exp, typ: "Conflict", is: yes, reason: "PortConflict,TypeConflict",
			want: "Warning PortConflict,TypeConflict Export", wantKind: "ServiceExport"},
		{name: "conflict over", obj: exp, typ: "Conflict", was: yes, is: no, reason: "NoConflicts",
			want:     "Normal NoConflicts Export",
			wantKind: "ServiceExport"},
		{name: "legacy", obj: exp, typ: "Initialized", is: yes, reason: "Valid"},
		{name: "legacy", obj: exp, typ: "Exported", was: no, is: yes, reason: "Exported"},
		{name: "import", obj: imp, typ: "Ready", was: yes, is: no, reason: "IPFamilyNotSupported",
			want: "Warning IPFamilyNotSupported Import", wantKind: "ServiceImport"},
	} {
		var was *metav1.Condition
		if tt.was != "" {
			c := condition(tt.typ, tt.was, "Before", earlier)
			c.Message, was = "another message", &c
		}
		is := condition(tt.typ, tt.is, tt.reason, later)
		e := newEvent(tt.obj, was, &is)
		got, kind := "", ""
		if e != nil {
			got, kind = e.Type+" "+e.Reason+" "+e.Action, e.Regarding.Kind
		}
		if got != tt.want || kind != tt.wantKind {
			t.Errorf("%s: event = %q of a %s, want %q of a %s", tt.name, got, kind, tt.want, tt.wantKind)
		}
	}
}

// One transition has one name, so that it is recorded once; another transition has another name.
func TestEventName(t *testing.T) {
	exp := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop",
		Name: strings.Repeat("a.", 126) + "a", UID: "1"}}
	name := func(c metav1.Condition) string { return newEvent(exp, nil, &c).Name }
	c := condition("Valid", metav1.ConditionFalse, "NoService", earlier)
	first := name(c)
	if len(first) > maxEventName {
		t.Errorf("name of %d octets, want at most %d", len(first), maxEventName)
	}
	if again := name(c); again != first {
		t.Errorf("name = %s, and then %s", first, again)
	}
	c.LastTransitionTime = later
	if other := name(c); other == first {
		t.Errorf("name = %s at two times", first)
	}
	c = condition("Valid", metav1.ConditionTrue, "AnnotationIgnored", later)
	first, c.Message = name(c), "another value"
	if other := name(c); other == first {
		t.Errorf("name = %s of two bad values", first)
	}
	was := condition("Valid", metav1.ConditionTrue, "AnnotationIgnored", later)
	again := func(version string) string {
		exp.ResourceVersion = version
		return newEvent(exp, &was, &c).Name
	}
	if first := again("7"); again("7") != first || again("9") == first {
		t.Error("names of the same bad value: want one for what two instances see, and another when it is back later")
	}
	if e := newEvent(exp, &c, &c); e != nil {
		t.Errorf("event = %+v of the same value, want none", e)
	}
}

// Text and reasons of a condition are cut to the limits of an Event.
func TestEventIsCut(t *testing.T) {
	exp := &mcsv1beta1.ServiceExport{}
	c := condition("Conflict", metav1.ConditionTrue, strings.TrimSuffix(strings.Repeat("PortConflict,", 20), ","), later)
	c.Message = strings.Repeat("ü", MaxNote)
	e := newEvent(exp, nil, &c)
	if len(e.Note) > MaxNote || !strings.HasSuffix(e.Note, "ü...") {
		t.Errorf("note of %d octets, want at most %d, cut behind a character", len(e.Note), MaxNote)
	}
	const codes = " [conflict-type,conflict-ports]"
	c.Message += codes
	if e := newEvent(exp, nil, &c); len(e.Note) > MaxNote || !strings.HasSuffix(e.Note, "ü..."+codes) {
		t.Errorf("note of %d octets that ends with %q, want at most %d, and the codes", len(e.Note), e.Note[len(e.Note)-40:],
			MaxNote)
	}
	if want := strings.TrimSuffix(strings.Repeat("PortConflict,", 9), ","); e.Reason != want {
		t.Errorf("reason = %q, want %q", e.Reason, want)
	}
	for reasons, want := range map[string]string{
		strings.Repeat("a", 128):                                strings.Repeat("a", 128),
		strings.Repeat("a", 129):                                strings.Repeat("a", 128),
		strings.Repeat("a", 128) + ",b":                         strings.Repeat("a", 128),
		strings.Repeat("a", 120) + "," + strings.Repeat("b", 9): strings.Repeat("a", 120),
	} {
		if got := cutReasons(reasons); got != want {
			t.Errorf("%q is cut to %q, want %q", reasons, got, want)
		}
	}
}

// The caller of Transitions never waits.
func TestTransitionsNeverBlock(t *testing.T) {
	r := newEvents(nil, "test", func() string { return "east" }, metrics.New(nil, metrics.Labels{}), 1)
	exp := &mcsv1beta1.ServiceExport{}
	r.Transitions(exp, nil, []metav1.Condition{
		condition("Valid", metav1.ConditionTrue, "Valid", later), condition("Ready", metav1.ConditionTrue, "Exported", later),
	})
	if e := <-r.queue; e.Reason != "Valid" || e.ReportingInstance != "test" ||
		e.Labels[apibroker.LabelClusterID] != "east" {
		t.Errorf("event = %+v, want that of the first condition", e)
	}
	if len(r.queue) > 0 {
		t.Error("a second event waits, want it dropped")
	}
}

// docs/spec/controller.md 6.3: a namespace with many Events leaves room for those of others, also for those about other
// Namespaces.
func TestEventsOfABusyNamespace(t *testing.T) {
	r := newEvents(nil, "test", func() string { return "" }, metrics.New(nil, metrics.Labels{}), 12)
	exported := func(namespace string, n int) {
		for range n {
			exp := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"}}
			r.Transitions(exp, nil, []metav1.Condition{condition("Valid", metav1.ConditionTrue, "Valid", later)})
		}
	}
	about := func(namespace string, n int) {
		for range n {
			r.Namespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, corev1.EventTypeWarning,
				"AnnotationIgnored", "Ignored.")
		}
	}
	exported("busy", 100)
	about("busier", 100)
	exported("shop", 1)
	about("bank", 1)
	got := make(map[string]int)
	for len(r.queue) > 0 {
		e := <-r.queue
		r.note(e)
		got[namespaceOf(e)]++
	}
	if want := map[string]int{"busy": 6, "busier": 3, "shop": 1, "bank": 1}; !maps.Equal(got, want) {
		t.Errorf("Events of 100 each of two namespaces and one each of two others = %v, want %v", got, want)
	}
	if len(r.waiting) > 0 {
		t.Errorf("counted as waiting: %v, want nothing", r.waiting)
	}
}
