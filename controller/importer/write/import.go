// Package write writes the objects of imported services: ServiceImport, derived Service, EndpointSlices. The importer
// decides what they should be; this package orders the writes, and leaves out those that the API server does not keep.
package write

import (
	"context"
	"errors"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/desired"
)

// An Import writes the objects of one service, for one reconcile.
type Import struct {
	requests   *requests
	derived    *derived
	visibility visibility
	moves      *desired.Moves // to the slices that [Import.write] writes
	unobserved bool           // status.observedGeneration has to follow a write of the spec
}

// Import returns the import of a service with the objects that exist.
func (w *Writer) Import(svc types.NamespacedName) *Import {
	m := w.cfg.Member
	return w.ImportOf(svc, desired.Objects{Import: m.Import(svc), Service: m.Derived(svc), Slices: m.ImportedSlices(svc)})
}

// ImportOf returns the import of a service with these existing objects.
func (w *Writer) ImportOf(svc types.NamespacedName, existing desired.Objects) *Import {
	r := &requests{writer: w, svc: svc, objects: newObjects(existing), asked: make(map[string]string)}
	return &Import{requests: r, derived: &derived{requests: r}}
}

// Objects returns the existing objects, as last read or written.
func (i *Import) Objects() desired.Objects { return i.requests.objects.Objects }

// Ignore leaves the existing slices for which ignored is true as they are.
func (i *Import) Ignore(ignored func(*discoveryv1.EndpointSlice) bool) {
	os := i.requests.objects
	os.setSlices(slices.DeleteFunc(os.Slices, ignored))
}

// Show takes note of all desired slices before some are hidden. Without slices the import has no selected clusters.
func (i *Import) Show(wanted []*discoveryv1.EndpointSlice) { i.visibility = visibilityOf(wanted) }

// Failure is why the derived Service could not be written.
func (i *Import) Failure() error { return i.derived.failure }

// Apply makes the next writes of c that are not known to be futile. It reports whether it wrote anything: then the
// caller compares again. The status comes last, when it is true. A failure of the derived Service does not stop the
// other writes, and is returned after them.
func (i *Import) Apply(ctx context.Context, c desired.Changes) (wrote bool, err error) {
	c = i.withoutFutile(c)
	status, serviceStatus := c.Status, c.ServiceStatus
	c.Status, c.ServiceStatus = nil, nil
	switch {
	case !c.Empty():
		if err = i.write(ctx, c); errors.Is(err, errNamespace) {
			return false, nil
		}
		return true, err
	case serviceStatus != nil && i.derived.mayWriteStatus(serviceStatus):
		i.derived.failure = i.derived.writeStatus(ctx, serviceStatus)
		return true, nil
	case status == nil && i.unobserved && i.Objects().Import != nil:
		return true, i.writeStatus(ctx, i.Objects().Import.DeepCopy())
	case status != nil && !i.isStatusFutile(status):
		return true, i.writeStatus(ctx, status)
	}
	return false, i.derived.failure
}

// A step is a part of the writes of one import: see [Import.steps].
type step struct {
	kind   stepKind
	slices []*discoveryv1.EndpointSlice
}

type stepKind int

const (
	show         stepKind = iota
	intermediate          // updates as they are until others are shown
	remove                // deletions of slices before creations, of derived Service and import
	owner                 // import and derived Service
	create
	update
	retire // deletions of slices after creations
	hide
)

// steps returns the writes of c in their order, in which no endpoint is missing for a moment. That of slices which are
// shown and hidden is in [visibility].
func (i *Import) steps(c desired.Changes) []step {
	first, last := deletionsOf(c)
	os := i.requests.objects
	updates := i.visibility.sequence(desired.LosingLast(c.Update.Slices, os.slice), os, i.isIntermediateFutile)
	return []step{
		{show, updates.show}, {intermediate, updates.both}, {remove, first}, {owner, nil}, {create, c.Create.Slices},
		{update, updates.other}, {retire, last}, {hide, updates.hide},
	}
}

// deletionsOf divides the deletions of slices into those before and after all creations: while an exporter moves
// endpoints to other slices, each stays available. With the import or its Service all slices go first; so does a slice
// that is created again, as one of another family.
func deletionsOf(c desired.Changes) (first, last []*discoveryv1.EndpointSlice) {
	all := c.Delete.Slices
	if c.Delete.Import != nil || c.Delete.Service != nil {
		return all, nil
	}
	created := namesIn(c.Create.Slices)
	for _, e := range all {
		if created[e.Name] {
			first = append(first, e)
		} else {
			last = append(last, e)
		}
	}
	return first, last
}

