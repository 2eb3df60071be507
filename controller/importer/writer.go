package importer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/metrics"
)

// maxRounds is how often a writer compares again. Three rounds are usual for a new service with a derived Service: the import,
// then the objects that need its UID, then those that need the addresses of the Service. The others are for objects that
// change meanwhile.
const maxRounds = 8

// errNamespace means that the namespace takes no new objects: nothing can be done until its next event.
var errNamespace = errors.New("the namespace is absent or terminating")

// A writerConfig is what all writers share.
type writerConfig struct {
	member     *member.Cluster
	events     *member.Events
	policy     member.Policy
	rejections *Rejections
	responses  *responses
	foreign    *logging.OnChangeOf[types.NamespacedName, string] // names that are taken by objects that are not ours
	metrics    *metrics.Metrics
	log        logging.Logger
	started    time.Time // changes of endpoints from before are backlog
	lacks      []string  // the fields of ServiceImport that the API server does not have
	choices    *choices
	// overwritten has the statuses of derived Services, by service.
	overwritten *member.Overwritten
	retry       func(types.NamespacedName, time.Duration)
}

// A writer makes the objects of one imported service what a plan asks for. It serves one reconcile.
//
//	write: +--> compare (merge.Desired, merge.Diff) --> none left: done
//	       |        |                    \--> the status alone: writeStatus
//	       |        v
//	       +---- apply: deletions, import, derived Service, slices
//
// It follows what exists by the responses to its own writes. A change that the API server does not keep as it was asked for is
// not repeated (see [responses]).
type writer struct {
	writerConfig
	svc types.NamespacedName
	now merge.Objects  // what exists, as last read or written; the objects are shared
	at  map[string]int // the index of each slice of now, by its name
	// asked has the fingerprint of what was asked for in this reconcile, by name of the object.
	asked    map[string]string
	failure  error // of the derived Service; the rest goes on
	reported bool  // the rejections are
	// selecting reports that preferences decide which clusters are in use, chosen are the desired slices then, offered their ports by name of
	// the slice, hidden or not, wait is the time until others may be in use, 0 for none.
	selecting bool
	chosen    []*discoveryv1.EndpointSlice
	offered   map[string][]discoveryv1.EndpointPort
	wait      time.Duration
}

func newWriter(cfg writerConfig, svc types.NamespacedName) *writer {
	w := &writer{writerConfig: cfg, svc: svc, asked: make(map[string]string), now: merge.Objects{
		Import: cfg.member.Import(svc), Service: cfg.member.Derived(svc),
	}}
	w.setSlices(cfg.member.ImportedSlices(svc))
	return w
}

// setSlices records that these slices exist and no others. The list belongs to the writer from then on.
func (w *writer) setSlices(all []*discoveryv1.EndpointSlice) {
	w.now.Slices, w.at = all, make(map[string]int, len(all))
	for i, e := range all {
		w.at[e.Name] = i
	}
}

// write compares and writes until nothing is left to write. The status is written last, when it is true.
func (w *writer) write(ctx context.Context, p plan) error {
	if p.result.Import == nil {
		defer w.responses.remove(w.svc)
		defer w.choices.set(w.svc, choice{})
		defer w.overwritten.Forget(w.svc.String())
	} else if w.now.Import != nil && w.now.Import.DeletionTimestamp != nil {
		return nil // it is created again when it is gone
	}
	for range maxRounds {
		c := w.compare(p)
		status, serviceStatus := c.Status, c.ServiceStatus
		c.Status, c.ServiceStatus = nil, nil
		switch {
		case !c.Empty():
			if err := w.apply(ctx, c); errors.Is(err, errNamespace) {
				return nil
			} else if err != nil {
				return err
			}
		case serviceStatus != nil && !w.mustWait(serviceStatus) && !w.keptServiceStatus(serviceStatus):
			w.failure = w.writeServiceStatus(ctx, serviceStatus)
		case status != nil && !w.keptStatus(status):
			if err := w.writeStatus(ctx, status); err != nil {
				return err
			}
		default:
			w.chooseAgain()
			return w.failure
		}
	}
	return fmt.Errorf("import %s: others change it as fast as it is written", w.svc)
}

