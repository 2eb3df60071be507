package importer

import (
	"context"
	"errors"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset/controller/merge"
)

// apply writes c, which has no status, in the order of [merge.Changes]; that of slices which are shown and hidden is in [visibility]. No object
// that cannot be written stops another one, but for a new import: everything else depends on its UID.
func (w *writer) apply(ctx context.Context, c merge.Changes) error {
	updates := w.visibility.sequence(c.Update.Slices, w.now, w.rejects)
	first, last := deletionsOf(c)
	errs := append(w.requests.patchAll(ctx, updates.show), w.patchUntil(ctx, updates.both)...)
	errs = append(errs, w.requests.deleteAll(ctx, first))
	if o := c.Create.Import; o != nil {
		return errors.Join(append(errs, w.requests.create(ctx, o))...)
	}
	if o := c.Update.Import; o != nil {
		errs = append(errs, w.requests.patch(ctx, o))
	}
	if o := c.Create.Service; o != nil {
		w.failure = w.createService(ctx, o)
	}
	if o := c.Update.Service; o != nil {
		w.failure = w.patchService(ctx, o)
	}
	errs = append(errs, w.requests.createAll(ctx, c.Create.Slices)...)
	var trimmed []*discoveryv1.EndpointSlice
	last.Slices, trimmed = merge.Retired(last.Slices, w.missing(c.Create.Slices))
	errs = append(errs, w.requests.patchAll(ctx, append(updates.other, trimmed...))...)
	errs = append(errs, w.requests.deleteAll(ctx, last))
	if w.visibility.complete(w.now) {
		errs = append(errs, w.requests.patchAll(ctx, updates.hide)...)
	} else { // their endpoints must not wait for another slice
		errs = append(errs, w.patchUntil(ctx, updates.hide)...)
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

// missing returns the slices that do not exist.
func (w *writer) missing(all []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(slices.Clone(all), func(o *discoveryv1.EndpointSlice) bool { return w.now.slice(o.Name) != nil })
}

// untilName names, among the responses, a slice as it is until others are shown.
func untilName(o *discoveryv1.EndpointSlice) string { return nameOf(o) + " with all that is shown" }

// rejects reports whether the API server is known to reject or change a slice as it is until others are shown.
func (w *writer) rejects(o *discoveryv1.EndpointSlice) bool {
	return w.requests.remembers(untilName(o), w.visibility.until(o, w.now))
}

// patchUntil writes updates as they are until others are shown, unless that is in vain. The next comparison asks for the updates again.
func (w *writer) patchUntil(ctx context.Context, updates []*discoveryv1.EndpointSlice) (errs []error) {
	for _, o := range updates {
		w.requests.drop(nameOf(o))
		existing := w.now.slice(o.Name)
		if existing == nil {
			continue
		}
		if v := w.visibility.until(o, w.now); differs(v, existing) && !w.requests.keptAs(untilName(o), v) {
			errs = append(errs, w.requests.patchAs(ctx, untilName(o), v))
		}
	}
	return errs
}
