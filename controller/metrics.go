package controller

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/controller/queue"
)

const prefix = "coredns_clusterset_controller_"

// Metrics are what one process tells of its controller. They outlive the instances of it: pass the same to each.
type Metrics struct {
	leader, member, connected prometheus.Gauge
	held                      *prometheus.GaugeVec
	errors                    *prometheus.CounterVec
	panics                    prometheus.Counter
	writes                    *prometheus.CounterVec
	conflicts                 *prometheus.GaugeVec
	records                   prometheus.Gauge
	refused                   *prometheus.CounterVec
	lag                       prometheus.Histogram
	pool                      *prometheus.GaugeVec
	credential                prometheus.Gauge
	dropped                   prometheus.Counter

	session atomic.Pointer[session] // the one that acts, nil if none does

	mu       sync.Mutex                       // guards what follows
	services map[types.NamespacedName]counted // what the gauges are the sums of
}

// counted is what one service adds to the gauges.
type counted struct {
	reasons []string
	records int
}

// NewMetrics makes the metrics and registers them with reg, unless it is nil. It panics if they are registered already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	m := &Metrics{
		leader: f.NewGauge(prometheus.GaugeOpts{Name: prefix + "leader",
			Help: "Whether this instance is the one that acts."}),
		member: f.NewGauge(prometheus.GaugeOpts{Name: prefix + "member",
			Help: "Whether this cluster is a member of a clusterset."}),
		connected: f.NewGauge(prometheus.GaugeOpts{Name: prefix + "broker_connected",
			Help: "Whether the broker answers."}),
		held: f.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "frozen",
			Help: "Whether something is left as it is, by the reason for it."}, []string{"reason"}),
		errors: f.NewCounterVec(prometheus.CounterOpts{Name: prefix + "errors_total",
			Help: "Counter of services that failed and are tried again, by queue."}, []string{"queue"}),
		panics: f.NewCounter(prometheus.CounterOpts{Name: prefix + "panics_total",
			Help: "Counter of panics that were recovered."}),
		writes: f.NewCounterVec(prometheus.CounterOpts{Name: prefix + "writes_total",
			Help: "Counter of requests that write, by API server, kind and verb."}, []string{"side", "kind", "verb"}),
		conflicts: f.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "conflicts",
			Help: "Number of services whose exports disagree, by reason."}, []string{"reason"}),
		records: f.NewGauge(prometheus.GaugeOpts{Name: prefix + "exported_services",
			Help: "Number of export records that are accepted."}),
		refused: f.NewCounterVec(prometheus.CounterOpts{Name: prefix + "rejected_objects_total",
			Help: "Counter of export records, slices and endpoints that are refused, by reason."}, []string{"reason"}),
		lag: f.NewHistogram(prometheus.HistogramOpts{Name: prefix + "endpoint_lag_seconds",
			Help: "Histogram of the time from the change of an endpoint in its cluster to the write of its imported slice.",
			// From 10 ms to 1.5 hours: usually a second, and as long as a broker was lost.
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 20)}),
		pool: f.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "vip_pool_addresses",
			Help: "Number of addresses in the VIP CIDR of this member, by state."}, []string{"state"}),
		credential: f.NewGauge(prometheus.GaugeOpts{Name: prefix + "credential_expiry_timestamp_seconds",
			Help: "Time at which the broker credential expires, 0 if it does not or is not known."}),
		dropped: f.NewCounter(prometheus.CounterOpts{Name: prefix + "dropped_events_total",
			Help: "Counter of Events that were not written, as there were too many."}),
		services: make(map[types.NamespacedName]counted),
	}
	for _, h := range allHolds {
		m.held.WithLabelValues(string(h))
	}
	for _, queue := range []string{queueExports, queueImports} {
		m.errors.WithLabelValues(queue)
	}
	if reg != nil {
		reg.MustRegister(scraped{m})
	}
	return m
}