// choose hides what is not in use of the desired slices.
func (w *writer) choose(prefers preferences, c consumer, desired []*discoveryv1.EndpointSlice) {
	w.offered = make(map[string][]discoveryv1.EndpointPort, len(desired))
	for _, e := range desired {
		w.offered[e.Name] = slices.Clone(e.Ports)
	}
	w.selecting, w.chosen, w.wait = true, desired, w.choices.choose(w.svc, prefers, c, desired, w.now)
}

// chooseAgain queues the service for the time when other clusters may be in use.
func (w *writer) chooseAgain() {
	if w.wait > 0 {
		w.retry(w.svc, w.wait)
	}
}

// replaceSlices makes desired the slices of some clusters in the import, and leaves everything else as it is, but for which clusters are in use:
// that follows from the preferences which the import has, and is decided once for all clusters.
func (w *writer) replaceSlices(ctx context.Context, clusters []string, desired []*discoveryv1.EndpointSlice) error {
	stays := func(e *discoveryv1.EndpointSlice) bool {
		return !slices.Contains(clusters, e.Labels[mcsv1beta1.LabelSourceCluster])
	}
	prefers := writtenPreferences(w.now.Import)
	if c := prefers.consumer(w.now.Import, w.now.Service); c != nothing {
		for _, e := range w.now.Slices {
			if merge.IsImported(e) && stays(e) {
				other := e.DeepCopy()
				delete(other.Labels, corev1.IsHeadlessService)
				desired = append(desired, other)
			}
		}
		w.choose(prefers, c, desired)
		defer w.chooseAgain()
	} else {
		w.setSlices(slices.DeleteFunc(w.now.Slices, stays))
	}
	err := w.apply(ctx, w.heldBack(w.withoutKept(merge.Diff(merge.Objects{Slices: desired}, merge.Objects{Slices: w.now.Slices}))))
	if errors.Is(err, errNamespace) {
		return nil
	}
	return err
}

// compare returns the changes to write now, and logs names that are taken.
func (w *writer) compare(p plan) merge.Changes {
	desired, existing := w.desired(p, nil), w.now
	if existing.Import == nil && desired.Import != nil {
		existing = merge.Objects{} // what is left of an earlier import gets a new owner
	}
	c := merge.Diff(desired, existing)
	if len(c.Foreign) > 0 {
		c = merge.Diff(w.desired(p, c.Foreign), existing)
	}
	if w.foreign.Changed(w.svc, strings.Join(c.Foreign, ", ")) && len(c.Foreign) > 0 {
		w.log.Warningf("import %s: not ours, and left alone: %v", w.svc, c.Foreign)
	}
	return w.heldBack(w.withoutKept(c))
}

// heldBack returns c without what hides a slice while proxies do not see all that they should, and c will not show that, either: a slice may be
// rejected as invalid, its name be taken, or a webhook change it.
func (w *writer) heldBack(c merge.Changes) merge.Changes {
	coming := func(o *discoveryv1.EndpointSlice) bool {
		same := func(e *discoveryv1.EndpointSlice) bool { return e.Name == o.Name }
		return slices.ContainsFunc(c.Create.Slices, same) || slices.ContainsFunc(c.Update.Slices, same)
	}
	if !w.selecting || !slices.ContainsFunc(w.chosen, func(o *discoveryv1.EndpointSlice) bool { return w.isMissing(o) && !coming(o) }) {
		return c
	}
	var left []*discoveryv1.EndpointSlice
	for _, o := range c.Update.Slices {
		existing := w.now.Slices[w.at[o.Name]]
		if hides(o, existing) && (w.rejects(o) || !differs(w.visible(o), existing)) {
			delete(w.asked, nameOf(o)) // a later comparison asks for it
			continue
		}
		left = append(left, o)
	}
	c.Update.Slices = left
	return c
}

// visible returns what proxies see of an update until others are shown: see [visible].
func (w *writer) visible(o *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	return visible(o, w.now.Slices[w.at[o.Name]], w.offered[o.Name])
}

