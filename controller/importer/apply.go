package importer

import (
	"context"
	"errors"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset/controller/merge"
)

// An applier writes the changes of one service, in an order in which no endpoint is missing for a moment. It serves one reconcile.
type applier struct {
	*requests
	derived    *derived
	visibility visibility
}

// apply writes c, which has no status, in the order of [merge.Changes]; that of slices which are shown and hidden is in [visibility]. No object
// that cannot be written stops another one, but for a new import: everything else depends on its UID.
func (a *applier) apply(ctx context.Context, c merge.Changes) error {
	wanted := slices.Concat(c.Create.Slices, c.Update.Slices)
	updates := a.visibility.sequence(c.Update.Slices, a.now, a.rejects)
	first, last := deletionsOf(c)
	errs := append(a.patchAll(ctx, updates.show, wanted), a.patchUntil(ctx, updates.both, wanted)...)
	errs = append(errs, a.deleteAll(ctx, first))
	if o := c.Create.Import; o != nil {
		return errors.Join(append(errs, a.create(ctx, o))...)
	}
	if o := c.Update.Import; o != nil {
		errs = append(errs, a.patch(ctx, o))
	}
	if o := c.Create.Service; o != nil {
		a.derived.failure = a.derived.createService(ctx, o)
	}
	if o := c.Update.Service; o != nil {
		a.derived.failure = a.derived.patchService(ctx, o)
	}
	errs = append(errs, a.createAll(ctx, c.Create.Slices)...)
	errs = append(errs, a.patchAll(ctx, updates.other, wanted)...)
	deleted, trimmed := merge.Retired(last.Slices, merge.Unwritten(wanted, a.now.slice))
	last.Slices = deleted
	errs = append(errs, a.patchAll(ctx, trimmed, nil)...)
	errs = append(errs, a.deleteAll(ctx, last))
	if a.visibility.complete(a.now) {
		errs = append(errs, a.patchAll(ctx, updates.hide, wanted)...)
	} else { // their endpoints must not wait for another slice
		errs = append(errs, a.patchUntil(ctx, updates.hide, wanted)...)
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
func (a *applier) patchAll(ctx context.Context, updates, wanted []*discoveryv1.EndpointSlice) (errs []error) {
	for _, o := range updates {
		retained := a.retained(o, wanted)
		if retained != o {
			a.drop(nameOf(o))
			if !differs(retained, a.now.slice(o.Name)) {
				continue
			}
		}
		errs = append(errs, a.patch(ctx, retained))
	}
	return errs
}

// retained returns an update with the endpoints that it loses and that none of the wanted slices, which get them, has yet.
func (a *applier) retained(o *discoveryv1.EndpointSlice, wanted []*discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	existing := a.now.slice(o.Name)
	if !merge.Loses(o, existing) { // so that what is missing is only looked for where that matters
		return o
	}
	return merge.Retained(o, existing, merge.Unwritten(wanted, a.now.slice))
}

// untilName names, among the responses, a slice as it is until others are shown.
func untilName(o *discoveryv1.EndpointSlice) string { return nameOf(o) + " with all that is shown" }

// rejects reports whether the API server is known to reject or change a slice as it is until others are shown.
func (a *applier) rejects(o *discoveryv1.EndpointSlice) bool {
	return a.remembers(untilName(o), a.visibility.until(o, a.now))
}

// patchUntil is [applier.patchAll] for updates as they are until others are shown, unless that is in vain.
func (a *applier) patchUntil(ctx context.Context, updates, wanted []*discoveryv1.EndpointSlice) (errs []error) {
	for _, o := range updates {
		a.drop(nameOf(o))
		existing := a.now.slice(o.Name)
		if existing == nil {
			continue
		}
		until := a.visibility.until(o, a.now)
		retained := a.retained(until, wanted)
		if differs(retained, existing) && (retained != until || !a.keptAs(untilName(o), until)) {
			errs = append(errs, a.patchAs(ctx, untilName(o), retained))
		}
	}
	return errs
}

// withoutKept removes from c the writes that are in vain. All that is left, but for the status, has to be written.
func (a *applier) withoutKept(c merge.Changes) merge.Changes {
	a.slicesWithoutKept(&c)
	if o := c.Update.Import; o != nil && a.kept(o) {
		c.Update.Import = nil
	}
	if a.derived.failure != nil {
		c.Create.Service, c.Update.Service, c.Delete.Service, c.ServiceStatus = nil, nil, nil, nil
	}
	if o := c.Update.Service; o != nil && a.kept(o) {
		c.Update.Service = nil
	}
	if o := c.Create.Service; o != nil {
		a.note(nameOf(o), fingerprint(o))
	}
	return c
}

// slicesWithoutKept is [applier.withoutKept] for slices. What others have of the endpoints of those that are left out stays there (docs/spec/controller.md 5.5).
func (a *applier) slicesWithoutKept(c *merge.Changes) {
	var leftOut []*discoveryv1.EndpointSlice
	kept := func(o *discoveryv1.EndpointSlice) bool {
		if !a.kept(o) {
			return false
		}
		leftOut = append(leftOut, o)
		return true
	}
	missing := func() []*discoveryv1.EndpointSlice { return merge.Unwritten(leftOut, a.now.slice) }
	c.Create.Slices = slices.DeleteFunc(c.Create.Slices, kept)
	var updates []*discoveryv1.EndpointSlice
	for _, o := range merge.LosingLast(c.Update.Slices, a.now.slice) {
		existing := a.now.slice(o.Name)
		retained := merge.Retained(o, existing, missing())
		if (retained == o || differs(retained, existing)) && !kept(retained) {
			updates = append(updates, retained)
		}
	}
	deleted, trimmed := merge.Retired(c.Delete.Slices, missing())
	updates = append(updates, slices.DeleteFunc(trimmed, kept)...)
	c.Delete.Slices, c.Update.Slices = deleted, updates
}

// heldBack removes from c what hides a slice in vain: see [visibility.heldBack]. A later comparison asks for it.
func (a *applier) heldBack(c merge.Changes) merge.Changes {
	write, held := a.visibility.heldBack(c, a.now, a.rejects)
	for _, o := range held {
		a.drop(nameOf(o))
	}
	c.Update.Slices = write
	return c
}
