package write

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/export"
)

// errNamespace means that the namespace takes no new objects: nothing can be done until its next event.
var errNamespace = errors.New("the namespace is absent or terminating")

// requests write the objects of one service, one at a time, for one reconcile. The responses tell which objects exist.
//
// The API server may reject or change an object on every write: an admission webhook changes it, or it is invalid. Call
// [requests.isFutileText] before a write. It compares fingerprints:
//
//	not asked for yet         not futile, and noted as asked for: it has to be written now
//	asked for, still differs  futile, and remembered in [responses], also for later reconciles
//	remembered                futile, until the request or the object is different
//
// A noted request that is not made, or that meets a change by someone else, is dropped from the notes: it tells nothing
// about the API server.
type requests struct {
	writer  *Writer
	svc     types.NamespacedName
	objects *objects
	asked   map[string]string // fingerprints of the requests in this reconcile, by name of the object
}

// isFutileText reports whether the API server keeps an object different from the request. It is logged once in the
// life of an import: other members may change the desired object as often as they like.
func (r *requests) isFutileText(name, asked, found string) bool {
	last, remembered := r.writer.responses.get(r.svc, name)
	switch {
	case remembered && last == (response{asked, found}):
		return true
	case r.asked[name] == asked:
		r.writer.responses.set(r.svc, name, response{asked, found})
		if !remembered {
			r.writer.cfg.Log.Warningf("import %s: the API server keeps the %s different from the request; it is left as it is", r.svc, name)
		}
		return true
	}
	r.note(name, asked)
	return false
}

// note records that something is asked for.
func (r *requests) note(name, asked string) { r.asked[name] = asked }

// isFutile is [requests.isFutileText] for an object without its status.
func (r *requests) isFutile(o apiserver.Object) bool { return r.isFutileAs(nameOf(o), o) }

// isFutileAs is isFutile for an object that has another name among the responses.
func (r *requests) isFutileAs(name string, o apiserver.Object) bool {
	return r.isFutileText(name, fingerprint(o), fingerprint(r.objects.existing(o)))
}

// wasFutile is isFutile without an effect: nothing is noted, remembered or logged.
func (r *requests) wasFutile(o apiserver.Object) bool {
	return r.asked[nameOf(o)] == fingerprint(o) || r.wasFutileAs(nameOf(o), o)
}

// wasFutileAs reports whether writing the object is known to be futile. It notes nothing.
func (r *requests) wasFutileAs(name string, o apiserver.Object) bool {
	last, remembered := r.writer.responses.get(r.svc, name)
	return remembered && last == (response{fingerprint(o), fingerprint(r.objects.existing(o))})
}

// drop forgets that something is asked for.
func (r *requests) drop(name string) { delete(r.asked, name) }

// create makes an object. It never takes over an existing one of that name.
func (r *requests) create(ctx context.Context, o apiserver.Object) error {
	created := o.DeepCopyObject().(apiserver.Object)
	err := r.writer.cfg.Member.Client().Create(ctx, created, wellknown.ManagerImporter)
	namespace := r.writer.cfg.Member.Namespace(r.svc.Namespace)
	switch {
	case err == nil:
		r.wrote(created)
		return nil
	case apierrors.IsAlreadyExists(err):
		return r.refresh(ctx, o)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause),
		// Otherwise the kind is absent: its CRD is being replaced.
		apierrors.IsNotFound(err) && r.writer.cfg.Policy.Of(namespace) == export.Terminating:
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
	existing := r.objects.existing(o)
	patched := o.DeepCopyObject().(apiserver.Object)
	err := r.writer.cfg.Member.Client().Patch(ctx, patched, desired.Patch(o, existing), wellknown.ManagerImporter)
	switch {
	case err == nil:
		r.wrote(patched)
		r.observeLag(existing, patched)
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

// applyStatus writes the status of an object, which has this name among the responses, with more fields. It is not
// written if the object is another one by now: then that is read.
func (r *requests) applyStatus(ctx context.Context, name string, o apiserver.Object,
	more map[string]any) (written bool, err error) {
	switch err := r.writer.cfg.Member.Client().ApplyStatus(ctx, o, wellknown.ManagerImporter, more); {
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
		r.objects.remove(o) // a finalizer delays it
		return nil
	}
	err := r.writer.cfg.Member.Client().Delete(ctx, o)
	if apierrors.IsConflict(err) {
		return r.refresh(ctx, o)
	}
	if err == nil {
		r.objects.remove(o)
		r.writer.cfg.Member.Deleted(o)
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
	r.writer.responses.set(r.svc, name, response{fingerprint(o), fingerprint(r.objects.existing(o))})
	r.writer.cfg.Log.Errorf("import %s: %v", r.svc, err)
	return nil
}

// refresh reads an object that differs from the expected one, and allows the same request again.
func (r *requests) refresh(ctx context.Context, o apiserver.Object) error {
	r.drop(nameOf(o))
	found := o.DeepCopyObject().(apiserver.Object)
	err := r.writer.cfg.Member.Client().Get(ctx, found, o.GetNamespace(), o.GetName())
	switch {
	case apierrors.IsNotFound(err):
		r.objects.remove(o)
		return nil
	case err == nil:
		r.wrote(found)
	}
	return err
}

// wrote records what the API server answered.
func (r *requests) wrote(o apiserver.Object) {
	r.writer.cfg.Member.Wrote(o)
	r.objects.set(o)
}

// observeLag measures how long a change of endpoints took.
func (r *requests) observeLag(previous, current apiserver.Object) {
	before, ok := previous.(*discoveryv1.EndpointSlice)
	after, also := current.(*discoveryv1.EndpointSlice)
	if !ok || !also {
		return
	}
	if d, known := lag(before, after, r.writer.started, time.Now()); known {
		r.writer.cfg.Metrics.ObserveLag(d)
	}
}
