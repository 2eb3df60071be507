// Package safety keeps a member from acting on what its broker may have lost. A broker that was emptied, restored from an old
// backup or replaced must not empty its members, and a broker that stops to pass heartbeats on must not make all members
// disappear (docs/spec/controller.md 8).
//
//	broker, credential, caches --> [Freezes]   reasons that suspend operations until they clear
//	lists and watch of records --> [MassLoss]  are missing exports gone, or did the broker lose them?
//	heartbeats of the members  --> [Expiry]    whose endpoints count no more?
//	                                   |
//	                                   +-----> read by exporter and importer before they remove anything
//
// MassLoss and Expiry freeze through Freezes, too. The rules without clock and API server are in this package's
// comparison.go and in package liveness.
package safety

import (
	"slices"
	"sync"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/metrics"
)

// A Reason suspends the operations listed beside it until it clears. Its text is the label "reason" of metric frozen.
type Reason string

// The freeze reasons. Under BrokerIdentity and BrokerEmpty nothing is written or removed that follows from the broker.
const (
	NotSynced      Reason = "not_synced"      // a cache is incomplete: nothing is removed
	BrokerIdentity Reason = "broker_identity" // another API server answers, or the cluster id belongs to another cluster
	BrokerEmpty    Reason = "broker_empty"    // the broker has no member namespace, or lacks our CRDs
	Credential     Reason = "credential"      // the broker rejects our credential: nothing is removed
	LostRecords    Reason = "lost_records"    // an import that would lose clusters stays as it is
	MassExpiry     Reason = "mass_expiry"     // no member counts as expired
)

// Reasons lists the values of the label "reason".
func Reasons() []Reason {
	return []Reason{NotSynced, BrokerIdentity, BrokerEmpty, LostRecords, MassExpiry, Credential}
}

// Freezes are the freeze reasons in force. Each part of the controller sets and clears the reasons that it detects; exporter
// and importer ask before they act. The methods may be called by several goroutines.
type Freezes struct {
	log     logging.Logger
	metrics *metrics.Metrics
	changed func() // called without the lock after a reason came into force or cleared

	mu      sync.Mutex
	details map[Reason]string // of the reasons in force
}

// NewFreezes returns Freezes without a reason in force. changed is called each time that a reason comes into force or clears.
func NewFreezes(log logging.Logger, m *metrics.Metrics, changed func()) *Freezes {
	return &Freezes{log: log, metrics: m, changed: changed, details: make(map[Reason]string)}
}

// Set puts r into force with a detail, one phrase for people, or clears it if detail is empty. The detail is logged when r
// comes into force; later details replace it without a log line.
func (f *Freezes) Set(r Reason, detail string) {
	f.mu.Lock()
	_, was := f.details[r]
	if detail == "" {
		delete(f.details, r)
	} else {
		f.details[r] = detail
	}
	f.mu.Unlock()
	is := detail != ""
	if was == is {
		return
	}
	f.metrics.SetFrozen(string(r), is)
	if is {
		f.log.Warningf("frozen (%s): %s", r, detail)
	} else {
		f.log.Infof("no longer frozen (%s)", r)
	}
	f.changed()
}

// Any reports whether one of the given reasons is in force.
func (f *Freezes) Any(given ...Reason) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(given, func(r Reason) bool { _, ok := f.details[r]; return ok })
}

// Detail returns the detail of the first given reason that is in force, "" if none of them is.
func (f *Freezes) Detail(given ...Reason) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range given {
		if detail, ok := f.details[r]; ok {
			return detail
		}
	}
	return ""
}
