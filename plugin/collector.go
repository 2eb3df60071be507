package plugin

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterset-dns/clusterset/cache"
)

// A collector reads its metrics from the stores at each scrape.
type collector struct {
	stores func() map[string]*cache.Store
}

// NewCollector returns the metrics of the stores; stores has them by the name of their source, the label "source".
func NewCollector(stores func() map[string]*cache.Store) prometheus.Collector {
	return collector{stores}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, Name, name), help,
		append([]string{"source"}, labels...), nil)
}

var (
	objectsDesc   = desc("objects", "Objects in the store.", "kind")
	endpointsDesc = desc("endpoints", "Ready endpoints in the store, by source cluster.", "cluster")
	rejectedDesc  = desc("rejected_objects_total", "Counter of objects rejected in whole or in part.", "kind", "reason")
	publishesDesc = desc("publishes_total", "Counter of states published.")
	rollbacksDesc = desc("rollbacks_total", "Counter of times the API server went back to an older state.")
	serialDesc    = desc("serial", "Serial of the zones.")
	hashDesc      = desc("state_hash", "Hash of what is served, equal in servers that serve the same.", "zone", "region")
	frozenDesc    = desc("frozen", "1 while the state is frozen because another cluster answers as the API server.")
	withheldDesc  = desc("withheld_imports", "ServiceImports that are gone from the API server and still served.")
	contactDesc   = desc("last_contact_seconds", "Seconds since the last contact of a watch, +Inf before the first.",
		"watch")
	syncedDesc = desc("synced", "1 once the first list is complete.", "kind")
)

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		objectsDesc, endpointsDesc, rejectedDesc, publishesDesc, rollbacksDesc, serialDesc, frozenDesc, contactDesc,
		syncedDesc,
		withheldDesc, hashDesc,
	} {
		ch <- d
	}
}

// maxExact bounds the numbers that a metric can have exactly.
const maxExact = 1 << 53

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for source, store := range c.stores() {
		st := store.Stats()
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{source}, labels...)...)
		}
		counter := func(d *prometheus.Desc, n uint64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{source}, labels...)...)
		}
		for kind, n := range st.Objects {
			gauge(objectsDesc, float64(n), kind.String())
		}
		for cluster, n := range largestClusters(st.Endpoints) {
			gauge(endpointsDesc, float64(n), cluster)
		}
		for r, n := range st.Rejected {
			counter(rejectedDesc, n, r.Kind.String(), r.Reason.String())
		}
		for w, at := range st.Contact {
			gauge(contactDesc, secondsSince(at), watchName(w))
		}
		for kind, synced := range st.Synced {
			gauge(syncedDesc, boolNumber(synced), kind.String())
		}
		gauge(withheldDesc, float64(st.Withheld))
		counter(publishesDesc, st.Publishes)
		counter(rollbacksDesc, st.Rollbacks)
		gauge(serialDesc, float64(st.Serial))
		gauge(hashDesc, float64(st.Digest%maxExact), st.Zone, st.Region)
		gauge(frozenDesc, boolNumber(st.Frozen))
	}
}

// maxClusters is the most clusters with a series of their own: labels of slices say which there are.
const maxClusters = 100

// largestClusters returns the largest numbers of all, and under "(others)", which is no cluster ID, the sum of the
// rest.
func largestClusters(all map[string]int) map[string]int {
	if len(all) <= maxClusters {
		return all
	}
	largest, rest := map[string]int{}, 0
	byNumber := func(a, b string) int { return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b)) }
	for i, cluster := range slices.SortedFunc(maps.Keys(all), byNumber) {
		if i < maxClusters {
			largest[cluster] = all[cluster]
		} else {
			rest += all[cluster]
		}
	}
	largest["(others)"] = rest
	return largest
}

func secondsSince(at time.Time) float64 {
	if at.IsZero() {
		return math.Inf(1)
	}
	return time.Since(at).Seconds()
}

func boolNumber(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// watchName is the kind, and the namespace if the watch is for one.
func watchName(w cache.Watch) string {
	if w.Namespace == "" {
		return w.Kind.String()
	}
	return w.Kind.String() + "/" + w.Namespace
}
