package member

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/shorten"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/metrics"
)

// The rate of Events, apart from that of all other requests (docs/spec/controller.md 10), and how many may wait for it.
const (
	eventQPS     = 20
	eventBurst   = 40
	eventBacklog = 1000
	eventWorkers = 2
)

// The limits of the API server for the fields of an Event, in octets.
const (
	maxEventReason = 128
	maxEventName   = 253
)

// The names of Valid and Ready in the first version of KEP-1645.
const (
	legacyInitialized = "Initialized"
	legacyExported    = "Exported"
)

// Events writes one Event for each transition of a condition (docs/spec/controller.md 6). It has a client and a rate of
// its own, so that Events never delay other writes. Callers never wait: while [eventBacklog] Events wait, further ones
// are dropped and counted. A namespace may fill half of the free room, so a busy one leaves room for others.
type Events struct {
	client   *apiserver.Client
	instance string
	cluster  func() string // its id, "" if it has no id
	metrics  *metrics.Metrics
	queue    chan *eventsv1.Event

	mu      sync.Mutex
	waiting map[string]int // how many of queue are about each namespace; guarded by mu
}

// NewEvents makes an Events for the API server of config, that of c. instance names this process among those of the
// controller.
func NewEvents(c *Cluster, config *rest.Config, instance string, m *metrics.Metrics) (*Events, error) {
	cfg := rest.CopyConfig(config)
	cfg.RateLimiter, cfg.QPS, cfg.Burst = nil, eventQPS, eventBurst
	client, err := apiserver.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return newEvents(client, instance, c.clusterID, m, eventBacklog), nil
}

func newEvents(client *apiserver.Client, instance string, cluster func() string, m *metrics.Metrics,
	backlog int) *Events {
	return &Events{
		client: client, instance: instance, cluster: cluster, metrics: m,
		queue: make(chan *eventsv1.Event, backlog), waiting: make(map[string]int),
	}
}

// Run writes Events until ctx ends; it then returns nil, and Events that still wait are lost. It may be called once.
func (e *Events) Run(ctx context.Context) error {
	defer e.client.Close()
	var g errgroup.Group
	for range eventWorkers {
		g.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case event := <-e.queue:
					e.note(event)
					e.write(ctx, event)
				}
			}
		})
	}
	return g.Wait()
}

// write drops an Event that cannot be written: the condition holds the same text, and a terminating namespace takes no
// new objects. An Event that exists was written before a crash, or by another instance.
func (e *Events) write(ctx context.Context, event *eventsv1.Event) {
	err := e.client.Create(ctx, event)
	if err != nil && ctx.Err() == nil && !apierrors.IsAlreadyExists(err) {
		e.metrics.DroppedEvent()
	}
}

// Transitions records each condition of obj with a new status in next. obj is a ServiceExport or a ServiceImport as it
// was read.
func (e *Events) Transitions(obj apiserver.Object, before, next []metav1.Condition) {
	for i := range next {
		event := newEvent(obj, meta.FindStatusCondition(before, next[i].Type), &next[i])
		if event == nil {
			continue
		}
		e.add(event)
	}
}

// add queues an Event.
func (e *Events) add(event *eventsv1.Event) {
	event.ReportingInstance = shorten.Text(e.instance, 128)
	if id := e.cluster(); apibroker.IsClusterID(id) {
		event.Labels = map[string]string{apibroker.LabelClusterID: id}
	}
	about := namespaceOf(event)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting[about] >= cap(e.queue)-len(e.queue) {
		e.metrics.DroppedEvent()
		return
	}
	e.waiting[about]++
	e.queue <- event // has room: others only take from it
}

// note records that an Event no longer waits.
func (e *Events) note(event *eventsv1.Event) {
	about := namespaceOf(event)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting[about]--; e.waiting[about] == 0 {
		delete(e.waiting, about)
	}
}

// namespaceOf returns the namespace that an Event is about.
func namespaceOf(event *eventsv1.Event) string {
	return cmp.Or(event.Regarding.Namespace, event.Regarding.Name)
}

