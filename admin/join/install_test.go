package join

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestStatusPage: the option is in the manifests, and a join without it keeps what an earlier one was given.
func TestStatusPage(t *testing.T) {
	i := newInstaller(nil, nil, Options{Components: defaultComponents(), Namespace: "clusterset-system"})
	given, usual := Values{ControllerOptions: map[string]string{StatusPage: "on"}}, Values{Image: "a", VIP: "derived",
		Endpoints: "pod_ip", ClusterDomain: "cluster.local"}
	for i.values = range slices.Values([]Values{given.completedBy(usual), usual.completedBy(given)}) {
		objects, err := i.renderObjects()
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(objects)
		if err != nil || !strings.Contains(string(text), `"--status-page=on"`) {
			t.Errorf("%s, %v: want the controller with its status page", text, err)
		}
	}
	if got := usual.completedBy(Values{ControllerOptions: map[string]string{"merge": "lighthouse"}}); len(got.ControllerOptions) > 0 {
		t.Errorf("%+v, want no option that the clusterset sets", got)
	}
}

// docs/spec/install.md 2: a join does not wait for the heartbeat of a controller with "lease 0" that works already.
func TestRenewsSeldom(t *testing.T) {
	now := time.Now()
	lease := func(ttl, age time.Duration) *coordinationv1.LeaseSpec {
		renewed := metav1.NewMicroTime(now.Add(-age))
		return &coordinationv1.LeaseSpec{RenewTime: &renewed, LeaseDurationSeconds: ptr.To(int32(ttl.Seconds()))}
	}
	for _, tt := range []struct {
		name      string
		heartbeat *coordinationv1.LeaseSpec
		want      bool
	}{
		{"no heartbeat yet", nil, false},
		{"the usual lease", lease(time.Minute, time.Second), false},
		{"lease 0", lease(time.Hour, 4*time.Minute), true},
		{"lease 0, and the controller has stopped", lease(time.Hour, 2*time.Hour), false},
	} {
		if got := renewsSeldom(tt.heartbeat, now); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
