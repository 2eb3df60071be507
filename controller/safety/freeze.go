// Package safety keeps a member from acting while it does not know the state of the clusterset. A broker that was
// replaced must not empty its members (docs/spec/controller.md 8).
//
//	broker, credential, caches --> [Freezes]   reasons that suspend operations until they clear
//	heartbeats of the members  --> [Expiry]    whose endpoints count no more?
//	                                   |
//	                                   +-----> read by exporter and importer before they remove anything
//
// Expiry also freezes through Freezes. The pure rule is in package liveness.
package safety

import (
	"slices"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/metrics"
)

// A Reason suspends operations until it clears (docs/spec/controller.md 8.7). The zero value is not a reason.
type Reason uint8

// The freeze reasons.
const (
	NotSynced      Reason = iota + 1 // a cache is incomplete
	BrokerIdentity                   // another API server answers, or the cluster id belongs to another cluster
	BrokerEmpty                      // the broker has no member namespace, or lacks our CRDs
	Credential                       // the broker rejects our credential
	OldMember                        // the broker was restored to before the last join of this cluster
	LostMembers                      // the broker has no Member of clusters that services are imported from
	ExportKind                       // this cluster does not have the kind ServiceExport
	Blind                            // this cluster does not see its own state, or cannot write its exports
	Webhook                          // the API server of this cluster cannot call a webhook that imports need
	OwnHeartbeat                     // our own heartbeat does not come back: the silence of others means nothing
	reasonCount
)

// An Operation is what a reason may suspend. Operations are bits of a set.
type Operation uint8

// The operations. Reasons without any are for people, or set by [Expiry], which holds back by itself.
const (
	Export    Operation = 1 << iota // writes of records and slices to the broker
	Import                          // removals, and writes that follow from the broker
	Heartbeat                       // heartbeats
)

// reasons has the label "reason" of metric frozen and the suspended operations, also in the words of
// docs/spec/controller.md 8.7.
var reasons = [reasonCount]struct {
	label    string
	suspends Operation
	words    string
}{
	NotSynced: {"not_synced", Import, "removals, and writes that follow from the broker"},
	BrokerIdentity: {"broker_identity", Export | Import | Heartbeat,
		"removals, writes that follow from the broker, exports, heartbeats"},
	BrokerEmpty: {"broker_empty", Export | Import | Heartbeat,
		"removals, writes that follow from the broker, exports, heartbeats"},
	Credential:   {"credential", Export, "exports"},
	OldMember:    {"old_member", 0, "nothing"},
	LostMembers:  {"lost_members", 0, "nothing"},
	Blind:        {"blind", 0, "nothing"},
	ExportKind:   {"export_kind", 0, "nothing"},
	Webhook:      {"webhook", 0, "nothing"},
	OwnHeartbeat: {"own_heartbeat", 0, "expiry"},
}

// String is the reason as in metrics and logs, or "".
func (r Reason) String() string { return reasons[r].label }

// Reasons lists all reasons.
func Reasons() (all []Reason) {
	for r := Reason(1); r < reasonCount; r++ {
		all = append(all, r)
	}
	return all
}

// Freezes are the freeze reasons in force. Each part of the controller sets and clears the reasons that it detects;
// exporter and importer ask before they act. The methods may be called by several goroutines.
type Freezes struct {
	log     logging.Logger
	metrics *metrics.Metrics
	changed func() // called without the lock after a reason came into force or cleared

	mu      sync.Mutex
	inForce [reasonCount]wellknown.Freeze // zero for a reason that is not in force
}

// NewFreezes returns Freezes without a reason in force. changed is called each time that a reason which suspends an
// operation comes into force or clears.
func NewFreezes(log logging.Logger, m *metrics.Metrics, changed func()) *Freezes {
	return &Freezes{log: log, metrics: m, changed: changed}
}

// Set puts r into force with a detail, one phrase for people, or clears it if detail is empty. The detail is logged
// when r comes into force; later details replace it without a log line.
func (f *Freezes) Set(r Reason, detail string) {
	f.SetFor(r, reason.Of(reason.Frozen, r.String()), detail)
}

// SetFor is Set for a reason with causes that have codes of their own; code is that of the cause.
func (f *Freezes) SetFor(r Reason, code reason.Code, detail string) {
	f.mu.Lock()
	before, found := f.inForce[r].Detail != "", detail != ""
	switch {
	case !found:
		f.inForce[r] = wellknown.Freeze{}
	case !before:
		f.inForce[r] = wellknown.Freeze{Reason: r.String(), Suspends: reasons[r].words,
			Imports: reasons[r].suspends&Import != 0, Since: time.Now()}
		fallthrough
	default:
		f.inForce[r].Code, f.inForce[r].Detail = string(code), detail
	}
	f.mu.Unlock()
	if before == found {
		return
	}
	f.metrics.SetFrozen(r.String(), found)
	if found {
		f.log.Warningf("frozen (%s): %s", r, reason.With(detail, code))
	} else {
		f.log.Infof("no longer frozen (%s)", r)
	}
	if reasons[r].suspends != 0 {
		f.changed()
	}
}

// AnyInForce reports whether one of the given reasons is in force.
func (f *Freezes) AnyInForce(given ...Reason) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(given, func(r Reason) bool { return f.inForce[r].Detail != "" })
}

// InForce returns the reasons in force, in their order.
func (f *Freezes) InForce() []wellknown.Freeze {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.inForce[:]), func(freeze wellknown.Freeze) bool { return freeze.Detail == "" })
}

// Suspended returns the detail of a reason in force that suspends an operation, "" if the operation may go on.
func (f *Freezes) Suspended(op Operation) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r, freeze := range f.inForce {
		if freeze.Detail != "" && reasons[r].suspends&op != 0 {
			return freeze.Detail
		}
	}
	return ""
}
