package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// maxRounds is how often a writer compares anew. Three are usual for a new service with a derived Service: the import, what
// needs its UID, what needs the addresses of that. The others are for objects that change meanwhile.
const maxRounds = 8

// errNamespace says that the namespace takes no new objects: there is nothing to do until it is heard of again.
var errNamespace = errors.New("the namespace is absent or terminating")

// A writer makes the objects of one imported service what they should be. It is for one turn.
type writer struct {
	s   *session
	svc types.NamespacedName
	// now is what exists, as it was last read or written. Nobody changes the objects.
	now merge.Objects
	// asked has what was asked for in this turn, by object.
	asked   map[string]string
	failure error // of the derived Service; the rest goes on
	told    bool  // refusals are
}

func (s *session) newWriter(svc types.NamespacedName) *writer {
	return &writer{s: s, svc: svc, asked: make(map[string]string), now: merge.Objects{
		Import: s.local.Import(svc), Service: s.local.Derived(svc), Slices: s.local.ImportedSlices(svc),
	}}
}

// write compares and writes until nothing is left to write. The status goes last, when it is true.
func (w *writer) write(ctx context.Context, v view) error {
	if v.result.Import == nil {
		defer w.s.memory.forget(w.svc)
	} else if w.now.Import != nil && w.now.Import.DeletionTimestamp != nil {
		return nil // it is made anew when it is gone
	}
	for range maxRounds {
		c := w.compare(v)
		status := c.Status
		c.Status = nil
		switch {
		case !c.Empty():
			if err := w.round(ctx, c); errors.Is(err, errNamespace) {
				return nil
			} else if err != nil {
				return err
			}
		case status != nil && !w.staleStatus(status):
			if err := w.writeStatus(ctx, status); err != nil {
				return err
			}
		default:
			return w.failure
		}
	}
	return fmt.Errorf("import %s: others change it as fast as it is written", w.svc)
}

// compare returns what there is to write now, and tells once what is in the way.
func (w *writer) compare(v view) merge.Changes {
	desired, existing := w.desired(v, nil), w.now
	if existing.Import == nil && desired.Import != nil {
		existing = merge.Objects{} // what is left of an earlier import gets a new owner
	}
	c := merge.Diff(desired, existing)
	if len(c.Foreign) > 0 {
		c = merge.Diff(w.desired(v, c.Foreign), existing)
	}
	if w.s.memory.news(w.svc, c.Foreign) {
		w.s.log.Warningf("import %s: not ours, and left alone: %v", w.svc, c.Foreign)
	}
	return w.fresh(c)
}

// desired returns what should be, as far as it is known now. While there is no import there is nothing else; nor is there
// beside an import that is not ours.
func (w *writer) desired(v view, taken []string) merge.Objects {
	c := v.cluster
	c.ClusterIPs = w.clusterIPs()
	if isOurs(w.now.Import) {
		c.Owner = w.now.Import.UID
	}
	o, refused := merge.Desired(v.result, c)
	if o.Import == nil {
		return o
	}
	if !w.told && c.Owner != "" {
		w.told = true
		for _, r := range refused {
			w.s.refused(r)
		}
	}
	o.Import.Status.Conditions = []metav1.Condition{v.ready(o, taken, w.failure)}
	switch {
	case c.Owner == "":
		o.Service, o.Slices = nil, nil
	case o.Service != nil && len(o.Import.Spec.IPs) == 0 && w.failure == nil && len(taken) == 0:
		// Endpoints of an import that has no address yet would be its addresses in DNS for a moment.
		o.Slices = w.now.Slices
	}
	return o
}

// clusterIPs are the addresses of the import. Those that it has stay while its Service is made anew: it may well get the
// same.
func (w *writer) clusterIPs() []string {
	switch e := w.now.Service; {
	case w.failure != nil || e == nil && !isOurs(w.now.Import):
		return nil
	case e == nil:
		return w.now.Import.Spec.IPs
	case !merge.IsDerived(e) || e.Spec.ClusterIP == corev1.ClusterIPNone:
		return nil
	default:
		return e.Spec.ClusterIPs
	}
}

// round writes c, which has no status, in the order of [merge.Changes]. A derived Service that cannot be written does not
// stop the rest, nor one slice another.
func (w *writer) round(ctx context.Context, c merge.Changes) error {
	for _, o := range deletions(c.Delete) {
		if err := w.delete(ctx, o); err != nil {
			return err
		}
	}
	if o := c.Create.Import; o != nil {
		return w.create(ctx, o) // all else has to be compared anew
	}
	if o := c.Update.Import; o != nil {
		if err := w.patch(ctx, o); err != nil {
			return err
		}
	}
	if o := c.Create.Service; o != nil {
		w.failure = w.createService(ctx, o)
	}
	if o := c.Update.Service; o != nil {
		w.failure = w.patch(ctx, o)
	}
	var errs []error
	for _, o := range c.Create.Slices {
		errs = append(errs, w.create(ctx, o))
	}
	for _, o := range c.Update.Slices {
		errs = append(errs, w.patch(ctx, o))
	}
	return errors.Join(errs...)
}

