package importer

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/metrics"
)

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

// requests write the objects of one service, one at a time, for one reconcile. The responses tell which objects exist.
//
// The API server may reject or change an object on every write: an admission webhook changes it, or it is invalid. Call
// [requests.inVain] before a write. It compares fingerprints:
//
//	not asked for yet         not in vain, and noted as asked for: it has to be written now
//	asked for, still differs  in vain, and remembered in [responses], also for later reconciles
//	remembered                in vain, until what is asked for or what exists is different
//
// A noted request that is not made, or that meets a change by someone else, is dropped from the notes: it tells nothing
// about the API server.
type requests struct {
	writerConfig
	svc   types.NamespacedName
	now   *objects
	asked map[string]string // fingerprints of the requests in this reconcile, by name of the object
}

// inVain reports whether the API server keeps an object different from the request. It is logged once in the life of an
// import: other members may change the desired object as often as they like.
func (r *requests) inVain(name, asked, found string) bool {
	last, remembered := r.responses.of(r.svc, name)
	switch {
	case remembered && last == (response{asked, found}):
		return true
	case r.asked[name] == asked:
		r.responses.set(r.svc, name, response{asked, found})
		if !remembered {
			r.log.Warningf("import %s: the API server keeps the %s different from what is written; it is left as it is", r.svc, name)
		}
		return true
	}
	r.note(name, asked)
	return false
}

// note records that something is asked for.
func (r *requests) note(name, asked string) { r.asked[name] = asked }

// kept is [requests.inVain] for an object without its status.
func (r *requests) kept(o apiserver.Object) bool { return r.keptAs(nameOf(o), o) }

// keptAs is kept for an object that has another name among the responses.
func (r *requests) keptAs(name string, o apiserver.Object) bool {
	return r.inVain(name, fingerprint(o), fingerprint(r.now.existing(o)))
}

// isKept is kept without an effect: nothing is noted, remembered or logged.
func (r *requests) isKept(o apiserver.Object) bool {
	return r.asked[nameOf(o)] == fingerprint(o) || r.remembers(nameOf(o), o)
}

// remembers reports whether writing the object is known to be in vain. It notes nothing.
func (r *requests) remembers(name string, o apiserver.Object) bool {
	last, remembered := r.responses.of(r.svc, name)
	return remembered && last == (response{fingerprint(o), fingerprint(r.now.existing(o))})
}

// drop forgets that something is asked for.
func (r *requests) drop(name string) { delete(r.asked, name) }

// create makes an object. It never takes over an existing one of that name.
func (r *requests) create(ctx context.Context, o apiserver.Object) error {
	created := o.DeepCopyObject().(apiserver.Object)
	err := r.member.Client().Create(ctx, created, wellknown.ManagerImporter)
	switch {
	case err == nil:
		r.wrote(created)
		return nil
	case apierrors.IsAlreadyExists(err):
		return r.refresh(ctx, o)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause),
		// Otherwise the kind is absent: its CRD is being replaced.
		apierrors.IsNotFound(err) && r.policy.Of(r.member.Namespace(r.svc.Namespace)) == export.Terminating:
		return errNamespace
	}
	if less := withoutInvalid(o, err); less != nil {
		return r.create(ctx, less)
	}
	return r.rejected(nameOf(o), o, err)
}

// patch changes an object, unless it changed since it was compared.
func (r *requests) patch(ctx context.Context, o apiserver.Object) error {
	return r.patchAs(ctx, nameOf(o), o)
}

// patchAs is patch for an object that has another name among the responses.
func (r *requests) patchAs(ctx context.Context, name string, o apiserver.Object) error {
	was := r.now.existing(o)
	patched := o.DeepCopyObject().(apiserver.Object)
	err := r.member.Client().Patch(ctx, patched, desired.Patch(o, was), wellknown.ManagerImporter)
	switch {
	case err == nil:
		r.wrote(patched)
		r.observeLag(was, patched)
		return nil
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		r.drop(name)
		return r.refresh(ctx, o)
	}
	if less := withoutInvalid(o, err); less != nil {
		return r.patchAs(ctx, name, less)
	}
	return r.rejected(name, o, err)
}

// applyStatus writes the status of an object, which has this name among the responses. It is not written if the object
// is another one by now: then that is read.
func (r *requests) applyStatus(ctx context.Context, name string, o apiserver.Object) (written bool, err error) {
	switch err := r.member.Client().Apply(ctx, o, wellknown.ManagerImporter, "status"); {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		r.drop(name)
		return false, r.refresh(ctx, o)
	case err != nil:
		return false, err
	}
	r.wrote(o)
	return true, nil
}

// delete deletes an object, unless it changed since it was compared.
func (r *requests) delete(ctx context.Context, o apiserver.Object) error {
	if o.GetDeletionTimestamp() != nil {
		r.now.remove(o) // a finalizer delays it
		return nil
	}
	err := r.member.Client().Delete(ctx, o)
	if apierrors.IsConflict(err) {
		return r.refresh(ctx, o)
	}
	if err == nil {
		r.now.remove(o)
		r.member.Deleted(o)
	}
	return err
}

// deleteAll deletes slices, derived Service and import, in this order: each waits until all before it are gone.
func (r *requests) deleteAll(ctx context.Context, o desired.Objects) error {
	var errs []error
	for _, e := range o.Slices {
		errs = append(errs, r.delete(ctx, e))
	}
	err := errors.Join(errs...)
	if o.Service != nil && err == nil {
		err = r.delete(ctx, o.Service)
	}
	if o.Import != nil && err == nil {
		err = r.delete(ctx, o.Import)
	}
	return err
}

// rejected remembers and logs that the API server rejects a slice as invalid: that must not stop the other objects. It
// returns any other error.
func (r *requests) rejected(name string, o apiserver.Object, err error) error {
	if _, slice := o.(*discoveryv1.EndpointSlice); !slice || !apierrors.IsInvalid(err) {
		return err
	}
	r.responses.set(r.svc, name, response{fingerprint(o), fingerprint(r.now.existing(o))})
	r.log.Errorf("import %s: %v", r.svc, err)
	return nil
}

// refresh reads an object that differs from the expected one, and allows the same request again.
func (r *requests) refresh(ctx context.Context, o apiserver.Object) error {
	r.drop(nameOf(o))
	is := o.DeepCopyObject().(apiserver.Object)
	err := r.member.Client().Get(ctx, is, o.GetNamespace(), o.GetName())
	switch {
	case apierrors.IsNotFound(err):
		r.now.remove(o)
		return nil
	case err == nil:
		r.wrote(is)
	}
	return err
}

// wrote records what the API server answered.
func (r *requests) wrote(o apiserver.Object) {
	r.member.Wrote(o)
	r.now.set(o)
}

// observeLag measures how long a change of endpoints took.
func (r *requests) observeLag(was, now apiserver.Object) {
	before, ok := was.(*discoveryv1.EndpointSlice)
	after, also := now.(*discoveryv1.EndpointSlice)
	if !ok || !also {
		return
	}
	if d, known := lag(before, after, r.started, time.Now()); known {
		r.metrics.ObserveLag(d)
	}
}
