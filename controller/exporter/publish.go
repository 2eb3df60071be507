package exporter

import (
	"context"
	"errors"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// A publisher writes the record and the slices of a service to the broker, as far as they differ from what is there.
//
// The slices of a record that exists are written even if the record cannot be. A new record is written after its slices. An export ends with one write of
// the inventory; slices and record are deleted after it. So the other members see an export appear and disappear as one change, and never a service
// without endpoints.
type publisher struct {
	member    *member.Cluster
	broker    *broker.Broker
	inventory *inventory
	entry     protocol.Entry // records and slices older than its from are written again, and slices older than its mark
	// forget drops what is remembered of the aggregate of a service: the broker may have been restored.
	forget func(types.NamespacedName, *mcsv1beta1.ServiceImport)
}

// publish writes what differs.
func (p publisher) publish(ctx context.Context, svc types.NamespacedName, r export.Result) error {
	record, existing := p.broker.Own(svc)
	if r.Record == nil {
		return p.withdraw(ctx, svc, record, existing)
	}
	p.inventory.set(svc, r.Record.Spec.ExportUID)
	p.entry, _ = p.broker.OwnEntry(svc)
	switch {
	case record == nil && !p.rejectedBefore(svc):
		return p.publishNew(ctx, svc, r, existing)
	case record == nil:
		// The broker may have lost slices: importers keep those that the record lists.
		if err := p.publishRecord(ctx, svc, r, nil, namesOf(r.Slices)); err != nil {
			return err
		}
	default:
		return p.publishSlices(ctx, r.Slices, existing, func(listed []string) error { return p.publishRecord(ctx, svc, r, record, listed) })
	}
	return p.publishSlices(ctx, r.Slices, existing, noRecord)
}

// noRecord is the argument record of publishSlices if no list has to be written.
func noRecord([]string) error { return nil }

// withdraw removes an export from the inventory, and then deletes its record and slices.
func (p publisher) withdraw(ctx context.Context, svc types.NamespacedName, record *v1alpha1.ExportedService, existing []*discoveryv1.EndpointSlice) error {
	if !p.inventory.set(svc, "") {
		return nil // the write of the inventory reconciles the export again
	}
	if record != nil {
		if err := p.broker.DeleteRecord(ctx, record); err != nil {
			return err
		}
	}
	return p.publishSlices(ctx, nil, existing, noRecord)
}

// publishNew writes the slices and then the record. A rejected slice does not stop the rest. If the record is rejected, the
// slices are deleted again: they would count against the quota.
func (p publisher) publishNew(
	ctx context.Context, svc types.NamespacedName, r export.Result, existing []*discoveryv1.EndpointSlice,
) error {
	sliceErr := p.publishSlices(ctx, r.Slices, existing, noRecord)
	if sliceErr != nil && member.Rejection(sliceErr) == "" {
		return sliceErr
	}
	_, on := p.broker.Own(svc)
	recordErr := p.publishRecord(ctx, svc, r, nil, namesOf(on))
	if member.Rejection(recordErr) != "" || apiserver.IsUnknownField(recordErr) {
		_, written := p.broker.Own(svc)
		recordErr = errors.Join(recordErr, p.publishSlices(ctx, nil, written, noRecord))
	}
	return errors.Join(recordErr, sliceErr)
}

// rejectedBefore reports whether the conditions of an export say that it was rejected: its record is then tried first, so that
// slices are not written in vain at each attempt.
func (p publisher) rejectedBefore(svc types.NamespacedName) bool {
	ready := p.readyBefore(svc)
	return ready != nil && ready.Reason == string(mcsv1beta1.ServiceExportReasonFailed)
}

// readyBefore returns the condition Ready of an export, or nil.
func (p publisher) readyBefore(svc types.NamespacedName) *metav1.Condition {
	exp := p.member.Export(svc)
	if exp == nil {
		return nil
	}
	return meta.FindStatusCondition(exp.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
}

// publishRecord writes a record. It lists the slices with these names, and wanted slices that the broker has lost and rejects: importers keep them.
func (p publisher) publishRecord(
	ctx context.Context, svc types.NamespacedName, r export.Result, record *v1alpha1.ExportedService, listed []string,
) error {
	hashes := make(map[string]bool)
	for _, name := range listed {
		hashes[apibroker.SliceHash(name)] = true
	}
	for _, w := range r.Slices {
		if hash := apibroker.SliceHash(w.Name); p.broker.HadSlice(w.Name) || record != nil && slices.Contains(record.Spec.Slices, hash) {
			hashes[hash] = true
		}
	}
	want := r.Record.DeepCopy()
	want.Spec.Slices = slices.Sorted(maps.Keys(hashes))
	if sameRecord(want, record) && !p.broker.OldRecord(record, p.entry.From) {
		return nil
	}
	if record == nil { // perhaps the broker was restored
		p.forget(svc, nil)
	}
	return p.broker.ApplyRecord(ctx, want)
}

// publishSlices writes slices that are new or lose no endpoint first, and deletes old ones last: an endpoint that moves from one slice to another is on
// the broker all the time. A slice that cannot be written or deleted does not stop the others; a broker that serves nothing does. record is called after all
// writes and before the deletions, with the slices that the broker has and that stay. Slices do not wait for a rejected record: endpoints change more
// often, and matter more.
func (p publisher) publishSlices(ctx context.Context, want, existing []*discoveryv1.EndpointSlice, record func(listed []string) error) error {
	unwanted := make(map[string]*discoveryv1.EndpointSlice, len(existing))
	for _, e := range existing {
		unwanted[e.Name] = e
	}
	has := maps.Clone(unwanted)
	named := func(name string) *discoveryv1.EndpointSlice { return has[name] }
	moves := merge.NewMoves(want, named)
	again, errs, err := p.writeSlices(ctx, merge.LosingLast(want, named), has, moves)
	if err != nil {
		return err
	}
	// Now that all are written, fewer endpoints may have to stay.
	_, more, err := p.writeSlices(ctx, again, has, moves)
	if err != nil {
		return err
	}
	errs = append(errs, more...)
	if slices.ContainsFunc(errs, func(err error) bool { return member.Rejection(err) == "" }) {
		return errors.Join(errs...) // the endpoints may be in an old slice alone, which the record lists, until the new one is written
	}
	for _, w := range want {
		delete(unwanted, w.Name)
	}
	deleted, _ := moves.Retired(slices.Collect(maps.Values(unwanted)))
	for _, d := range deleted {
		delete(has, d.Name)
	}
	if err := record(slices.Collect(maps.Keys(has))); member.Rejection(err) != "" {
		errs = append(errs, err)
	} else if err != nil {
		return errors.Join(append(errs, err)...) // the record still lists the slices to delete
	}
	for _, e := range existing {
		if unwanted[e.Name] == nil {
			continue
		}
		err := p.retire(ctx, e, moves)
		if err != nil && !isOfObject(err) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// namesOf returns the names of slices.
func namesOf(all []*discoveryv1.EndpointSlice) (names []string) {
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

// writeSlices writes slices one after the other, each with the endpoints that it has and that are missing elsewhere, and keeps what the broker has
// current, as that answers: its admission may take endpoints out. It returns the wanted slices that were written with more endpoints than they are to have,
// what failed for one slice alone, and what stops all.
func (p publisher) writeSlices(
	ctx context.Context, want []*discoveryv1.EndpointSlice, has map[string]*discoveryv1.EndpointSlice, moves *merge.Moves,
) (again []*discoveryv1.EndpointSlice, errs []error, _ error) {
	for _, w := range want {
		o := moves.Retained(w, has[w.Name])
		is, err := p.publishSlice(ctx, o, has[w.Name])
		if err != nil && !isOfObject(err) {
			return nil, nil, err
		} else if err != nil {
			errs = append(errs, err)
			continue
		}
		has[w.Name] = is
		moves.Wrote(w.Name, is)
		if o != w {
			again = append(again, w)
		}
	}
	return again, errs, nil
}

// retire deletes a slice that is not wanted any more, but for the endpoints in it that have moved to a slice that was rejected.
func (p publisher) retire(ctx context.Context, e *discoveryv1.EndpointSlice, moves *merge.Moves) error {
	deleted, trimmed := moves.Retired([]*discoveryv1.EndpointSlice{e})
	switch {
	case len(deleted) > 0:
		return p.broker.DeleteSlice(ctx, e)
	case len(trimmed) == 0:
		return nil
	default:
		_, err := p.broker.ApplySlice(ctx, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: e.Name, Labels: e.Labels, Annotations: e.Annotations},
			AddressType: e.AddressType, Ports: e.Ports, Endpoints: trimmed[0].Endpoints,
		})
		return err
	}
}

// isOfObject reports whether a request failed for its object alone: the API server answered, and not that it can serve nothing now.
func isOfObject(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && !apierrors.IsUnauthorized(err) && !apierrors.IsTooManyRequests(err) &&
		!apierrors.IsServiceUnavailable(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err)
}

// publishSlice writes one slice, and returns what the broker has then; existing is the slice of its name, nil if it does not exist.
func (p publisher) publishSlice(ctx context.Context, w, existing *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	if existing != nil && existing.AddressType != w.AddressType { // which cannot change
		if err := p.broker.DeleteSlice(ctx, existing); err != nil {
			return nil, err
		}
		existing = nil
	}
	if existing != nil && sameSlice(w, existing) && !p.broker.OldSlice(existing, max(p.entry.From, p.entry.Behind)) {
		return existing, nil
	}
	return p.broker.ApplySlice(ctx, w)
}

// upToDate reports whether publish has nothing to write.
func (p publisher) upToDate(svc types.NamespacedName, r export.Result) bool {
	record, existing := p.broker.Own(svc)
	if r.Record == nil {
		return p.inventory.lists(svc, "") && sameExport(r, record, existing)
	}
	entry, _ := p.broker.OwnEntry(svc)
	return p.inventory.lists(svc, r.Record.Spec.ExportUID) && sameExport(r, record, existing) && !p.broker.OldRecord(record, entry.From) &&
		!slices.ContainsFunc(existing, func(s *discoveryv1.EndpointSlice) bool { return p.broker.OldSlice(s, entry.From) })
}

// sameExport compares the wanted export with a record and slices, without stamps.
func sameExport(r export.Result, record *v1alpha1.ExportedService, existing []*discoveryv1.EndpointSlice) bool {
	if r.Record == nil {
		return record == nil && len(existing) == 0
	}
	return sameRecord(r.Record, record) && slices.EqualFunc(r.Slices, existing, func(w, e *discoveryv1.EndpointSlice) bool {
		return w.Name == e.Name && w.AddressType == e.AddressType && sameSlice(w, e)
	})
}

// sameRecord compares records without stamps; got may be nil.
func sameRecord(want, got *v1alpha1.ExportedService) bool {
	if got == nil || !hasLabels(want.Labels, got.Labels) {
		return false
	}
	spec := want.Spec
	spec.Stamp = got.Spec.Stamp
	return equality.Semantic.DeepEqual(spec, got.Spec)
}

// sameBesides is [sameRecord] without the list of slices, which lacks those that the broker rejects.
func sameBesides(want, got *v1alpha1.ExportedService) bool {
	if got == nil {
		return false
	}
	want = want.DeepCopy()
	want.Spec.Slices = got.Spec.Slices
	return sameRecord(want, got)
}

// sameSlice reports whether got is what want asks for. The annotation with the time of the change does not count alone: a pod
// that moved to another node changes nothing for other clusters.
func sameSlice(want, got *discoveryv1.EndpointSlice) bool {
	return hasLabels(want.Labels, got.Labels) && want.Annotations[apibroker.AnnotationExportUID] == got.Annotations[apibroker.AnnotationExportUID] &&
		maps.Equal(apibroker.TopologyOf(want.Labels), apibroker.TopologyOf(got.Labels)) &&
		equality.Semantic.DeepEqual(want.Endpoints, got.Endpoints) &&
		equality.Semantic.DeepEqual(want.Ports, got.Ports)
}

func hasLabels(want, got map[string]string) bool {
	for key, value := range want {
		if has, ok := got[key]; has != value || !ok {
			return false
		}
	}
	return true
}