// Namespace records an action on a namespace, each text once while its Event is there. kind is that of the Event.
// Events about objects without a namespace are in namespace default.
func (e *Events) Namespace(ns *corev1.Namespace, kind, why, text string) {
	e.add(&eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault,
			Name: ns.Name + "." + apibroker.Hash(16, string(ns.UID), why, text)},
		EventTime: metav1.NowMicro(),
		Type:      kind, Reason: why, Action: "Import", Note: cutMessage(text, MaxNote),
		ReportingController: apibroker.ManagedBy,
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, UID: ns.UID},
	})
}

// newEvent returns the Event for the transition of a condition of obj; before may be nil. A message that
// names a bad value is one, too, if it is new. It is nil without a transition, for the mirrors of "legacy_conditions",
// and for a service that begins without a conflict.
//
// The name is a hash of the transition, so that a transition is recorded once even if two instances report it.
func newEvent(obj apiserver.Object, before, after *metav1.Condition) *eventsv1.Event {
	switch {
	case before != nil && before.Status == after.Status && (!namesValue(after) || before.Message == after.Message):
		return nil
	case before == nil && after.Type == string(mcsv1beta1.ServiceExportConditionConflict) &&
		after.Status == metav1.ConditionFalse:
		return nil
	case after.Type == legacyInitialized || after.Type == legacyExported:
		return nil
	}
	kind, action := mcsv1beta1.ServiceExportKindName, "Export"
	if _, ok := obj.(*mcsv1beta1.ServiceImport); ok {
		kind, action = mcsv1beta1.ServiceImportKindName, "Import"
	}
	at := after.LastTransitionTime.UTC()
	id := []string{string(obj.GetUID()), after.Type, string(after.Status), after.Reason, at.Format(time.RFC3339)}
	if namesValue(after) {
		id = append(id, after.Message)
	}
	happened := at
	if before != nil && before.Status == after.Status {
		happened = time.Now()                     // the status is older than the message,
		id = append(id, obj.GetResourceVersion()) // and the same value may come back, also after another one
	}
	hash := apibroker.Hash(16, id...)
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: obj.GetNamespace(), Name: obj.GetName()[:min(len(obj.GetName()), maxEventName-17)] + "." + hash,
		},
		EventTime: metav1.NewMicroTime(happened),
		Type:      eventType(after), Reason: cutReasons(after.Reason), Action: action,
		Note:                cutMessage(after.Message, MaxNote),
		ReportingController: apibroker.ManagedBy,
		Regarding: corev1.ObjectReference{
			APIVersion: mcsv1beta1.GroupVersion.String(), Kind: kind,
			Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		},
	}
}

// namesValue reports whether a condition names a bad value of an annotation, which someone has to correct.
func namesValue(c *metav1.Condition) bool {
	return c.Reason == wellknown.ReasonInvalidClusterSelector || c.Reason == wellknown.ReasonInvalidToClusters ||
		c.Reason == wellknown.ReasonAnnotationIgnored
}

// eventType is Warning where a person has to act. Reason Pending resolves itself.
func eventType(c *metav1.Condition) string {
	bad := metav1.ConditionFalse
	if c.Type == string(mcsv1beta1.ServiceExportConditionConflict) {
		bad = metav1.ConditionTrue
	}
	if namesValue(c) || c.Status == bad && c.Reason != string(mcsv1beta1.ServiceExportReasonPending) {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// cutReasons returns as many of the comma-separated reasons as fit into an Event.
func cutReasons(reasons string) string {
	if len(reasons) <= maxEventReason {
		return reasons
	}
	cut := reasons[:maxEventReason+1]
	if i := strings.LastIndexByte(cut, ','); i > 0 {
		return cut[:i]
	}
	return cut[:maxEventReason]
}

// MaxNote is the limit of the API server for the note of an Event, in octets.
const MaxNote = 1024

// cutMessage returns at most limit octets of the message of a condition, and always the codes at its end.
func cutMessage(message string, limit int) string {
	text, codes := reason.Split(message)
	return shorten.Text(text, limit-len(codes)) + codes
}
