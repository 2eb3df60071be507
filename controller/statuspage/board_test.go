package statuspage

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }

// docs/spec/operations.md 8: an export that failed is a problem, one that is pending only after a while, and so is a
// Service of the DNS server without ready endpoint.
func TestProblems(t *testing.T) {
	i := memberenv.New(t).Start()
	p := &Parts{Member: i.Member, Namespace: wellknown.ControllerNamespace}
	if d := p.dns(); d != nil {
		t.Errorf("DNS server %+v, want none", d)
	}
	server := types.NamespacedName{Namespace: p.Namespace, Name: "any-dns"}
	s := memberenv.NewService(server)
	s.Spec.Ports = []corev1.ServicePort{{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}}
	i.Create(s)
	i.Await("DNS server without endpoint", func() bool { d := p.dns(); return d != nil && d.Ready == 0 })
	i.Create(memberenv.NewSourceSlice(server, "any", "10.1.0.9"))
	i.Await("DNS server with one", func() bool { return p.dns().Ready == 1 && p.dns().Service == server.String() })

	i.Create(memberenv.NewExport(memberenv.DB))
	i.Await("export", func() bool { return i.Member.Export(memberenv.DB) != nil })
	now := time.Now()
	for _, tt := range []struct {
		status metav1.ConditionStatus
		reason string
		after  time.Duration
		failed bool
	}{
		{metav1.ConditionUnknown, "Pending", 0, false}, {metav1.ConditionUnknown, "Pending", time.Hour, true},
		{metav1.ConditionFalse, "Failed", 0, true}, {metav1.ConditionTrue, "Exported", time.Minute, false},
	} {
		c := metav1.Condition{Type: "Ready", Status: tt.status, Reason: tt.reason, Message: "Why."}
		if _, err := i.Conditions.Set(t.Context(), i.Member.Export(memberenv.DB), wellknown.ManagerExporter,
			[]metav1.Condition{c}, nil); err != nil {
			t.Fatal(err)
		}
		i.Await("condition", func() bool {
			all := i.Member.Export(memberenv.DB).Status.Conditions
			return len(all) == 1 && all[0].Reason == tt.reason
		})
		if row := p.stateOf(memberenv.DB, now.Add(tt.after)); row.Failed != tt.failed {
			t.Errorf("%s, %s, after %s: %+v, want failed: %t", tt.status, tt.reason, tt.after, row, tt.failed)
		}
	}
}
