package controller

import (
	"context"
	"fmt"
	"strings"
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
	"github.com/clusterset-dns/clusterset/apiserver"
)

// The rate of Events, apart from that of all other requests (section 10), and how many may wait for it.
const (
	eventQPS     = 20
	eventBurst   = 40
	eventBacklog = 1000
	eventWorkers = 2
)

// The bounds that the API server puts to the fields of an Event, in octets.
const (
	maxEventReason = 128
	maxEventNote   = 1024
	maxEventName   = 253
)

// A recorder writes one Event for each transition of a condition (section 6). Whoever tells it of one never waits: of too
// many the last ones are dropped and counted.
type recorder struct {
	client   *apiserver.Client
	instance string
	metrics  *Metrics
	queue    chan *eventsv1.Event
}

// newRecorder makes a client of its own from local. instance names this process among those of the controller.
func newRecorder(local *rest.Config, instance string, m *Metrics) (*recorder, error) {
	cfg := rest.CopyConfig(local)
	cfg.RateLimiter, cfg.QPS, cfg.Burst = nil, eventQPS, eventBurst
	client, err := apiserver.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return &recorder{client: client, instance: instance, metrics: m, queue: make(chan *eventsv1.Event, eventBacklog)}, nil
}

// Run writes Events until ctx ends; it then returns nil, and what still waits is lost. It is called once.
func (r *recorder) Run(ctx context.Context) error {
	defer r.client.Close()
	var g errgroup.Group
	for range eventWorkers {
		g.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case e := <-r.queue:
					r.write(ctx, e)
				}
			}
		})
	}
	return g.Wait()
}

// write drops an Event that cannot be written: the condition says it all, and some namespaces take no new objects. One that
// exists was written before a crash, or by an instance that was told to stop.
func (r *recorder) write(ctx context.Context, e *eventsv1.Event) {
	err := r.client.Create(ctx, e)
	if err != nil && ctx.Err() == nil && !apierrors.IsAlreadyExists(err) {
		r.metrics.droppedEvent()
	}
}

// transitions tells of those conditions that are another in next than they were. obj is what they are of, as it was read.
func (r *recorder) transitions(obj apiserver.Object, was, next []metav1.Condition) {
	for i := range next {
		e := newEvent(obj, meta.FindStatusCondition(was, next[i].Type), &next[i])
		if e == nil {
			continue
		}
		e.ReportingInstance = cutText(r.instance, 128)
		select {
		case r.queue <- e:
		default:
			r.metrics.droppedEvent()
		}
	}
}

// newEvent returns the Event of a condition of obj that was, if it was there at all, and is now. Without a transition, and
// for the mirrors of "legacy_conditions", it is nil. That the exports of a service begin without a conflict is no news.
//
// Its name follows from the transition, so that nobody tells of it twice.
func newEvent(obj apiserver.Object, was, is *metav1.Condition) *eventsv1.Event {
	switch {
	case was != nil && was.Status == is.Status:
		return nil
	case was == nil && is.Type == string(mcsv1beta1.ServiceExportConditionConflict) && is.Status == metav1.ConditionFalse:
		return nil
	case is.Type == legacyInitialized || is.Type == legacyExported:
		return nil
	}
	kind, action := mcsv1beta1.ServiceExportKindName, "Export"
	if _, ok := obj.(*mcsv1beta1.ServiceImport); ok {
		kind, action = mcsv1beta1.ServiceImportKindName, "Import"
	}
	at := is.LastTransitionTime.UTC()
	hash := apibroker.Hash(16, string(obj.GetUID()), is.Type, string(is.Status), is.Reason, at.Format(time.RFC3339))
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: obj.GetNamespace(), Name: obj.GetName()[:min(len(obj.GetName()), maxEventName-17)] + "." + hash,
		},
		EventTime: metav1.NewMicroTime(at),
		Type:      eventType(is), Reason: cutReasons(is.Reason), Action: action, Note: cutText(is.Message, maxEventNote),
		ReportingController: apibroker.ManagedBy,
		Regarding: corev1.ObjectReference{
			APIVersion: mcsv1beta1.GroupVersion.String(), Kind: kind,
			Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		},
	}
}

// eventType is Warning where somebody has to do something. What is pending comes by itself.
func eventType(c *metav1.Condition) string {
	bad := metav1.ConditionFalse
	if c.Type == string(mcsv1beta1.ServiceExportConditionConflict) {
		bad = metav1.ConditionTrue
	}
	if c.Status == bad && c.Reason != string(mcsv1beta1.ServiceExportReasonPending) {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// cutReasons returns as many of the reasons, which commas separate, as an Event takes.
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