// deletions returns the objects in the order in which they are deleted.
func deletions(o merge.Objects) []apiserver.Object {
	var all []apiserver.Object
	for _, e := range o.Slices {
		all = append(all, e)
	}
	if o.Service != nil {
		all = append(all, o.Service)
	}
	if o.Import != nil {
		all = append(all, o.Import)
	}
	return all
}

// createService asks for the addresses that the import has: those of a Service that was deleted are constant while the
// import lives, unless someone else has got them.
func (w *writer) createService(ctx context.Context, o *corev1.Service) error {
	ips := w.now.Import.Spec.IPs
	if len(ips) > 0 && slices.Equal(w.now.Import.Spec.IPFamilies, o.Spec.IPFamilies) {
		same := o.DeepCopy()
		same.Spec.ClusterIP, same.Spec.ClusterIPs = ips[0], ips
		if err := w.create(ctx, same); !apierrors.IsInvalid(err) {
			return err
		}
	}
	return w.create(ctx, o)
}

// create makes an object. It never takes over what has that name already.
func (w *writer) create(ctx context.Context, o apiserver.Object) error {
	created := o.DeepCopyObject().(apiserver.Object)
	err := w.s.local.client.Create(ctx, created, merge.FieldManager)
	switch {
	case err == nil:
		w.put(created)
		return nil
	case apierrors.IsAlreadyExists(err):
		return w.refresh(ctx, o)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause),
		// Otherwise it is the kind that is not there: its CRD is being replaced.
		apierrors.IsNotFound(err) && w.s.namespacePolicy(w.svc.Namespace) == export.Terminating:
		return errNamespace
	}
	return w.refusedBy(o, err)
}

// patch changes an object, unless it is no longer the one that was compared.
func (w *writer) patch(ctx context.Context, o apiserver.Object) error {
	was := w.existing(o)
	patched := o.DeepCopyObject().(apiserver.Object)
	err := w.s.local.client.Patch(ctx, patched, merge.Patch(o, was), merge.FieldManager)
	switch {
	case err == nil:
		w.put(patched)
		w.observe(was, patched)
		return nil
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return w.refresh(ctx, o)
	}
	return w.refusedBy(o, err)
}

// refusedBy tells once that the API server takes a slice for invalid: it costs itself alone. Any other error is returned.
func (w *writer) refusedBy(o apiserver.Object, err error) error {
	if _, slice := o.(*discoveryv1.EndpointSlice); !slice || !apierrors.IsInvalid(err) {
		return err
	}
	w.s.memory.remember(w.svc, object(o), answer{fingerprint(o), fingerprint(w.existing(o))})
	w.s.log.Errorf("import %s: %v", w.svc, err)
	return nil
}

func (w *writer) delete(ctx context.Context, o apiserver.Object) error {
	if o.GetDeletionTimestamp() != nil {
		w.drop(o) // whoever holds it up knows why
		return nil
	}
	err := w.s.local.client.Delete(ctx, o)
	if apierrors.IsConflict(err) {
		return w.refresh(ctx, o)
	}
	if err == nil {
		w.drop(o)
		w.s.local.deleted(o)
	}
	return err
}

// refresh reads what is there instead of what was expected.
func (w *writer) refresh(ctx context.Context, o apiserver.Object) error {
	delete(w.asked, object(o))
	is := o.DeepCopyObject().(apiserver.Object)
	err := w.s.local.client.Get(ctx, is, o.GetNamespace(), o.GetName())
	switch {
	case apierrors.IsNotFound(err):
		w.drop(o)
		return nil
	case err == nil:
		w.put(is)
	}
	return err
}

// writeStatus tells of the transition, if it is one.
func (w *writer) writeStatus(ctx context.Context, o *mcsv1beta1.ServiceImport) error {
	was := w.now.Import
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = metav1.Now().Rfc3339Copy()
		}
	}
	applied := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID}, Status: o.Status,
	}
	switch err := w.s.local.client.Apply(ctx, applied, merge.FieldManager, "status"); {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return w.refresh(ctx, o)
	case err != nil:
		return err
	}
	w.put(applied)
	w.s.events.transitions(applied, was.Status.Conditions, o.Status.Conditions)
	return nil
}

