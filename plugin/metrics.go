package plugin

import (
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/resolver"
)

// answerKind is the label of the answers metric.
type answerKind uint8

const (
	kindVIP answerKind = iota
	kindHeadless
	kindHost
	kindCluster
	kindSRV
	kindApex
	kindReverse
	kindNoData
	kindNXDomain
	kindServFail
	kinds
)

var answerKinds = [kinds]string{
	"vip", "headless", "host", "cluster", "srv", "apex", "reverse", "nodata", "nxdomain", "servfail",
}

// answers has the counter of each kind, so that a query needs no lookup by label.
var answers = func() (counters [kinds]prometheus.Counter) {
	vec := promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: plugin.Namespace,
		Subsystem: Name,
		Name:      "answers_total",
		Help:      "Counter of answers, by kind.",
	}, []string{"kind"})
	for kind, name := range answerKinds {
		counters[kind] = vec.WithLabelValues(name)
	}
	return counters
}()

func kindOf(a *resolver.Answer) answerKind {
	switch a.Outcome {
	case resolver.NXDomain:
		return kindNXDomain
	case resolver.NoData:
		return kindNoData
	}
	switch a.Name.Kind {
	case resolver.Host:
		return kindHost
	case resolver.Cluster:
		return kindCluster
	case resolver.Port:
		return kindSRV
	case resolver.Service:
		switch {
		case a.Services.Len() > 0:
			return kindSRV
		case a.Name.Service.Type() == index.Headless:
			return kindHeadless
		}
		return kindVIP
	}
	return kindApex
}

var latency = promauto.NewHistogram(prometheus.HistogramOpts{
	Namespace: plugin.Namespace,
	Subsystem: Name,
	Name:      "programming_duration_seconds",
	// From 1 ms to 17 minutes: a change takes milliseconds, minutes if the API server is out of reach.
	Buckets: prometheus.ExponentialBuckets(0.001, 2, 21),
	Help:    "Histogram of the time from the write of a change until it is served: DNS programming latency.",
})

var publishing = promauto.NewHistogram(prometheus.HistogramOpts{
	Namespace: plugin.Namespace,
	Subsystem: Name,
	Name:      "publish_duration_seconds",
	// From 100 µs to 26 s: a change takes milliseconds, more while many come at once.
	Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
	Help:    "Histogram of the time from the receipt of a change until it is served.",
})

// ObserveLatency observes the times since a change that is now served was written, and since it was received.
func ObserveLatency(sinceWritten, sinceReceived time.Duration) {
	latency.Observe(sinceWritten.Seconds())
	publishing.Observe(sinceReceived.Seconds())
}
