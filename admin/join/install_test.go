package join

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

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