// put notes what exists.
func (w *writer) put(o apiserver.Object) {
	w.s.local.written(o)
	switch o := o.(type) {
	case *mcsv1beta1.ServiceImport:
		w.now.Import = o
	case *corev1.Service:
		w.now.Service = o
	case *discoveryv1.EndpointSlice:
		w.now.Slices = append(without(w.now.Slices, o.Name), o)
	}
}

// drop notes that something does not exist.
func (w *writer) drop(o apiserver.Object) {
	switch o := o.(type) {
	case *mcsv1beta1.ServiceImport:
		w.now.Import = nil
	case *corev1.Service:
		w.now.Service = nil
	case *discoveryv1.EndpointSlice:
		w.now.Slices = without(w.now.Slices, o.Name)
	}
}

func without(given []*discoveryv1.EndpointSlice, name string) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(slices.Clone(given), func(e *discoveryv1.EndpointSlice) bool { return e.Name == name })
}

// existing returns what has the kind and name of o, nil if nothing has.
func (w *writer) existing(o apiserver.Object) apiserver.Object {
	switch o := o.(type) {
	case *mcsv1beta1.ServiceImport:
		if w.now.Import != nil {
			return w.now.Import
		}
	case *corev1.Service:
		if w.now.Service != nil {
			return w.now.Service
		}
	case *discoveryv1.EndpointSlice:
		for _, e := range w.now.Slices {
			if e.Name == o.Name {
				return e
			}
		}
	}
	return nil
}

// observe measures how long a change of endpoints took.
func (w *writer) observe(was, now apiserver.Object) {
	before, ok := was.(*discoveryv1.EndpointSlice)
	after, also := now.(*discoveryv1.EndpointSlice)
	if !ok || !also {
		return
	}
	if d, known := lag(before, after, w.s.lives.since, time.Now()); known {
		w.s.metrics.observeLag(d)
	}
}

// fresh leaves out what the API server has answered with something else before. It is told once, and written again when what
// is asked for or what is there is another. All that is left, but for the status, has to be written.
func (w *writer) fresh(c merge.Changes) merge.Changes {
	stale := func(o *discoveryv1.EndpointSlice) bool { return w.stale(o) }
	c.Create.Slices = slices.DeleteFunc(c.Create.Slices, stale)
	c.Update.Slices = slices.DeleteFunc(c.Update.Slices, stale)
	if o := c.Update.Import; o != nil && w.stale(o) {
		c.Update.Import = nil
	}
	if w.failure != nil {
		c.Create.Service, c.Update.Service, c.Delete.Service = nil, nil, nil
	}
	if o := c.Update.Service; o != nil && w.stale(o) {
		c.Update.Service = nil
	}
	if o := c.Create.Service; o != nil {
		w.asked[object(o)] = fingerprint(o)
	}
	return c
}

func (w *writer) stale(o apiserver.Object) bool {
	asked := fingerprint(o)
	return w.answered(object(o), asked, func() string { return fingerprint(w.existing(o)) })
}

func (w *writer) staleStatus(o *mcsv1beta1.ServiceImport) bool {
	found := func() string { return digest(plain(w.now.Import.Status)) }
	return w.answered("status of "+object(o), digest(plain(o.Status)), found)
}

// plain is the status without its times, which are those of writing it.
func plain(status mcsv1beta1.ServiceImportStatus) mcsv1beta1.ServiceImportStatus {
	status = *status.DeepCopy()
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return status
}

// answered reports whether asking for this is in vain.
func (w *writer) answered(name, asked string, found func() string) bool {
	a, remembered := w.s.memory.answer(w.svc, name)
	switch {
	case remembered && a.asked == asked && a.found == found():
		return true
	case w.asked[name] == asked:
		w.s.memory.remember(w.svc, name, answer{asked, found()})
		w.s.log.Warningf("import %s: the API server keeps the %s other than it is written; it is left as it is", w.svc, name)
		return true
	}
	w.asked[name] = asked
	return false
}

// object names an object among those of its service.
func object(o apiserver.Object) string {
	switch o.(type) {
	case *mcsv1beta1.ServiceImport:
		return "ServiceImport"
	case *corev1.Service:
		return "derived Service"
	}
	return "EndpointSlice " + o.GetName()
}

// fingerprint is a hash of what is ours to say in an object, "" of none.
func fingerprint(o apiserver.Object) string {
	if o == nil {
		return ""
	}
	ours := []any{o.GetLabels(), o.GetAnnotations(), o.GetOwnerReferences()}
	switch o := o.(type) {
	case *mcsv1beta1.ServiceImport:
		ours = append(ours, o.Spec)
	case *corev1.Service:
		ours = append(ours, o.Spec)
	case *discoveryv1.EndpointSlice:
		ours = append(ours, o.Endpoints, o.Ports)
	}
	return digest(ours)
}

func digest(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // a time of a year that RFC 3339 cannot say
	}
	return apibroker.Hash(32, string(text))
}