// visibleName names, among the responses, a slice as it is until others are shown.
func visibleName(o *discoveryv1.EndpointSlice) string { return nameOf(o) + " with all that is shown" }

// patchVisible writes what proxies see of an update until others are shown, unless the API server rejects or changes that. The next comparison
// asks for the update again.
func (w *writer) patchVisible(ctx context.Context, o *discoveryv1.EndpointSlice) error {
	delete(w.asked, nameOf(o))
	v, existing := w.visible(o), w.now.Slices[w.at[o.Name]]
	found := func() string { return fingerprint(existing) }
	if !differs(v, existing) || w.keptDifferent(visibleName(o), fingerprint(v), found) {
		return nil
	}
	w.asked[nameOf(o)] = "" // until a conflict: see refresh
	err := w.patch(ctx, v)
	if _, answered := w.asked[nameOf(o)]; !answered {
		delete(w.asked, visibleName(o))
	}
	delete(w.asked, nameOf(o))
	if r, kept := w.responses.of(w.svc, nameOf(o)); kept && r.asked == fingerprint(v) { // invalid: other updates need not find out
		w.responses.set(w.svc, visibleName(o), r)
	}
	return err
}

// rejects reports whether the API server is known to reject or change a slice as it is until others are shown.
func (w *writer) rejects(o *discoveryv1.EndpointSlice) bool {
	r, remembered := w.responses.of(w.svc, visibleName(o))
	return remembered && r.asked == fingerprint(w.visible(o)) && r.found == fingerprint(w.existing(o))
}

// differs reports whether an update has anything to write.
func differs(update, existing *discoveryv1.EndpointSlice) bool {
	c := merge.Diff(merge.Objects{Slices: []*discoveryv1.EndpointSlice{update}}, merge.Objects{Slices: []*discoveryv1.EndpointSlice{existing}})
	return !c.Empty()
}

// desired returns what should exist, as far as it is known now. Without an import, and beside an import that is not ours,
// there are no other objects.
func (w *writer) desired(p plan, taken []string) merge.Objects {
	c := p.cluster
	if c.ClusterIPs = w.clusterIPs(); w.now.Service == nil && p.result.Routed() {
		c.ClusterIPs = nil // those of the import are not the Service's
	}
	if member.IsOurs(w.now.Import) {
		c.Owner = w.now.Import.UID
	}
	c.Unrouted = w.unrouted()
	o, rejected := merge.Desired(p.result, c)
	if o.Import == nil {
		return o
	}
	if !w.reported && c.Owner != "" {
		w.reported = true
		for _, r := range rejected {
			w.rejections.Report(r)
		}
	}
	if c := p.prefers.consumer(o.Import, o.Service); c != nothing {
		w.choose(p.prefers, c, o.Slices)
	} else {
		w.choices.set(w.svc, choice{})
	}
	o.Import.Status.Conditions = []metav1.Condition{readiness(p, o, taken, w.failure)}
	switch {
	case c.Owner == "":
		o.Service, o.Slices = nil, nil
	case o.Service != nil && len(o.Import.Spec.IPs) == 0 && w.failure == nil && len(taken) == 0:
		// For a moment DNS would return the endpoints of an import that has no address yet.
		o.Slices = w.now.Slices
	}
	o.Import = w.expressible(o.Import)
	return o
}

// expressible returns an import without the fields that the API server does not have (docs/spec/controller.md 5.3).
func (w *writer) expressible(imp *mcsv1beta1.ServiceImport) *mcsv1beta1.ServiceImport {
	if len(w.lacks) == 0 {
		return imp
	}
	less, err := crd.Without(imp, w.lacks)
	if err != nil {
		panic("importer: an import that is not an API object: " + err.Error())
	}
	return less
}

