package identity

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
)

func exportWith(namespace, name string, conditions ...metav1.Condition) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 2},
		Status: mcsv1beta1.ServiceExportStatus{Conditions: conditions}}
}

// docs/spec/controller.md 3.1: conditions of other reasons and of an earlier generation reject nothing. The message has
// what the broker takes.
func TestRejectedAmong(t *testing.T) {
	condition := func(of string, status metav1.ConditionStatus, reason, message string, seen int64) metav1.Condition {
		return metav1.Condition{Type: of, Status: status, Reason: reason, Message: message, ObservedGeneration: seen}
	}
	valid := condition("Valid", metav1.ConditionTrue, "Valid", "", 2)
	long := strings.Repeat("a", apibroker.MaxRejectedMessage)
	for _, tt := range []struct {
		name string
		exp  *mcsv1beta1.ServiceExport
		want string
	}{
		{name: "no conditions", exp: exportWith("shop", "web")},
		{name: "no Service", exp: exportWith("shop", "web", condition("Valid", metav1.ConditionFalse, "NoService",
			"No Service. [export-no-service]", 2), condition("Ready", metav1.ConditionFalse, "Pending", "", 2)),
			want: "web.shop NoService No Service"},
		{name: "the quota", exp: exportWith("shop", "web", valid, condition("Ready", metav1.ConditionFalse, "Failed",
			"exceeded\x1b\u00e9 quota\nmore", 2)), want: "web.shop Failed exceeded   quota more"},
		{name: "a long message", exp: exportWith("shop", "web", condition("Valid", metav1.ConditionFalse, "NoService",
			long+"a", 2)), want: "web.shop NoService " + long[3:] + "..."},
		{name: "an earlier generation", exp: exportWith("shop", "web", condition("Valid", metav1.ConditionFalse,
			"NoService", "", 1))},
		{name: "it waits", exp: exportWith("shop", "web", valid, condition("Ready", metav1.ConditionFalse, "Pending", "",
			2))},
		{name: "a reason of another implementation", exp: exportWith("shop", "web", condition("Valid",
			metav1.ConditionFalse, "Other", "", 2))},
		{name: "no name of a Service", exp: exportWith("shop", "web.x", condition("Valid", metav1.ConditionFalse,
			"NoService", "", 2))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got string
			for _, r := range rejectedAmong([]*mcsv1beta1.ServiceExport{tt.exp}) {
				got = fmt.Sprint(r.Name, " ", r.Reason, " ", r.Message)
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A namespace with many rejected exports does not displace others.
func TestRejectedInTurns(t *testing.T) {
	var exports []*mcsv1beta1.ServiceExport
	add := func(namespace, name string) {
		exports = append(exports, exportWith(namespace, name, metav1.Condition{Type: "Valid", Status: metav1.ConditionFalse,
			Reason: "NoService", ObservedGeneration: 2}))
	}
	for i := range apibroker.MaxRejected {
		add("a", fmt.Sprintf("s%03d", i))
	}
	add("b", "one")
	add("b", "two")
	got := rejectedAmong(exports)
	var first []string
	for _, r := range got[:5] {
		first = append(first, r.Name)
	}
	if want := "s000.a one.b s001.a two.b s002.a"; strings.Join(first, " ") != want || len(got) != apibroker.MaxRejected {
		t.Errorf("%d, first %s; want %d, first %s", len(got), strings.Join(first, " "), apibroker.MaxRejected, want)
	}
}
