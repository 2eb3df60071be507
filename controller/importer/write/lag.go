package write

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// maxLag is the highest lag that counts. The exporting cluster names the time of its change: a false one must not look
// like a lag of hours here.
const maxLag = 10 * time.Minute

// lag returns how long before written the change of an imported slice was made that turned before into current,
// and whether that is known. Changes from before started do not count: they are backlog. Nor do those that are older
// than maxLag. The clocks of clusters differ; a change in the future counts as made just now.
func lag(before, current *discoveryv1.EndpointSlice, started, written time.Time) (time.Duration, bool) {
	text := current.Annotations[corev1.EndpointsLastChangeTriggerTime]
	if text == before.Annotations[corev1.EndpointsLastChangeTriggerTime] {
		return 0, false
	}
	changed, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || changed.Before(started) || written.Sub(changed) > maxLag {
		return 0, false
	}
	return max(0, written.Sub(changed)), true
}
