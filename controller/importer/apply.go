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
	wanted := slices.Concat(c.Create.Slices, c.Update.Slices)
	updates := w.visibility.sequence(c.Update.Slices, w.now, w.rejects)
	first, last := deletionsOf(c)
	errs := append(w.patchAll(ctx, updates.show, wanted), w.patchUntil(ctx, updates.both, wanted)...)
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
	errs = append(errs, w.patchAll(ctx, updates.other, wanted)...)
	deleted, trimmed := merge.Retired(last.Slices, merge.Unwritten(wanted, w.now.slice))
	last.Slices = deleted
	errs = append(errs, w.patchAll(ctx, trimmed, nil)...)
	errs = append(errs, w.requests.deleteAll(ctx, last))
	if w.visibility.complete(w.now) {
		errs = append(errs, w.patchAll(ctx, updates.hide, wanted)...)
	} else { // their endpoints must not wait for another slice
		errs = append(errs, w.patchUntil(ctx, updates.hide, wanted)...)
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

// patchAll writes updates, but loses no endpoint that has moved to one of the wanted slices which is not written yet, or cannot be: the next comparison
// asks for such an update again (docs/spec/controller.md 5.5).
func (w *writer) patchAll(ctx context.Context, updates, wanted []*discoveryv1.EndpointSlice) (errs []error) {
	for _, o := range updates {
		retained := w.retained(o, wanted)
		if retained != o {
			w.requests.drop(nameOf(o))
			if !differs(retained, w.now.slice(o.Name)) {
				continue
			}
		}
		errs = append(errs, w.requests.patch(ctx, retained))
	}
	return errs
}

// retained returns an update with the endpoints that it loses and that none of the wanted slices, which get them, has yet.
func (w *writer) retained(o *discoveryv1.EndpointSlice, wanted []*discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	existing := w.now.slice(o.Name)
	if !merge.Loses(o, existing) { // so that what is missing is only looked for where that matters
		return o
	}
	return merge.Retained(o, existing, merge.Unwritten(wanted, w.now.slice))
}

// untilName names, among the responses, a slice as it is until others are shown.
func untilName(o *discoveryv1.EndpointSlice) string { return nameOf(o) + " with all that is shown" }

// rejects reports whether the API server is known to reject or change a slice as it is until others are shown.
func (w *writer) rejects(o *discoveryv1.EndpointSlice) bool {
	return w.requests.remembers(untilName(o), w.visibility.until(o, w.now))
}

// patchUntil is [writer.patchAll] for updates as they are until others are shown, unless that is in vain.
func (w *writer) patchUntil(ctx context.Context, updates, wanted []*discoveryv1.EndpointSlice) (errs []error) {
	for _, o := range updates {
		w.requests.drop(nameOf(o))
		existing := w.now.slice(o.Name)
		if existing == nil {
			continue
		}
		until := w.visibility.until(o, w.now)
		retained := w.retained(until, wanted)
		if differs(retained, existing) && (retained != until || !w.requests.keptAs(untilName(o), until)) {
			errs = append(errs, w.requests.patchAs(ctx, untilName(o), retained))
		}
	}
	return errs
}