// write writes c, which has no status. No object that cannot be written stops another one, but for a new import:
// everything else depends on its UID.
func (i *Import) write(ctx context.Context, c desired.Changes) error {
	i.moves = desired.NewMoves(slices.Concat(c.Create.Slices, c.Update.Slices), i.requests.objects.imported)
	var errs []error
	for _, s := range i.steps(c) {
		switch s.kind {
		case intermediate:
			errs = append(errs, i.patchIntermediate(ctx, s.slices)...)
		case remove:
			gone := desired.Objects{Import: c.Delete.Import, Service: c.Delete.Service, Slices: s.slices}
			errs = append(errs, i.requests.deleteAll(ctx, gone))
		case owner:
			errs = append(errs, i.writeOwners(ctx, c))
			if c.Create.Import != nil {
				return errors.Join(errs...)
			}
		case create:
			errs = append(errs, i.createAll(ctx, s.slices)...)
		case show, update:
			errs = append(errs, i.patchAll(ctx, s.slices)...)
		case retire:
			deleted, trimmed := i.moves.DivideUnwanted(s.slices)
			errs = append(errs, i.patchAll(ctx, trimmed)...)
			errs = append(errs, i.requests.deleteAll(ctx, desired.Objects{Slices: deleted}))
		case hide:
			if i.visibility.complete(i.requests.objects) {
				errs = append(errs, i.patchAll(ctx, s.slices)...)
			} else { // their endpoints must not wait for another slice
				errs = append(errs, i.patchIntermediate(ctx, s.slices)...)
			}
		}
	}
	return errors.Join(errs...)
}

// writeOwners writes the import, or else its update and the derived Service.
func (i *Import) writeOwners(ctx context.Context, c desired.Changes) (err error) {
	if o := c.Create.Import; o != nil {
		return i.requests.create(ctx, o)
	}
	if o := c.Update.Import; o != nil {
		before := i.Objects().Import.Generation
		err = i.requests.patch(ctx, o)
		imp := i.Objects().Import
		i.unobserved = i.requests.writer.cfg.Observes && imp != nil && imp.Generation != before
	}
	if o := c.Create.Service; o != nil {
		i.derived.failure = i.derived.create(ctx, o)
	}
	if o := c.Update.Service; o != nil {
		i.derived.failure = i.derived.patch(ctx, o)
	}
	return err
}

// createAll creates slices.
func (i *Import) createAll(ctx context.Context, all []*discoveryv1.EndpointSlice) (errs []error) {
	for _, o := range all {
		errs = append(errs, i.requests.create(ctx, o))
		i.moves.Record(o.Name, i.requests.objects.imported(o.Name))
	}
	return errs
}

// patchAll writes updates, but loses no endpoint that has moved to a slice which is not written yet, or cannot be: the
// next comparison asks for such an update again (docs/spec/controller.md 5.5).
func (i *Import) patchAll(ctx context.Context, updates []*discoveryv1.EndpointSlice) (errs []error) {
	for _, o := range updates {
		retained := i.moves.WithMissing(o, i.requests.objects.slice(o.Name))
		if retained != o {
			i.requests.drop(nameOf(o))
			if !differs(retained, i.requests.objects.slice(o.Name)) {
				continue
			}
		}
		errs = append(errs, i.requests.patch(ctx, retained))
		i.moves.Record(o.Name, i.requests.objects.imported(o.Name))
	}
	return errs
}

// intermediateName is the key in responses for the intermediate form of a slice, which it has until other slices are
// shown.
func intermediateName(o *discoveryv1.EndpointSlice) string {
	return nameOf(o) + " with all that is shown"
}

// isIntermediateFutile reports whether the API server is known to reject or change the intermediate form of a slice.
func (i *Import) isIntermediateFutile(o *discoveryv1.EndpointSlice) bool {
	return i.requests.wasFutileAs(intermediateName(o), i.visibility.intermediate(o, i.requests.objects))
}

// patchIntermediate is [Import.patchAll] for updates as they are until others are shown, unless that is futile.
func (i *Import) patchIntermediate(ctx context.Context, updates []*discoveryv1.EndpointSlice) (errs []error) {
	for _, o := range updates {
		i.requests.drop(nameOf(o))
		existing := i.requests.objects.slice(o.Name)
		if existing == nil {
			continue
		}
		form := i.visibility.intermediate(o, i.requests.objects)
		retained := i.moves.WithMissing(form, existing)
		if differs(retained, existing) && (retained != form || !i.requests.isFutileAs(intermediateName(o), form)) {
			errs = append(errs, i.requests.patchAs(ctx, intermediateName(o), retained))
			i.moves.Record(o.Name, i.requests.objects.imported(o.Name))
		}
	}
	return errs
}