// clusterIPs returns the addresses of the import. They stay while the derived Service has them, also if it cannot be changed, and
// while it is created again: it may well get the same.
func (w *writer) clusterIPs() []string {
	switch e := w.now.Service; {
	case e == nil && (w.failure != nil || !member.IsOurs(w.now.Import)):
		return nil
	case e == nil:
		return w.now.Import.Spec.IPs
	case !merge.IsDerived(e) || e.Spec.ClusterIP == corev1.ClusterIPNone:
		return nil
	default:
		return e.Spec.ClusterIPs
	}
}

// unrouted reports whether the import has the cluster IPs of the derived Service, and that carries no clusterset IPs: after a change to "vip cidr" both
// are used until it does, which a quota or a policy may deny (docs/spec/controller.md 5.7).
func (w *writer) unrouted() bool {
	imp, s := w.now.Import, w.now.Service
	return member.IsOurs(imp) && s != nil && merge.IsDerived(s) && len(imp.Spec.IPs) > 0 && imp.Spec.IPs[0] == s.Spec.ClusterIP &&
		len(s.Status.LoadBalancer.Ingress) == 0
}

// apply writes c, which has no status, in the order of [merge.Changes]. No object that cannot be written stops another one, but
// for a new import: everything else depends on its UID.
//
// Slices of clusters that come into use are shown before anything is deleted, and those of clusters that are no longer in use are hidden
// last, when all others are shown: proxies have an endpoint at any time (docs/spec/selection.md 4).
func (w *writer) apply(ctx context.Context, c merge.Changes) error {
	var other, hidden []*discoveryv1.EndpointSlice
	var errs []error
	for _, o := range c.Update.Slices {
		switch existing := w.now.Slices[w.at[o.Name]]; {
		case !w.selecting:
			other = append(other, o)
		case shows(o, existing) && hides(o, existing) && w.rejects(o):
			other = append(other, o)
		case shows(o, existing) && hides(o, existing) && differs(w.visible(o), existing):
			errs = append(errs, w.patchVisible(ctx, o))
		case hides(o, existing):
			hidden = append(hidden, o)
		case shows(o, existing):
			errs = append(errs, w.patch(ctx, o))
		default:
			other = append(other, o)
		}
	}
	first, last := deletionsOf(c)
	errs = append(errs, w.deleteAll(ctx, first))
	if o := c.Create.Import; o != nil {
		return errors.Join(append(errs, w.create(ctx, o))...)
	}
	if o := c.Update.Import; o != nil {
		errs = append(errs, w.patch(ctx, o))
	}
	if o := c.Create.Service; o != nil {
		w.failure = w.createService(ctx, o)
	}
	if o := c.Update.Service; o != nil {
		w.failure = w.patchService(ctx, o)
	}
	errs = append(errs, w.createSlices(ctx, c.Create.Slices))
	deleted, trimmed := merge.Retired(last.Slices, slices.DeleteFunc(slices.Clone(c.Create.Slices), w.exists))
	last.Slices = deleted
	errs = append(errs, w.patchAll(ctx, append(other, trimmed...)), w.deleteAll(ctx, last))
	if !slices.ContainsFunc(w.chosen, w.isMissing) {
		return errors.Join(append(errs, w.patchAll(ctx, hidden))...)
	}
	for _, o := range hidden { // its endpoints must not wait for another slice
		if _, exists := w.at[o.Name]; exists {
			errs = append(errs, w.patchVisible(ctx, o))
		}
	}
	return errors.Join(errs...)
}

// deletionsOf returns what is deleted before anything is created, and which slices are deleted after that: where an exporter divides its endpoints
// into other slices, none of them may be missing for a moment. With the import or its Service all slices go first, and so does one that is made anew.
func deletionsOf(c merge.Changes) (first, last merge.Objects) {
	first = c.Delete
	if first.Import != nil || first.Service != nil {
		return first, last
	}
	anew := func(e *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(c.Create.Slices, func(o *discoveryv1.EndpointSlice) bool { return o.Name == e.Name })
	}
	first.Slices = slices.DeleteFunc(slices.Clone(c.Delete.Slices), func(e *discoveryv1.EndpointSlice) bool { return !anew(e) })
	last.Slices = slices.DeleteFunc(slices.Clone(c.Delete.Slices), anew)
	return first, last
}

