package cause

import (
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/resolver"
)

// A walk is one call of [Find]: what follows from the input, and the chain that the checks add to.
type walk struct {
	chain
	in        *Input
	target    Target
	evaluated cache.Evaluation
	expected  expectation
	exporters []*exporter
}

// newWalk computes what the checks share.
func newWalk(in *Input, t Target) *walk {
	w := &walk{in: in, target: t}
	if raw := in.Here.Import.Value.JSON; in.Here.Import.State == Present {
		// A spec that does not decode is a rejection, which a check reports.
		w.evaluated, _ = cache.Evaluate(raw, in.Here.Slices.Value,
			index.Options{ClusterNames: true, MaxNames: resolver.MaxNames(dns.Fqdn(in.Zone))})
	}
	w.exporters = exporters(in, t, w.evaluated)
	w.expected = expectedAnswer(in, t, w.evaluated.Service)
	return w
}

// hasAnswer reports whether the objects of this cluster have an answer.
func (w *walk) hasAnswer() bool { return w.expected.outcome == resolver.Found }

// usable counts the endpoints that this cluster can use.
func (w *walk) usable() (all int) {
	for _, e := range w.exporters {
		all += e.here.usable
	}
	return all
}

// isDead reports whether the import has an address, and connections to it fail: no cluster has a ready endpoint. Other
// implementations may have endpoints without EndpointSlices.
func (w *walk) isDead() bool {
	return w.hasAnswer() && w.in.Here.Slices.State == Present && w.usable() == 0 && !w.isForeign()
}

// isSettled reports whether this cluster has imported what the broker has, as far as that can be seen: then a fault
// between the two does not explain an answer.
func (w *walk) isSettled() bool {
	imp := w.in.Here.Import
	return imp.State == Present && !slices.ContainsFunc(w.exporters, (*exporter).isBehind)
}

// isForeign reports whether the import is that of another implementation, in a cluster that is not a member.
func (w *walk) isForeign() bool {
	imp := w.in.Here.Import
	return imp.State == Present && !isOurs(imp.Value) && w.in.Here.ClusterSet.State != Present
}

// sparesOthers reports whether a fault of one cluster leaves others to answer, so that it does not explain that there
// is no answer.
func (w *walk) sparesOthers(e *exporter) bool {
	if of := w.clusterAsked(); of != "" {
		return of != e.id
	}
	return w.hasAnswer() && !w.isDead() ||
		slices.ContainsFunc(w.exporters, func(o *exporter) bool { return o != e && o.here.usable > 0 })
}

// clusterFault adds a fault of exporting clusters, which may explain that connections fail.
func (w *walk) clusterFault(spared bool, name string, code reason.Code, format string, args ...any) {
	dead := w.isDead()
	if dead {
		format += "; no cluster has a ready endpoint, so connections fail"
	}
	w.fault(spared, name, code, format, args...)
	w.steps[len(w.steps)-1].answers = dead
}

// clusterAsked is the known cluster in the question, or "".
func (w *walk) clusterAsked() string {
	host, cluster := w.target.Left, ""
	for _, e := range w.exporters {
		if len(e.id) > len(cluster) && (host == e.id || strings.HasSuffix(host, "."+e.id)) {
			cluster = e.id
		}
	}
	return cluster
}
