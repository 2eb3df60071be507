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
	// maxOverwriteWait is the longest time until what someone else overwrites is written again.
	maxOverwriteWait = time.Hour
	// reportedOverwrites is how many times in a row someone else has to overwrite something until that is logged.
	reportedOverwrites = 3
)

// Overwritten tells what we want to change, such as conditions of an export, from what someone else has overwritten. The second kind is written
// again after a second, two, four, and so on: two controllers that want different things never write more than a few times an hour
// (docs/spec/controller.md 6.4). The zero value remembers nothing. The methods may be called by several goroutines.
type Overwritten struct {
	mu   sync.Mutex
	last map[string]written // by what is written, such as author and name of an export
}

// written is what was written last.
type written struct {
	asked string // fingerprint
	at    time.Time
	times int // it was written again in a row
}

// Wait returns how long to wait until something is written: 0 if it is not what was written last. asked says what it is to be, of which object.
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

// Wrote records what was written, and reports whether somebody should know that it is written again and again: true once in a row.
func (o *Overwritten) Wrote(key, asked string, now time.Time) (report bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var times int
	if last, ok := o.last[key]; ok && last.asked == asked {
		times = last.times + 1
	}
	if o.last == nil {
		o.last = make(map[string]written)
	}
	o.last[key] = written{asked: asked, at: now, times: times}
	return times == reportedOverwrites
}

// Forget drops what is remembered of something that is no longer written.
func (o *Overwritten) Forget(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.last, key)
}

// fingerprint is a hash of conditions of an export.
func fingerprint(exp *mcsv1beta1.ServiceExport, conditions []metav1.Condition) string {
	text, err := json.Marshal(conditions)
	if err != nil {
		panic("member: conditions are no JSON: " + err.Error())
	}
	return apibroker.Hash(32, string(exp.UID), string(text))
}