func (w *writer) createSlices(ctx context.Context, all []*discoveryv1.EndpointSlice) error {
	var errs []error
	for _, o := range all {
		errs = append(errs, w.create(ctx, o))
	}
	return errors.Join(errs...)
}

func (w *writer) exists(o *discoveryv1.EndpointSlice) bool {
	_, exists := w.at[o.Name]
	return exists
}

func (w *writer) patchAll(ctx context.Context, all []*discoveryv1.EndpointSlice) error {
	var errs []error
	for _, o := range all {
		errs = append(errs, w.patch(ctx, o))
	}
	return errors.Join(errs...)
}

// isMissing reports whether proxies do not see yet what they should see of a desired slice.
func (w *writer) isMissing(o *discoveryv1.EndpointSlice) bool {
	at, exists := w.at[o.Name]
	return !isHidden(o) && (!exists || !merge.IsImported(w.now.Slices[at]) || shows(o, w.now.Slices[at]))
}

// deleteAll deletes slices, derived Service and import, in this order: each waits until all before it are gone.
func (w *writer) deleteAll(ctx context.Context, o merge.Objects) error {
	var errs []error
	for _, e := range o.Slices {
		errs = append(errs, w.delete(ctx, e))
	}
	err := errors.Join(errs...)
	if o.Service != nil && err == nil {
		err = w.delete(ctx, o.Service)
	}
	if o.Import != nil && err == nil {
		err = w.delete(ctx, o.Import)
	}
	return err
}

// createService asks for the addresses that the import has: they are constant while the import lives, also if the derived
// Service was deleted, unless another Service has got them meanwhile.
func (w *writer) createService(ctx context.Context, o *corev1.Service) error {
	ips := w.now.Import.Spec.IPs
	if len(ips) > 0 && o.Spec.Type == corev1.ServiceTypeClusterIP && slices.Equal(w.now.Import.Spec.IPFamilies, o.Spec.IPFamilies) {
		same := o.DeepCopy()
		same.Spec.ClusterIP, same.Spec.ClusterIPs = ips[0], ips
		if err := w.create(ctx, same); !apierrors.IsInvalid(err) {
			return err
		}
	}
	return w.create(ctx, o)
}

// patchService changes the derived Service. One that may not become that of a load balancer goes on as it is, with its ports and all else
// that changed.
func (w *writer) patchService(ctx context.Context, o *corev1.Service) error {
	err := w.patch(ctx, o)
	was := w.now.Service
	if err == nil || was == nil || o.Spec.Type != corev1.ServiceTypeLoadBalancer || was.Spec.Type != corev1.ServiceTypeClusterIP {
		return err
	}
	c := merge.Diff(merge.Objects{Service: merge.Unrouted(o)}, merge.Objects{Service: was})
	if c.Update.Service != nil {
		err = errors.Join(err, w.patch(ctx, c.Update.Service))
	}
	return err
}

// create makes an object. It never takes over an existing one of that name.
func (w *writer) create(ctx context.Context, o apiserver.Object) error {
	created := o.DeepCopyObject().(apiserver.Object)
	err := w.member.Client().Create(ctx, created, wellknown.ManagerImporter)
	switch {
	case err == nil:
		w.set(created)
		return nil
	case apierrors.IsAlreadyExists(err):
		return w.refresh(ctx, o)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause),
		// Otherwise the kind is absent: its CRD is being replaced.
		apierrors.IsNotFound(err) && w.policy.Of(w.member.Namespace(w.svc.Namespace)) == export.Terminating:
		return errNamespace
	}
	if less := withoutInvalid(o, err); less != nil {
		return w.create(ctx, less)
	}
	return w.keepInvalid(o, err)
}

// patch changes an object, unless it changed since it was compared.
func (w *writer) patch(ctx context.Context, o apiserver.Object) error {
	was := w.existing(o)
	patched := o.DeepCopyObject().(apiserver.Object)
	err := w.member.Client().Patch(ctx, patched, merge.Patch(o, was), wellknown.ManagerImporter)
	switch {
	case err == nil:
		w.set(patched)
		w.observeLag(was, patched)
		return nil
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return w.refresh(ctx, o)
	}
	if less := withoutInvalid(o, err); less != nil {
		return w.patch(ctx, less)
	}
	return w.keepInvalid(o, err)
}

