package importer

import (
	"context"
	"errors"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/desired"
)

// An applier writes the changes of one service, in an order in which no endpoint is missing for a moment. It serves one
// reconcile.
type applier struct {
	*requests
	derived    *derived
	visibility visibility
	moves      *desired.Moves // to the slices that [applier.apply] writes
}

// apply writes c, which has no status, in the order of [desired.Changes]; that of slices which are shown and hidden is
// in [visibility]. No object that cannot be written stops another one, but for a new import: everything else depends on
// its UID.
func (a *applier) apply(ctx context.Context, c desired.Changes) error {
	a.moves = desired.NewMoves(slices.Concat(c.Create.Slices, c.Update.Slices), a.now.imported)
	updates := a.visibility.sequence(c.Update.Slices, a.now, a.rejects)
	first, last := deletionsOf(c)
	errs := append(a.patchAll(ctx, updates.show), a.patchUntil(ctx, updates.both)...)
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
	errs = append(errs, a.patchAll(ctx, updates.other)...)
	deleted, trimmed := a.moves.Retired(last.Slices)
	last.Slices = deleted
	errs = append(errs, a.patchAll(ctx, trimmed)...)
	errs = append(errs, a.deleteAll(ctx, last))
	if a.visibility.complete(a.now) {
		errs = append(errs, a.patchAll(ctx, updates.hide)...)
	} else { // their endpoints must not wait for another slice
		errs = append(errs, a.patchUntil(ctx, updates.hide)...)
	}
	return errors.Join(errs...)
}

// deletionsOf returns the deletions before and after all creations: while an exporter moves endpoints to other slices,
// each stays available. With the import or its Service all slices go first; so does a slice that is made anew.
func deletionsOf(c desired.Changes) (first, last desired.Objects) {
	first = c.Delete
	if first.Import != nil || first.Service != nil {
		return first, last
	}
	anew := madeAnew(c)
	first.Slices = slices.DeleteFunc(slices.Clone(c.Delete.Slices),
		func(e *discoveryv1.EndpointSlice) bool { return !anew(e) })
	last.Slices = slices.DeleteFunc(slices.Clone(c.Delete.Slices), anew)
	return first, last
}

// madeAnew returns what reports whether a slice that is deleted is also created, as one of another family.
func madeAnew(c desired.Changes) func(*discoveryv1.EndpointSlice) bool {
	created := namesIn(c.Create.Slices)
	return func(e *discoveryv1.EndpointSlice) bool { return created[e.Name] }
}

// createAll creates slices.
func (a *applier) createAll(ctx context.Context, all []*discoveryv1.EndpointSlice) (errs []error) {
	for _, o := range all {
		errs = append(errs, a.create(ctx, o))
		a.moves.Wrote(o.Name, a.now.imported(o.Name))
	}
	return errs
}

// patchAll writes updates, but loses no endpoint that has moved to a slice which is not written yet, or cannot be: the
// next comparison asks for such an update again (docs/spec/controller.md 5.5).
func (a *applier) patchAll(ctx context.Context, updates []*discoveryv1.EndpointSlice) (errs []error) {
	for _, o := range updates {
		retained := a.moves.Retained(o, a.now.slice(o.Name))
		if retained != o {
			a.drop(nameOf(o))
			if !differs(retained, a.now.slice(o.Name)) {
				continue
			}
		}
		errs = append(errs, a.patch(ctx, retained))
		a.moves.Wrote(o.Name, a.now.imported(o.Name))
	}
	return errs
}

// untilName is the key in responses for the intermediate form of a slice, which it has until other slices are shown.
func untilName(o *discoveryv1.EndpointSlice) string { return nameOf(o) + " with all that is shown" }

// rejects reports whether the API server is known to reject or change the intermediate form of a slice.
func (a *applier) rejects(o *discoveryv1.EndpointSlice) bool {
	return a.remembers(untilName(o), a.visibility.until(o, a.now))
}

// patchUntil is [applier.patchAll] for updates as they are until others are shown, unless that is in vain.
func (a *applier) patchUntil(ctx context.Context, updates []*discoveryv1.EndpointSlice) (errs []error) {
	for _, o := range updates {
		a.drop(nameOf(o))
		existing := a.now.slice(o.Name)
		if existing == nil {
			continue
		}
		until := a.visibility.until(o, a.now)
		retained := a.moves.Retained(until, existing)
		if differs(retained, existing) && (retained != until || !a.keptAs(untilName(o), until)) {
			errs = append(errs, a.patchAs(ctx, untilName(o), retained))
			a.moves.Wrote(o.Name, a.now.imported(o.Name))
		}
	}
	return errs
}

// withoutKept removes from c the writes that are in vain, or have to wait. All that is left, but for the status, has to
// be written.
func (a *applier) withoutKept(c desired.Changes) desired.Changes {
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

// slicesWithoutKept is [applier.withoutKept] for slices. It also leaves out hides in vain: see [visibility.heldBack]. A
// later comparison asks for that.
func (a *applier) slicesWithoutKept(c *desired.Changes) {
	wanted := slices.Concat(c.Create.Slices, c.Update.Slices, c.Blocked)
	if len(wanted) == 0 { // then each endpoint is where it should be
		return
	}
	for len(a.visibility.chosen) > 0 {
		held := a.visibility.heldBack(a.feasible(*c, wanted, a.isKept), a.now, a.rejects)
		for _, o := range held {
			a.drop(nameOf(o))
		}
		before := len(c.Update.Slices)
		if c.Update.Slices = without(c.Update.Slices, held); len(c.Update.Slices) == before {
			break
		}
	}
	*c = a.feasible(*c, wanted, a.kept)
}

// feasible returns the changes of slices that [applier.apply] writes if no request fails: in its order, without those
// that kept reports as in vain, and with the endpoints that stay until the wanted slices with them are written
// (docs/spec/controller.md 5.5).
func (a *applier) feasible(c desired.Changes, wanted []*discoveryv1.EndpointSlice,
	kept func(apiserver.Object) bool) desired.Changes {
	moves := desired.NewMoves(wanted, a.now.imported)
	var updates, creates []*discoveryv1.EndpointSlice
	update := func(all []*discoveryv1.EndpointSlice) {
		for _, o := range all {
			existing := a.now.slice(o.Name)
			retained := moves.Retained(o, existing)
			if (retained == o || differs(retained, existing)) && !kept(retained) {
				updates = append(updates, retained)
				moves.Wrote(o.Name, retained)
			}
		}
	}
	order := a.visibility.sequence(desired.LosingLast(c.Update.Slices, a.now.slice), a.now, a.rejects)
	update(order.show)
	update(order.both)
	for _, o := range c.Create.Slices {
		if !kept(o) {
			creates = append(creates, o)
			moves.Wrote(o.Name, o)
		}
	}
	update(order.other)
	deleted, trimmed := moves.Retired(c.Delete.Slices)
	update(trimmed)
	update(order.hide)
	c.Create.Slices, c.Update.Slices, c.Delete.Slices = creates, updates, deleted
	return c
}
