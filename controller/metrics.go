package controller

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/lease"
	"github.com/clusterset-dns/clusterset/controller/metrics"
	"github.com/clusterset-dns/clusterset/controller/queue"
	"github.com/clusterset-dns/clusterset/controller/safety"
)

// Metrics are the metrics of one process; see [metrics.Metrics].
type Metrics = metrics.Metrics

// The names of the two queues, which are also label values.
const (
	queueExports = "exports"
	queueImports = "imports"
	queueRules   = "rules"
)

// The two API servers, as the label "side" of metric writes_total.
const (
	sideLocal  = "local"
	sideBroker = "broker"
)

// NewMetrics makes the metrics and registers them with reg, unless it is nil. It panics if they are registered already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	labels := metrics.Labels{Queues: []string{queueExports, queueImports, queueRules}}
	for _, r := range safety.Reasons() {
		labels.Reasons = append(labels.Reasons, r.String())
	}
	return metrics.New(reg, labels)
}

// newQueue returns a queue that counts its failures in m. Work that the end of the lease cuts off has not failed.
func newQueue(name string, log logging.Logger, m *Metrics) *queue.Queue {
	return queue.New(queue.Config{
		Name: name, Log: log,
		Failed:   func() { m.Failed(name) },
		Panicked: m.Panicked,
		Expected: func(err error) bool { return errors.Is(err, lease.ErrNotHeld) },
	})
}