// keepInvalid remembers and logs that the API server rejects a slice as invalid: that must not stop the other objects. It
// returns any other error.
func (w *writer) keepInvalid(o apiserver.Object, err error) error {
	if _, slice := o.(*discoveryv1.EndpointSlice); !slice || !apierrors.IsInvalid(err) {
		return err
	}
	w.responses.set(w.svc, nameOf(o), response{fingerprint(o), fingerprint(w.existing(o))})
	w.log.Errorf("import %s: %v", w.svc, err)
	return nil
}

func (w *writer) delete(ctx context.Context, o apiserver.Object) error {
	if o.GetDeletionTimestamp() != nil {
		w.remove(o) // a finalizer delays it
		return nil
	}
	err := w.member.Client().Delete(ctx, o)
	if apierrors.IsConflict(err) {
		return w.refresh(ctx, o)
	}
	if err == nil {
		w.remove(o)
		w.member.Deleted(o)
	}
	return err
}

// refresh reads an object that is not what was expected.
func (w *writer) refresh(ctx context.Context, o apiserver.Object) error {
	delete(w.asked, nameOf(o))
	is := o.DeepCopyObject().(apiserver.Object)
	err := w.member.Client().Get(ctx, is, o.GetNamespace(), o.GetName())
	switch {
	case apierrors.IsNotFound(err):
		w.remove(o)
		return nil
	case err == nil:
		w.set(is)
	}
	return err
}

// writeStatus writes the status and records an Event if Ready changed.
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
	switch err := w.member.Client().Apply(ctx, applied, wellknown.ManagerImporter, "status"); {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return w.refresh(ctx, o)
	case err != nil:
		return err
	}
	w.set(applied)
	w.events.Transitions(applied, was.Status.Conditions, o.Status.Conditions)
	return nil
}

// mustWait reports whether someone else has overwritten the status of the derived Service, such as a controller of load balancers that does not
// look at their class: it is written again ever more rarely (docs/spec/controller.md 5.7).
func (w *writer) mustWait(o *corev1.Service) bool {
	wait := w.overwritten.Wait(w.svc.String(), askedOf(o), time.Now())
	if wait > 0 {
		w.retry(w.svc, wait)
	}
	return wait > 0
}

// askedOf is what is asked for as the status of a derived Service. One that is made anew has to get it at once.
func askedOf(o *corev1.Service) string { return string(o.UID) + " " + digest(o.Status.LoadBalancer) }

// writeServiceStatus writes the clusterset IPs that the derived Service carries.
func (w *writer) writeServiceStatus(ctx context.Context, o *corev1.Service) error {
	applied := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID}, Status: o.Status,
	}
	switch err := w.member.Client().Apply(ctx, applied, wellknown.ManagerImporter, "status"); {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		delete(w.asked, serviceStatusName)
		return w.refresh(ctx, o)
	case err != nil:
		return err
	}
	w.set(applied)
	if w.overwritten.Wrote(w.svc.String(), askedOf(o), time.Now()) {
		w.log.Warningf("import %s: someone else overwrites the addresses in the status of derived Service %s; they are written again ever more rarely. "+
			"A controller of load balancers has to leave the class %s alone", w.svc, o.Name, apibroker.VIPClass)
	}
	return nil
}

// set records that o exists, as the API server answered.
func (w *writer) set(o apiserver.Object) {
	w.member.Wrote(o)
	w.record(o)
}

// record records that o exists.
func (w *writer) record(o apiserver.Object) {
	switch o := o.(type) {
	case *mcsv1beta1.ServiceImport:
		w.now.Import = o
	case *corev1.Service:
		w.now.Service = o
	case *discoveryv1.EndpointSlice:
		if at, exists := w.at[o.Name]; exists {
			w.now.Slices[at] = o
			return
		}
		w.at[o.Name] = len(w.now.Slices)
		w.now.Slices = append(w.now.Slices, o)
	}
}

