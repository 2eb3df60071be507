package admin

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// Remove removes from the broker a member whose cluster no longer exists: the broker's part of [Leave]. It returns an error if the
// member renewed its heartbeat less than a minute ago, unless Force is set, and if the broker has no object with this id.
func Remove(ctx context.Context, onBroker *rest.Config, clusterID string, o LeaveOptions) (LeaveResult, error) {
	c, err := open(RoleBroker, onBroker, o.WriteOptions)
	if err != nil {
		return LeaveResult{}, fmt.Errorf("remove: %w", err)
	}
	r, err := c.findRemoval(ctx, clusterID, o)
	for _, step := range []func(context.Context) error{r.withdrawExports, r.removeAdmission} {
		if err == nil {
			err = step(ctx)
		}
	}
	if err != nil {
		return LeaveResult{}, fmt.Errorf("remove: %w", err)
	}
	return LeaveResult{ClusterID: clusterID, Namespace: r.admission.Spec.Namespace}, nil
}

// findRemoval finds the objects of a member on the broker alone, and checks that they may be removed.
func (c *cluster) findRemoval(ctx context.Context, clusterID string, o LeaveOptions) (*removal, error) {
	r := &removal{broker: c, admission: Admission{ClusterID: clusterID}}
	if !broker.IsClusterID(clusterID) {
		return r, fmt.Errorf("cluster id %q: %s", clusterID, wantClusterID)
	}
	member := r.admission.member()
	exists, err := c.read(ctx, member)
	if err != nil {
		return r, err
	}
	r.admission.Spec = member.Spec
	if !exists {
		r.admission.Spec.Namespace = broker.NamespaceName(cmp.Or(o.Prefix, DefaultPrefix), clusterID)
		return r, r.checkExists(ctx)
	}
	r.member = member
	now := time.Now
	if o.Now != nil {
		now = o.Now
	}
	heartbeat, err := c.heartbeat(ctx, member.Spec.Namespace)
	if err != nil || heartbeat == nil || o.Force {
		return r, err
	}
	if age := max(now().Sub(heartbeat.RenewTime.Time), 0); age < broker.HeartbeatTTL(heartbeat, time.Minute) {
		err = fmt.Errorf("member %q renewed its heartbeat %s ago: run \"clusterset leave\" in that cluster, or use --force",
			clusterID, age.Round(time.Second))
	}
	return r, err
}
