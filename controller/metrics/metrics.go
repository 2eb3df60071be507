// Package metrics holds the Prometheus metrics of the controller. Every part of the controller writes the few that
// concern it; nothing here knows the parts.
//
// Counters and gauges outlive a term of leadership. [Metrics.Reset] returns those gauges to zero that describe what a
// leader knows, so that an instance on standby reports nothing stale.
package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const prefix = "coredns_clusterset_controller_"

// A Labels lists the label values that have a time series from the start, before anything is counted.
type Labels struct {
	Reasons []string // freeze reasons: label "reason" of metric frozen
	Queues  []string // label "queue"
}

// Metrics are the metrics of one process. They outlive the controller instances of that process: pass the same to each.
// Its methods may be called by several goroutines.
type Metrics struct {
	labels Labels

	leader, member, connected prometheus.Gauge
	memberInfo                *prometheus.GaugeVec
	frozen                    *prometheus.GaugeVec
	errors                    *prometheus.CounterVec
	panics                    prometheus.Counter
	writes                    *prometheus.CounterVec
	conflicts                 *prometheus.GaugeVec
	records                   prometheus.Gauge
	rejected                  *prometheus.CounterVec
	lag                       prometheus.Histogram
	pool                      *prometheus.GaugeVec
	credential                prometheus.Gauge
	dropped                   prometheus.Counter
	undeclared                prometheus.Gauge

	mu       sync.Mutex                       // guards the fields below
	sources  Sources                          // read at each scrape
	services map[types.NamespacedName]counted // the contribution of each service to conflicts and records
	outside  map[types.NamespacedName]int     // its contribution to undeclared
	// when the last review ended, or the first was due; zero while no review is due
	reviewed time.Time
}

// counted is what one service adds to the gauges.
type counted struct {
	reasons []string
	records int
}

// Sources are read at each scrape. The zero value belongs to an instance that does not lead.
type Sources struct {
	// Queues returns the number of waiting keys and the age of the oldest one, by name of the queue.
	Queues map[string]func() (depth int, age time.Duration)
	// Heartbeats returns the heartbeat of each member.
	Heartbeats func() map[string]Heartbeat
	// WithheldExports returns how many ServiceExports are gone and stay exported.
	WithheldExports func() int
	// Kept returns how many services of each cluster stay imported although the broker lost something.
	Kept func() map[string]int
}

// A Heartbeat is the known heartbeat of a member.
type Heartbeat struct {
	Seen time.Time     // when it was last seen to change, or seen first; zero if never
	TTL  time.Duration // age at which it is expired for this cluster; 0 if that is not known
}

