package importer

import (
	"sync"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/metrics"
)

// maxNamed is how many rejections of one cluster are logged: a cluster that writes only such objects must not hide
// those of others in the log. All are counted.
const maxNamed = 1_000

// Rejections counts rejected objects of members, and logs each object and reason once. For this cluster's own objects
// it logs each detail (docs/spec/controller.md 9), so that fixing one value reveals the next bad one. Several
// goroutines may call the methods.
type Rejections struct {
	log     logging.Logger
	metrics *metrics.Metrics

	mu     sync.Mutex
	logged map[string]map[rejected]struct{} // by cluster
}

type rejected struct {
	object string
	reason merge.Reason
	detail string // of an object of this cluster
}

// NewRejections returns Rejections that have logged nothing.
func NewRejections(log logging.Logger, m *metrics.Metrics) *Rejections {
	return &Rejections{log: log, metrics: m, logged: make(map[string]map[rejected]struct{})}
}

// Report counts a rejection, and logs it if it is new.
func (rs *Rejections) Report(r merge.Rejection) { rs.report(r) }

// report is [Rejections.Report], and returns whether the rejection is new.
func (rs *Rejections) report(r merge.Rejection) (isNew bool) {
	rs.metrics.Rejected(string(r.Reason))
	first, last := rs.first(r)
	if !first {
		return false
	}
	rs.log.Warningf("rejected of cluster %q: %s (%s): %s", r.Cluster, r.Object, r.Reason, reason.With(r.Detail, codeOf(r)))
	if last {
		rs.log.Warningf("rejected of cluster %q: %d logged; from now on they are only counted", r.Cluster, maxNamed)
	}
	return true
}

// codeOf returns the code of the cause. Codes of rejections are about what other clusters wrote to the broker.
func codeOf(r merge.Rejection) reason.Code {
	switch {
	case r.Cluster == merge.Local:
		return ""
	case r.Code != "":
		return r.Code
	}
	return reason.Of(reason.RejectedOthers, string(r.Reason))
}

// first reports whether this is the first rejection of its kind and there is room to remember it; last reports that
// there is no more room for this cluster.
func (rs *Rejections) first(r merge.Rejection) (first, last bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	key, all := rejected{object: r.Object, reason: r.Reason}, rs.logged[r.Cluster]
	if r.Cluster == merge.Local {
		key.detail = r.Detail
	}
	if _, logged := all[key]; logged || len(all) >= maxNamed {
		return false, false
	}
	if all == nil {
		all = make(map[rejected]struct{})
		rs.logged[r.Cluster] = all
	}
	all[key] = struct{}{}
	return true, len(all) == maxNamed
}
