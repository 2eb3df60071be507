package member

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
)

const (
	// maxOverwriteWait is the longest time until what someone else overwrites is written again.
	maxOverwriteWait = time.Hour
	// reportedOverwrites is how many times in a row someone else has to overwrite something until that is logged.
	reportedOverwrites = 3
	// changesAtOnce and changeInterval bound the writes that other members cause, such as the list of those that an
	// export reaches: so many changes at once, then one in the interval.
	changesAtOnce  = 20
	changeInterval = 30 * time.Second
)

// Overwritten detects writes by other controllers, such as to conditions of an export, and delays our next write: by a
// second, two, four, and so on. So two controllers that want different things do not write more than a few times an
// hour (docs/spec/controller.md 6.4). The zero value remembers nothing. The methods may be called by several
// goroutines.
type Overwritten struct {
	mu   sync.Mutex
	last map[string]written // by author and name of an export, or similar
}

// written is the last write.
type written struct {
	asked string // fingerprint
	at    time.Time
	times int       // it was written again in a row
	paid  time.Time // a token bucket: changeInterval for each write, counted from when it was full
}

// Wait returns the wait before a write: 0 if it is not a repetition. asked is the value to write, key its object.
func (o *Overwritten) Wait(key, asked string, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, ok := o.last[key]
	if !ok || last.asked != asked {
		return 0
	}
	delay := min(time.Second<<min(last.times, 20), maxOverwriteWait)
	return max(0, last.at.Add(delay).Sub(now))
}

// WaitChange returns the wait before a write that other members cause, for any value: a member that changes back and
// forth must not make others write as fast as it does.
func (o *Overwritten) WaitChange(key string, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(0, max(0, o.last[key].paid.Sub(now))-(changesAtOnce-1)*changeInterval)
}

// Wrote records a write, and reports whether somebody should know that it is repeated again and again: true once in a
// row.
func (o *Overwritten) Wrote(key, asked string, now time.Time) (report bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, ok := o.last[key]
	next := written{asked: asked, at: now, paid: now.Add(max(0, last.paid.Sub(now)) + changeInterval)}
	if ok && last.asked == asked {
		next.times = last.times + 1
	}
	if o.last == nil {
		o.last = make(map[string]written)
	}
	o.last[key] = next
	return next.times == reportedOverwrites
}

// Forget drops the state of a key that is no longer written.
func (o *Overwritten) Forget(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.last, key)
}

// fingerprint is a hash of conditions of an export and of the clusters that it reaches.
func fingerprint(exp *mcsv1beta1.ServiceExport, conditions []metav1.Condition, clusters []string) string {
	text, err := json.Marshal(conditions)
	if err != nil {
		panic("member: conditions are no JSON: " + err.Error())
	}
	return apibroker.Hash(32, slices.Concat(clusters, []string{string(exp.UID), string(text)})...)
}