func set(g prometheus.Gauge, on bool) {
	if on {
		g.Set(1)
	} else {
		g.Set(0)
	}
}

func (m *Metrics) hold(h hold, on bool)          { set(m.held.WithLabelValues(string(h)), on) }
func (m *Metrics) failed(queue string)           { m.errors.WithLabelValues(queue).Inc() }
func (m *Metrics) panicked()                     { m.panics.Inc() }
func (m *Metrics) wrote(side, kind, verb string) { m.writes.WithLabelValues(side, kind, verb).Inc() }
func (m *Metrics) droppedEvent()                 { m.dropped.Inc() }

// refuse counts what is not accepted. The reasons are a closed set.
func (m *Metrics) refuse(reason string) { m.refused.WithLabelValues(reason).Inc() }

// observeLag counts the time from the change of an endpoint to the write of its slice here.
func (m *Metrics) observeLag(d time.Duration) { m.lag.Observe(d.Seconds()) }

// setPool says how many addresses of our VIP CIDR are in each state.
func (m *Metrics) setPool(used, quarantined, free int) {
	m.pool.WithLabelValues("used").Set(float64(used))
	m.pool.WithLabelValues("quarantined").Set(float64(quarantined))
	m.pool.WithLabelValues("free").Set(float64(free))
}

// setExpiry says when the broker credential expires.
func (m *Metrics) setExpiry(t time.Time) {
	if t.IsZero() {
		m.credential.Set(0)
		return
	}
	m.credential.Set(float64(t.Unix()))
}

// setService says in which ways the exports of a service disagree, and how many of its export records are accepted. A
// service that is gone has neither.
func (m *Metrics) setService(svc types.NamespacedName, reasons []string, records int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.services[svc]
	for _, r := range was.reasons {
		m.conflicts.WithLabelValues(r).Dec()
	}
	for _, r := range reasons {
		m.conflicts.WithLabelValues(r).Inc()
	}
	m.records.Add(float64(records - was.records))
	if delete(m.services, svc); len(reasons) > 0 || records > 0 {
		m.services[svc] = counted{reasons, records}
	}
}

// reset forgets what the session told: an instance that does not act knows nothing.
func (m *Metrics) reset() {
	m.session.Store(nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.services = make(map[types.NamespacedName]counted)
	m.conflicts.Reset()
	m.records.Set(0)
	m.pool.Reset()
	m.member.Set(0)
	m.connected.Set(0)
	for _, h := range allHolds {
		m.hold(h, false)
	}
}

// scraped are the metrics that are computed when someone asks.
type scraped struct{ *Metrics }

var (
	descDepth = prometheus.NewDesc(prefix+"queue_depth", "Number of services that wait, by queue.", []string{"queue"}, nil)
	descAge   = prometheus.NewDesc(prefix+"queue_age_seconds",
		"Time for which the service that waits longest has been waiting, by queue.", []string{"queue"}, nil)
	descLease = prometheus.NewDesc(prefix+"lease_age_seconds",
		"Time since the heartbeat of a member was seen to change.", []string{"cluster"}, nil)
)

// Describe implements [prometheus.Collector].
func (scraped) Describe(ch chan<- *prometheus.Desc) {
	ch <- descDepth
	ch <- descAge
	ch <- descLease
}

// Collect implements [prometheus.Collector].
func (c scraped) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, label)
	}
	s := c.session.Load()
	if s == nil {
		for _, queue := range []string{queueExports, queueImports} {
			gauge(descDepth, 0, queue)
			gauge(descAge, 0, queue)
		}
		return
	}
	for _, q := range []*queue.Queue{s.exports, s.imports} {
		depth, age := q.Waiting()
		gauge(descDepth, float64(depth), q.Name())
		gauge(descAge, age.Seconds(), q.Name())
	}
	for cluster, seen := range s.broker.Heartbeats() {
		if !seen.IsZero() {
			gauge(descLease, time.Since(seen).Seconds(), cluster)
		}
	}
}
