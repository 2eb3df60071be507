package write

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/metrics"
)

// A Config sets what a [Writer] uses.
type Config struct {
	Member  *member.Cluster
	Events  *member.Events
	Policy  member.Policy
	Metrics *metrics.Metrics
	Log     logging.Logger
	Retry   func(types.NamespacedName, time.Duration) // reconciles the import of a service again, after a time
	// Observes: a ServiceImport has status.observedGeneration, so that a change of the spec takes a write of the status.
	Observes bool
}

// A Writer knows how the API server answered earlier writes. Several goroutines may use it.
type Writer struct {
	cfg         Config
	responses   *responses
	overwritten *member.Overwritten // the statuses of derived Services, by service
	started     time.Time           // changes of endpoints from before are backlog
}

// New returns a Writer that knows no answer.
func New(cfg Config) *Writer {
	return &Writer{cfg, newResponses(), &member.Overwritten{}, time.Now()}
}

// Forget drops the answers about a service that is no longer imported.
func (w *Writer) Forget(svc types.NamespacedName) {
	w.responses.remove(svc)
	w.overwritten.Forget(svc.String())
}