// New makes the metrics and registers them with reg, unless reg is nil. It panics if they are registered already.
func New(reg prometheus.Registerer, l Labels) *Metrics {
	f := promauto.With(reg)
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: prefix + name, Help: help})
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + name, Help: help}, labels)
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	}
	m := &Metrics{
		labels: l,
		leader: gauge("leader", "Whether this instance is the leader."),
		member: gauge("member", "Whether this cluster is a member of a clusterset."),
		memberInfo: gauges(
			"member_info", "Always 1, with the cluster id of this cluster while it is a member of a clusterset.", "cluster"),
		connected: gauge("broker_connected", "Whether the broker answers and every watch of it works."),
		frozen:    gauges("frozen", "Whether operations are suspended, by freeze reason.", "reason"),
		errors:    counters("errors_total", "Counter of services whose reconcile failed and is retried, by queue.", "queue"),
		panics:    counter("panics_total", "Counter of panics that were recovered."),
		writes: counters("writes_total", "Counter of write requests, by API server, kind and verb.", "side", "kind",
			"verb"),
		conflicts: gauges("conflicts", "Number of services whose exports conflict, by reason.", "reason"),
		records:   gauge("exported_services", "Number of export records that are accepted."),
		rejected: counters("rejected_objects_total",
			"Counter of export records, slices and endpoints that are rejected, by reason.", "reason"),
		lag: f.NewHistogram(prometheus.HistogramOpts{Name: prefix + "endpoint_lag_seconds",
			Help: "Histogram of the time from the change of an endpoint in its cluster to the write of its imported slice.",
			// From 10 ms to 1.5 hours: usually a second, and as long as the broker was unreachable.
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 20)}),
		pool: gauges(
			"vip_pool_addresses", "Number of addresses in the VIP CIDRs of this member, by IP family and state.", "family",
			"state"),
		credential: gauge("credential_expiry_timestamp_seconds",
			"Time at which the broker credential expires, 0 if it does not or is not known."),
		dropped: counter(
			"dropped_events_total",
			"Counter of Events that were not written because too many were waiting, or the write failed."),
		undeclared: gauge(
			"undeclared_addresses",
			"Number of addresses that are not exported because this cluster did not declare their network."),
		services: make(map[types.NamespacedName]counted),
		outside:  make(map[types.NamespacedName]int),
	}
	m.resetFrozen()
	for _, queue := range l.Queues {
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

// SetLeader records whether this instance is the leader.
func (m *Metrics) SetLeader(on bool) { set(m.leader, on) }

// SetMember records the cluster id of this cluster while it is a member of a clusterset, else "".
func (m *Metrics) SetMember(clusterID string) {
	set(m.member, clusterID != "")
	m.memberInfo.Reset()
	if clusterID != "" {
		m.memberInfo.WithLabelValues(clusterID).Set(1)
	}
}

// SetConnected records whether the broker answers.
func (m *Metrics) SetConnected(on bool) { set(m.connected, on) }

// SetFrozen records whether a freeze reason is in force.
func (m *Metrics) SetFrozen(reason string, on bool) { set(m.frozen.WithLabelValues(reason), on) }

// Failed counts a reconcile that failed.
func (m *Metrics) Failed(queue string) { m.errors.WithLabelValues(queue).Inc() }

// Panicked counts a panic that was recovered.
func (m *Metrics) Panicked() { m.panics.Inc() }

// Wrote counts a write request.
func (m *Metrics) Wrote(side, kind, verb string) { m.writes.WithLabelValues(side, kind, verb).Inc() }

// DroppedEvent counts an Event that was not written.
func (m *Metrics) DroppedEvent() { m.dropped.Inc() }

// Rejected counts an object that is not accepted. The reasons are a closed set.
func (m *Metrics) Rejected(reason string) { m.rejected.WithLabelValues(reason).Inc() }

// ObserveLag counts the time from the change of an endpoint to the write of its slice here.
func (m *Metrics) ObserveLag(d time.Duration) { m.lag.Observe(d.Seconds()) }

// SetPool records how many addresses of this member's VIP CIDR of an IP family are in each state.
func (m *Metrics) SetPool(family corev1.IPFamily, used, quarantined, free int) {
	m.pool.WithLabelValues(string(family), "used").Set(float64(used))
	m.pool.WithLabelValues(string(family), "quarantined").Set(float64(quarantined))
	m.pool.WithLabelValues(string(family), "free").Set(float64(free))
}

// SetCredentialExpiry records when the broker credential expires; the zero time means never or unknown.
func (m *Metrics) SetCredentialExpiry(t time.Time) {
	if t.IsZero() {
		m.credential.Set(0)
		return
	}
	m.credential.Set(float64(t.Unix()))
}

// SetService records the conflict reasons of a service and how many of its export records are accepted. A service
// without both is forgotten.
func (m *Metrics) SetService(svc types.NamespacedName, reasons []string, records int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.services[svc]
	for _, r := range before.reasons {
		m.conflicts.WithLabelValues(r).Dec()
	}
	for _, r := range reasons {
		m.conflicts.WithLabelValues(r).Inc()
	}
	m.records.Add(float64(records - before.records))
	if delete(m.services, svc); len(reasons) > 0 || records > 0 {
		m.services[svc] = counted{reasons, records}
	}
}

// SetUndeclared records how many addresses of a service are not exported because the cluster did not declare their
// network.
func (m *Metrics) SetUndeclared(svc types.NamespacedName, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.undeclared.Add(float64(n - m.outside[svc]))
	if m.outside[svc] = n; n == 0 {
		delete(m.outside, svc)
	}
}

// Reviewed records that a review of the state, which is due every second, has ended, or that the first is due.
func (m *Metrics) Reviewed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reviewed = time.Now()
}

