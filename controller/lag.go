package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// lag returns how long ago the change was that made was into now, two versions of one imported slice, and whether that is
// known. It is not for what another cluster changed before since: a backlog tells nothing about how fast we are. Clocks of
// clusters differ; a change in the future was just now.
func lag(was, now *discoveryv1.EndpointSlice, since, written time.Time) (time.Duration, bool) {
	text := now.Annotations[corev1.EndpointsLastChangeTriggerTime]
	if text == was.Annotations[corev1.EndpointsLastChangeTriggerTime] {
		return 0, false
	}
	changed, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || changed.Before(since) {
		return 0, false
	}
	return max(0, written.Sub(changed)), true
}