// withoutFutile removes from c the writes that are futile, or have to wait. All that is left, but for the status, has
// to be written.
func (i *Import) withoutFutile(c desired.Changes) desired.Changes {
	i.slicesWithoutFutile(&c)
	if o := c.Update.Import; o != nil && i.requests.isFutile(o) {
		c.Update.Import = nil
	}
	if i.derived.failure != nil {
		c.Create.Service, c.Update.Service, c.Delete.Service, c.ServiceStatus = nil, nil, nil, nil
	}
	if o := c.Update.Service; o != nil && i.requests.isFutile(o) {
		c.Update.Service = nil
	}
	if o := c.Create.Service; o != nil {
		i.requests.note(nameOf(o), fingerprint(o))
	}
	return c
}

// slicesWithoutFutile is [Import.withoutFutile] for slices. It also leaves out hides in vain: see
// [visibility.heldBack]. A later comparison asks for that.
func (i *Import) slicesWithoutFutile(c *desired.Changes) {
	wanted := slices.Concat(c.Create.Slices, c.Update.Slices, c.Blocked)
	if len(wanted) == 0 { // then each endpoint is where it should be
		return
	}
	for len(i.visibility.chosen) > 0 {
		held := i.visibility.heldBack(i.simulate(*c, wanted, i.requests.wasFutile), i.requests.objects,
			i.isIntermediateFutile)
		for _, o := range held {
			i.requests.drop(nameOf(o))
		}
		before := len(c.Update.Slices)
		if c.Update.Slices = without(c.Update.Slices, held); len(c.Update.Slices) == before {
			break
		}
	}
	*c = i.simulate(*c, wanted, i.requests.isFutile)
}

// simulate returns the changes of slices that [Import.write] writes if no request fails: its steps, without those that
// are futile, and with the endpoints that stay until the wanted slices with them are written
// (docs/spec/controller.md 5.5).
func (i *Import) simulate(c desired.Changes, wanted []*discoveryv1.EndpointSlice,
	isFutile func(apiserver.Object) bool) desired.Changes {
	os := i.requests.objects
	moves := desired.NewMoves(wanted, os.imported)
	var updates, creates, deletes []*discoveryv1.EndpointSlice
	patch := func(all []*discoveryv1.EndpointSlice) {
		for _, o := range all {
			existing := os.slice(o.Name)
			retained := moves.WithMissing(o, existing)
			if (retained == o || differs(retained, existing)) && !isFutile(retained) {
				updates = append(updates, retained)
				moves.Record(o.Name, retained)
			}
		}
	}
	for _, s := range i.steps(c) {
		switch s.kind {
		case show, intermediate, update, hide:
			patch(s.slices)
		case remove:
			deletes = append(deletes, s.slices...)
		case create:
			for _, o := range s.slices {
				if !isFutile(o) {
					creates = append(creates, o)
					moves.Record(o.Name, o)
				}
			}
		case retire:
			deleted, trimmed := moves.DivideUnwanted(s.slices)
			deletes = append(deletes, deleted...)
			patch(trimmed)
		}
	}
	c.Create.Slices, c.Update.Slices, c.Delete.Slices = creates, updates, deletes
	return c
}

// importStatusName names the status of the import among the responses.
const importStatusName = "status of ServiceImport"

// isStatusFutile reports whether the API server keeps another status of the import.
func (i *Import) isStatusFutile(o *mcsv1beta1.ServiceImport) bool {
	return i.requests.isFutileText(importStatusName, statusFingerprint(o), statusFingerprint(i.Objects().Import))
}

// writeStatus writes the status and records an Event if Ready changed.
func (i *Import) writeStatus(ctx context.Context, o *mcsv1beta1.ServiceImport) error {
	before := i.Objects().Import
	i.unobserved = false
	var more map[string]any
	if i.requests.writer.cfg.Observes {
		more = map[string]any{"observedGeneration": before.Generation}
	}
	for at := range o.Status.Conditions {
		if c := &o.Status.Conditions[at]; c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = metav1.Now().Rfc3339Copy()
		}
	}
	applied := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID}, Status: o.Status,
	}
	if written, err := i.requests.applyStatus(ctx, importStatusName, applied, more); !written {
		return err
	}
	i.requests.writer.cfg.Events.Transitions(applied, before.Status.Conditions, o.Status.Conditions)
	return nil
}