// remove records that no object with the kind and name of o exists.
func (w *writer) remove(o apiserver.Object) {
	switch o := o.(type) {
	case *mcsv1beta1.ServiceImport:
		w.now.Import = nil
	case *corev1.Service:
		w.now.Service = nil
	case *discoveryv1.EndpointSlice:
		at, exists := w.at[o.Name]
		if !exists {
			return
		}
		last := len(w.now.Slices) - 1
		moved := w.now.Slices[last]
		w.now.Slices[at], w.at[moved.Name] = moved, at
		w.now.Slices = w.now.Slices[:last]
		delete(w.at, o.Name)
	}
}

// existing returns the object with the kind and name of o, nil if there is none.
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
		if at, exists := w.at[o.Name]; exists {
			return w.now.Slices[at]
		}
	}
	return nil
}

// observeLag measures how long a change of endpoints took.
func (w *writer) observeLag(was, now apiserver.Object) {
	before, ok := was.(*discoveryv1.EndpointSlice)
	after, also := now.(*discoveryv1.EndpointSlice)
	if !ok || !also {
		return
	}
	if d, known := lag(before, after, w.started, time.Now()); known {
		w.metrics.ObserveLag(d)
	}
}

// withoutKept removes from c the writes that the API server answered with something else before, and records the others. All
// that is left, but for the status, has to be written.
func (w *writer) withoutKept(c merge.Changes) merge.Changes {
	kept := func(o *discoveryv1.EndpointSlice) bool { return w.kept(o) }
	wanted := slices.Clone(c.Create.Slices)
	c.Create.Slices = slices.DeleteFunc(c.Create.Slices, kept)
	rejected := slices.DeleteFunc(wanted, func(o *discoveryv1.EndpointSlice) bool { return slices.Contains(c.Create.Slices, o) })
	deleted, trimmed := merge.Retired(c.Delete.Slices, rejected)
	c.Delete.Slices, c.Update.Slices = deleted, slices.DeleteFunc(append(c.Update.Slices, trimmed...), kept)
	if o := c.Update.Import; o != nil && w.kept(o) {
		c.Update.Import = nil
	}
	if w.failure != nil {
		c.Create.Service, c.Update.Service, c.Delete.Service, c.ServiceStatus = nil, nil, nil, nil
	}
	if o := c.Update.Service; o != nil && w.kept(o) {
		c.Update.Service = nil
	}
	if o := c.Create.Service; o != nil {
		w.asked[nameOf(o)] = fingerprint(o)
	}
	return c
}

func (w *writer) kept(o apiserver.Object) bool {
	return w.keptDifferent(nameOf(o), fingerprint(o), func() string { return fingerprint(w.existing(o)) })
}

func (w *writer) keptStatus(o *mcsv1beta1.ServiceImport) bool {
	found := func() string { return statusFingerprint(w.now.Import.Status) }
	return w.keptDifferent("status of "+nameOf(o), statusFingerprint(o.Status), found)
}

// serviceStatusName names the status of the derived Service among the responses.
const serviceStatusName = "status of derived Service"

func (w *writer) keptServiceStatus(o *corev1.Service) bool {
	found := func() string { return digest(w.now.Service.Status.LoadBalancer) }
	return w.keptDifferent(serviceStatusName, digest(o.Status.LoadBalancer), found)
}

// keptDifferent reports whether the API server keeps an object different from what is asked for, so that writing it again is in
// vain. The first time it is logged.
func (w *writer) keptDifferent(name, asked string, found func() string) bool {
	r, remembered := w.responses.of(w.svc, name)
	switch {
	case remembered && r.asked == asked && r.found == found():
		return true
	case w.asked[name] == asked:
		w.responses.set(w.svc, name, response{asked, found()})
		w.log.Warningf("import %s: the API server keeps the %s different from what is written; it is left as it is", w.svc, name)
		return true
	}
	w.asked[name] = asked
	return false
}