// ReviewAge returns how long ago the last review ended, 0 while no review is due. A review waits for no API server, so
// one that does not come back is a fault of this program.
func (m *Metrics) ReviewAge() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reviewed.IsZero() {
		return 0
	}
	return time.Since(m.reviewed)
}

// SetSources replaces the sources of each scrape.
func (m *Metrics) SetSources(s Sources) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources = s
}

// Reset returns every gauge that describes the knowledge of a leader to its value on an instance that does not lead.
func (m *Metrics) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources, m.reviewed = Sources{}, time.Time{}
	m.services, m.outside = make(map[types.NamespacedName]counted), make(map[types.NamespacedName]int)
	m.undeclared.Set(0)
	m.conflicts.Reset()
	m.records.Set(0)
	m.pool.Reset()
	m.SetMember("")
	m.connected.Set(0)
	m.resetFrozen()
}

func (m *Metrics) resetFrozen() {
	for _, reason := range m.labels.Reasons {
		m.SetFrozen(reason, false)
	}
}

// scraped are the metrics that are computed at each scrape.
type scraped struct{ *Metrics }

var (
	descDepth = prometheus.NewDesc(prefix+"queue_depth", "Number of services that wait, by queue.", []string{"queue"}, nil)
	descAge   = prometheus.NewDesc(prefix+"queue_age_seconds",
		"Time for which the service that waits longest has been waiting, by queue.", []string{"queue"}, nil)
	descReview = prometheus.NewDesc(prefix+"review_age_seconds",
		"Time since the review of the state, which is due every second, ended; 0 on an instance that does not lead.", nil, nil)
	descLease = prometheus.NewDesc(prefix+"lease_age_seconds",
		"Time since the heartbeat of a member was seen to change.", []string{"cluster"}, nil)
	descTTL = prometheus.NewDesc(prefix+"lease_ttl_seconds",
		"Age of its heartbeat at which a member is silent.", []string{"cluster"}, nil)
	descKept = prometheus.NewDesc(prefix+"kept_imports",
		"Number of services that stay imported from a cluster, in part or as a whole, although the broker lost something or has an old copy, by cluster.",
		[]string{"cluster"}, nil)
	descWithheld = prometheus.NewDesc(prefix+"withheld_exports",
		"Number of ServiceExports that are gone and stay exported.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (scraped) Describe(ch chan<- *prometheus.Desc) {
	ch <- descDepth
	ch <- descAge
	ch <- descReview
	ch <- descLease
	ch <- descTTL
	ch <- descWithheld
	ch <- descKept
}

// Collect implements [prometheus.Collector].
func (c scraped) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, label)
	}
	c.mu.Lock()
	sources := c.sources
	c.mu.Unlock()
	for _, queue := range c.labels.Queues {
		var depth int
		var age time.Duration
		if waiting := sources.Queues[queue]; waiting != nil {
			depth, age = waiting()
		}
		gauge(descDepth, float64(depth), queue)
		gauge(descAge, age.Seconds(), queue)
	}
	ch <- prometheus.MustNewConstMetric(descReview, prometheus.GaugeValue, c.ReviewAge().Seconds())
	var withheld int
	if sources.WithheldExports != nil {
		withheld = sources.WithheldExports()
	}
	ch <- prometheus.MustNewConstMetric(descWithheld, prometheus.GaugeValue, float64(withheld))
	if sources.Heartbeats == nil { // not leading
		return
	}
	if sources.Kept != nil {
		for cluster, n := range sources.Kept() {
			gauge(descKept, float64(n), cluster)
		}
	}
	for cluster, h := range sources.Heartbeats() {
		if !h.Seen.IsZero() {
			gauge(descLease, time.Since(h.Seen).Seconds(), cluster)
		}
		if h.TTL > 0 {
			gauge(descTTL, h.TTL.Seconds(), cluster)
		}
	}
}
