package member

import (
	"encoding/json"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
)

const (
	// maxOverwriteWait is the longest time until conditions that someone else overwrites are written again.
	maxOverwriteWait = time.Hour
	// reportedOverwrites is how many times in a row someone else has to overwrite conditions until that is logged.
	reportedOverwrites = 3
)

// overwritten tells conditions that we want to change from those that someone else has overwritten. The second kind is written again
// after a second, two, four, and so on: two controllers that want different things never write more than a few times an hour
// (docs/spec/controller.md 6.4). The methods may be called by several goroutines.
type overwritten struct {
	mu   sync.Mutex
	last map[string]written // by author and name of the export
}

// written is what was written last.
type written struct {
	asked string // fingerprint
	at    time.Time
	times int // it was written again in a row
}

// wait returns how long to wait until conditions are written: 0 if they are others than those that were written last.
func (o *overwritten) wait(key, asked string, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, ok := o.last[key]
	if !ok || last.asked != asked {
		return 0
	}
	delay := min(time.Second<<min(last.times, 20), maxOverwriteWait)
	return max(0, last.at.Add(delay).Sub(now))
}

// wrote records what was written, and returns how many times in a row that was written again.
func (o *overwritten) wrote(key, asked string, now time.Time) (times int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last, ok := o.last[key]; ok && last.asked == asked {
		times = last.times + 1
	}
	o.last[key] = written{asked: asked, at: now, times: times}
	return times
}

// fingerprint is a hash of conditions of an export.
func fingerprint(exp *mcsv1beta1.ServiceExport, conditions []metav1.Condition) string {
	text, err := json.Marshal(conditions)
	if err != nil {
		panic("member: conditions are no JSON: " + err.Error())
	}
	return apibroker.Hash(32, string(exp.UID), string(text))
}
