package plugin

import (
	"math"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterset-dns/clusterset/cache"
)

// A collector reads its metrics from the stores when it is asked.
type collector struct {
	stores func() map[string]*cache.Store
}

// NewCollector makes metrics of what the stores hold, by the name of their source.
func NewCollector(stores func() map[string]*cache.Store) prometheus.Collector {
	return collector{stores}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, Name, name), help,
		append([]string{"source"}, labels...), nil)
}

var (
	objectsDesc   = desc("objects", "Objects held.", "kind")
	endpointsDesc = desc("endpoints", "Ready endpoints held, by source cluster.", "cluster")
	rejectedDesc  = desc("rejected_objects_total", "Counter of objects refused in whole or in part.", "kind", "reason")
	publishesDesc = desc("publishes_total", "Counter of states published.")
	rewindsDesc   = desc("rollbacks_total", "Counter of times the API server went back to an older state.")
	serialDesc    = desc("serial", "Serial of the zones.")
	heldDesc      = desc("frozen", "1 while the last state is held because another cluster answers.")
	contactDesc   = desc("last_contact_seconds", "Seconds since a watch was last heard of, +Inf if never.", "watch")
	syncedDesc    = desc("synced", "1 once the first list is complete.", "kind")
)

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		objectsDesc, endpointsDesc, rejectedDesc, publishesDesc, rewindsDesc, serialDesc, heldDesc, contactDesc, syncedDesc,
	} {
		ch <- d
	}
}

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
		for cluster, n := range st.Endpoints {
			gauge(endpointsDesc, float64(n), cluster)
		}
		for r, n := range st.Rejected {
			counter(rejectedDesc, n, r.Kind.String(), r.Reason.String())
		}
		for w, at := range st.Contact {
			gauge(contactDesc, age(at), watchName(w))
		}
		for kind, synced := range st.Synced {
			gauge(syncedDesc, number(synced), kind.String())
		}
		counter(publishesDesc, st.Publishes)
		counter(rewindsDesc, st.Rewinds)
		gauge(serialDesc, float64(st.Serial))
		gauge(heldDesc, number(st.Held))
	}
}

func age(at time.Time) float64 {
	if at.IsZero() {
		return math.Inf(1)
	}
	return time.Since(at).Seconds()
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// watchName is the kind, with the namespace if the watch is of one.
func watchName(w cache.Watch) string {
	if w.Namespace == "" {
		return w.Kind.String()
	}
	return w.Kind.String() + "/" + w.Namespace
}
