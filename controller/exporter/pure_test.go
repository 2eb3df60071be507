package exporter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
)

var (
	earlier = metav1.NewTime(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	later   = metav1.NewTime(earlier.Add(time.Hour))
)

func condition(typ string, status metav1.ConditionStatus, reason string, at metav1.Time) metav1.Condition {
	return metav1.Condition{Type: typ, Status: status, Reason: reason, Message: "Because.", ObservedGeneration: 1,
		LastTransitionTime: at}
}

// docs/spec/controller.md 6: the condition Ready.
func TestReadiness(t *testing.T) {
	valid := export.Result{Reason: mcsv1beta1.ServiceExportReasonValid}
	denied := fmt.Errorf("broker: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "exportedservices"},
		"db.shop", fmt.Errorf("exceeded quota")))
	starting := fmt.Errorf("broker: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "exportedservices"},
		"db.shop",
		fmt.Errorf(
			"ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed to configure binding: no params found")))
	counting := fmt.Errorf("broker: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "exportedservices"},
		"db.shop", fmt.Errorf("status unknown for quota: member, resources: count/exportedservices")))
	lost := fmt.Errorf("broker: %w", context.DeadlineExceeded)
	busy := fmt.Errorf("broker: %w", apierrors.NewTooManyRequests("busy", 1))
	const waiting = "Waiting for the broker: the last attempt failed and is repeated."
	const more = "End other exports of this cluster, or raise its quota with clusterset join --quota-exports=NUMBER --quota-slices=NUMBER."
	for _, tt := range []struct {
		name string
		r    export.Result
		o    outcome
		has  bool // the broker has the record
		want string
	}{
		{name: "exported", r: valid, has: true, want: "True Exported The broker has this export."},
		{name: "exported in part", r: export.Result{Reason: valid.Reason, Dropped: []string{"A is not.", "B is not."}},
			has:  true,
			want: "True Exported The broker has this export. A is not. B is not."},
		{name: "exported but for some addresses", r: export.Result{Reason: valid.Reason, Dropped: []string{"A is not."},
			Undeclared: 1}, has: true,
			want: "True UndeclaredAddresses The broker has this export. A is not. [export-undeclared]"},
		{name: "no address yet", r: export.Result{Reason: valid.Reason, Waits: "Soon."}, has: true,
			want: "False Pending Soon. [export-pending]"},
		{name: "not valid", r: export.Result{Reason: "NoService"},
			want: "False Pending Nothing is exported until the export is valid. [export-pending]"},
		{name: "no record can say it", r: export.Result{Reason: valid.Reason, Failed: "Too much."},
			want: "False Failed Too much. [export-rejected]"},
		{name: "link lost before", r: valid, o: outcome{waitsFor: "Waiting."},
			want: "Unknown Pending Waiting. [export-pending]"},
		{name: "link lost afterwards", r: valid, o: outcome{waitsFor: "Waiting."}, has: true,
			want: "True Exported The broker has this export."},
		{name: "link lost, and the endpoints changed", r: valid, o: outcome{waitsFor: "Waiting.", old: true}, has: true,
			want: "Unknown Pending Waiting. Until then other clusters have an older state of this export. [export-pending]"},
		{name: "link lost, and the record changed", r: valid, o: outcome{waitsFor: "Waiting.", old: true},
			want: "Unknown Pending Waiting. Until then other clusters have an older state of this export. [export-pending]"},
		{name: "too many", r: valid, o: outcome{full: true},
			want: "False Failed This cluster exports 5000 services, the most that one may: end others. [export-rejected]"},
		{name: "rejected", r: valid, o: outcome{err: denied},
			want: `False Failed The broker rejects the export: exportedservices "db.shop" is forbidden: exceeded quota. ` + more + ` [export-rejected]`},
		{name: "a slice rejected", r: valid, o: outcome{err: denied}, has: true,
			want: `False Failed The broker rejects the export: exportedservices "db.shop" is forbidden: exceeded quota. ` +
				`What it has of this export stays in use. ` + more + ` [export-rejected]`},
		{name: "no answer", r: valid, o: outcome{err: lost}, want: "Unknown Pending " + waiting + " [export-pending]"},
		{name: "a quota that has just been made", r: valid, o: outcome{err: counting},
			want: "Unknown Pending " + waiting + " [export-pending]"},
		{name: "a broker that has just started", r: valid, o: outcome{err: starting},
			want: "Unknown Pending " + waiting + " [export-pending]"},
		{name: "too many requests", r: valid, o: outcome{err: busy},
			want: "Unknown Pending " + waiting + " [export-pending]"},
		{name: "no answer to a slice", r: valid, o: outcome{err: lost}, has: true,
			want: "True Exported The broker has this export."},
		{name: "no answer to a slice for a TTL", r: valid, o: outcome{err: lost, old: true}, has: true,
			want: "Unknown Pending " + waiting +
				" Until then other clusters have an older state of this export. [export-pending]"},
		{name: "no clusterset IP", r: valid, o: outcome{noVIP: "None."}, has: true,
			want: "False Failed None. [export-rejected]"},
		{name: "no aggregate", r: valid, o: outcome{aggregateErr: denied}, has: true,
			want: "True Exported The broker has this export."},
	} {
		c := readiness(tt.r, tt.o, tt.has)
		if got := fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if got := exportedMessage(slices.Repeat([]string{"X is not."}, 12)); !strings.HasSuffix(got,
		"X is not. 2 more are not exported.") {
		t.Errorf("message = %q, want the first ten and the number of the others", got)
	}
}

