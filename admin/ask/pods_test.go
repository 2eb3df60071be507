package ask

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
)

// Each Pod has the error of an API server that does not forward ports. At most atOnce of them wait for it. If the API
// server does not answer, it is asked for some Pods, and one result counts the others.
func TestServiceNotForwarded(t *testing.T) {
	for _, tt := range []struct {
		code, pods int // code 0: the API server does not answer
		reason     metav1.StatusReason
		want       string
	}{
		{http.StatusForbidden, 1, metav1.StatusReasonForbidden,
			"the right to create pods/portforward in namespace kube-system is missing; deploy/x.yaml has it"},
		{http.StatusNotFound, 1, metav1.StatusReasonNotFound,
			"the API server does not find the Pod, or does not forward its ports (404)"},
		{http.StatusUnauthorized, 1, metav1.StatusReasonUnauthorized, "the API server rejects the credential (401)"},
		{http.StatusForbidden, 45, metav1.StatusReasonForbidden, "the right to create pods/portforward"},
		{0, 1000, "", "the API server did not forward its port in time"},
	} {
		var now, most atomic.Int32
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if !strings.HasSuffix(r.URL.Path, "/portforward") {
				_ = json.NewEncoder(w).Encode(readyPods(tt.pods))
				return
			}
			if tt.code == 0 {
				<-r.Context().Done()
				return
			}
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Millisecond) // so that others come meanwhile
			now.Add(-1)
			w.WriteHeader(tt.code)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
				Status: metav1.StatusFailure, Reason: tt.reason, Code: int32(tt.code)})
		}))
		t.Cleanup(api.Close)
		c, err := read.OpenWithin(&rest.Config{Host: api.URL}, time.Minute, "deploy/x.yaml")
		if err != nil {
			t.Fatal(err)
		}
		q := Question{Name: "db.shop.svc.clusterset.local", Timeout: time.Minute}
		if tt.code == 0 {
			q.Timeout = 50 * time.Millisecond
		}
		servers := Service(t.Context(), c, q,
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"},
				Spec: corev1.ServiceSpec{Selector: map[string]string{"k8s-app": "kube-dns"}}}, cause.ClusterDNS)
		if last := len(servers) - 1; tt.code == 0 && last < tt.pods {
			late := fmt.Sprintf("no time was left to ask %d of %d Pods", tt.pods-last, tt.pods)
			if s := servers[last]; s.Name != "service/kube-dns" || s.Unread != late || s.Role != cause.ClusterDNS {
				t.Errorf("last %+v, want one for the Service: %s", s, late)
			}
			servers = servers[:last]
		} else if len(servers) != tt.pods || most.Load() > atOnce {
			t.Errorf("%d: %d servers, %d at once; want %d, at most %d at once", tt.code, len(servers), most.Load(), tt.pods,
				atOnce)
		}
		for _, s := range servers {
			if !strings.HasPrefix(s.Unread, tt.want) || s.TCP.Asked || s.Role != cause.ClusterDNS {
				t.Errorf("%d: %+v, want one that was not asked: %s", tt.code, s, tt.want)
			}
		}
	}
}

func readyPods(n int) corev1.PodList {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	for i := range n {
		list.Items = append(list.Items, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: fmt.Sprintf("coredns-%d", i)},
			Status: corev1.PodStatus{Phase: corev1.PodRunning,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}})
	}
	return list
}
