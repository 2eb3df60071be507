package controller

import (
	"cmp"
	"context"
	"time"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// statusEvery is the time between two looks at the status of the Member, with "lease 0".
const statusEvery = 10 * time.Second

// firstBeat is the time between two attempts at the first heartbeat, which others wait for.
const firstBeat = time.Second

// heartbeat renews the Lease of this member on the broker every cfg.Renew, as long as the member's own API server answers:
// whoever has lost that knows nothing about its endpoints any more (section 8). With it goes the status of the Member. A
// member that leaves takes its Lease along. It returns nil when ctx ends.
func (s *session) heartbeat(ctx context.Context) error {
	every := cmp.Or(s.cfg.Renew, statusEvery)
	told, withdrawn, beaten := false, false, false
	for {
		next := time.Now().Add(min(every, firstBeat))
		var err error
		switch leaving := s.leaving(); {
		case !s.mayWriteBroker() || !s.member.Settled():
		case leaving && !withdrawn:
			err = s.broker.DeleteHeartbeat(ctx)
			withdrawn = err == nil
		case s.member.ClusterID() != "" && !leaving:
			withdrawn = false
			err = s.beat(ctx, every)
			beaten = beaten || err == nil
		}
		if err != nil && !told && ctx.Err() == nil {
			s.log.Warningf("heartbeat: %v; trying again", err)
		}
		told = err != nil
		if beaten {
			next = next.Add(every - min(every, firstBeat))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(next)):
		}
	}
}

// beat is one heartbeat, which has as much time as there is between two. With "lease 0" there is only the status.
func (s *session) beat(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := s.local.client.SystemUID(ctx); err != nil {
		return err
	}
	if s.cfg.Renew > 0 {
		if err := s.broker.Renew(ctx); err != nil {
			return err
		}
	}
	return s.broker.SetStatus(ctx, v1alpha1.MemberStatus{Version: s.cfg.Version, MergeOptions: s.cfg.mergeOptions().Hash()})
}