// docs/spec/controller.md 10: a restart without change is no write, even before the broker has answered.
func TestOutlivesRestart(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for _, tt := range []struct {
		name   string
		was    metav1.Condition
		is     metav1.ConditionStatus
		stands bool
	}{
		{name: "exported", was: condition("Ready", yes, "Exported", earlier), is: unknown, stands: true},
		{name: "failed", was: condition("Ready", no, "Failed", earlier), is: unknown, stands: true},
		{name: "waiting already", was: condition("Ready", unknown, "Pending", earlier), is: unknown},
		{name: "not valid before", was: condition("Ready", no, "Pending", earlier), is: unknown},
		{name: "not valid now", was: condition("Ready", yes, "Exported", earlier), is: no},
		{name: "another generation", was: metav1.Condition{Status: yes, Reason: "Exported", ObservedGeneration: 2},
			is: unknown},
	} {
		is := condition("Ready", tt.is, "Pending", later)
		if got := outlivesRestart(&tt.was, &is); got != tt.stands {
			t.Errorf("%s: stands = %t, want %t", tt.name, got, tt.stands)
		}
	}
	is := condition("Ready", unknown, "Pending", later)
	if outlivesRestart(nil, &is) {
		t.Error("a condition that is not there stands")
	}
}

// docs/spec/controller.md 10: what the broker has is not written again.
func TestSameSlice(t *testing.T) {
	slice := func(f func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Labels:      map[string]string{"ours": "1"},
				Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: "now"},
			},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}},
			Ports:     []discoveryv1.EndpointPort{{Name: new("pg"), Port: new(int32(5432))}},
		}
		f(s)
		return s
	}
	for _, tt := range []struct {
		name   string
		change func(*discoveryv1.EndpointSlice)
		same   bool
	}{
		{name: "nothing", change: func(*discoveryv1.EndpointSlice) {}, same: true},
		{name: "a label of others", change: func(s *discoveryv1.EndpointSlice) { s.Labels["theirs"] = "2" }, same: true},
		{name: "the time alone", change: func(s *discoveryv1.EndpointSlice) { s.Annotations = nil }, same: true},
		{name: "for another zone", change: func(s *discoveryv1.EndpointSlice) { s.Labels[apibroker.LabelForZone] = "a" }},
		{name: "a label of ours", change: func(s *discoveryv1.EndpointSlice) { s.Labels["ours"] = "2" }},
		{name: "an address", change: func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.1.0.2" }},
		{name: "readiness", change: func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = new(false) }},
		{name: "a port", change: func(s *discoveryv1.EndpointSlice) { s.Ports = nil }},
	} {
		want := slice(func(*discoveryv1.EndpointSlice) {})
		if got := sameSlice(want, slice(tt.change)); got != tt.same {
			t.Errorf("%s: same = %t, want %t", tt.name, got, tt.same)
		}
	}
}
