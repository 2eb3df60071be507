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
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// A publisher writes the changed record and slices of a service to the broker. [protocol.Next] decides the order: the
// other members see an export appear and disappear as one change, and never a service without endpoints.
type publisher struct {
	member    *member.Cluster
	own       *broker.OwnObjects
	inventory *inventory // writes the entries
	// forget drops the remembered aggregate of a service: the broker may have been restored.
	forget func(types.NamespacedName, *mcsv1beta1.ServiceImport)
}

// publish writes the difference. A rejection does not stop the rest: endpoints change more often than the record, and
// matter more.
func (p publisher) publish(ctx context.Context, svc types.NamespacedName, r export.Result) error {
	a := p.attempt(svc, r)
	p.inventory.set(svc, a.uid)
	if r.Record != nil && a.onBroker == nil && p.rejectedBefore(svc) {
		// The broker may have lost slices: importers keep those that the record lists.
		want, _ := a.next()
		if err := a.writeRecord(ctx, want.Slices); err != nil {
			return err
		}
	}
	var errs []error
	for {
		want, next := a.next()
		// the write reconciles the export again
		if len(next) == 0 || next[0].Kind == protocol.KindEntry && !p.inventory.set(svc, a.uid) {
			return errors.Join(errs...)
		}
		failed := a.write(ctx, want, next)
		errs = append(errs, failed...)
		// Until a new slice is written, its endpoints may be in an old one alone, which the record lists.
		if slices.ContainsFunc(failed, func(err error) bool { return !isRejection(err) }) {
			return errors.Join(errs...)
		}
	}
}

// upToDate reports whether publish has nothing to write.
func (p publisher) upToDate(svc types.NamespacedName, r export.Result) bool {
	_, next := p.attempt(svc, r).next()
	return len(next) == 0
}

// An attempt makes the broker have an export, once.
type attempt struct {
	publisher
	svc    types.NamespacedName
	uid    string                                // of the ServiceExport; "" if nothing is exported
	record *v1alpha1.ExportedService             // wanted, or nil
	order  []*discoveryv1.EndpointSlice          // wanted, in the order of their writes
	wanted map[string]*discoveryv1.EndpointSlice // by name
	moves  *desired.Moves                        // to the wanted slices
	same   map[*discoveryv1.EndpointSlice]bool   // on the broker, and as wanted
	tried  map[protocol.Write]bool
	again  map[protocol.Write]bool // slices that were written

	// State of the broker.
	onBroker *v1alpha1.ExportedService
	existing []*discoveryv1.EndpointSlice
	byName   map[string]*discoveryv1.EndpointSlice // by name
}

func (p publisher) attempt(svc types.NamespacedName, r export.Result) *attempt {
	a := &attempt{
		publisher: p, svc: svc, record: r.Record,
		same: make(map[*discoveryv1.EndpointSlice]bool), tried: make(map[protocol.Write]bool),
		again: make(map[protocol.Write]bool),
	}
	if r.Record != nil {
		a.uid = r.Record.Spec.ExportUID
	}
	a.read()
	a.want(r.Slices)
	return a
}

func (a *attempt) read() {
	a.onBroker, a.existing = a.own.Objects(a.svc)
	a.byName = slicesByName(a.existing)
}

// want sets the wanted slices.
func (a *attempt) want(all []*discoveryv1.EndpointSlice) {
	named := func(name string) *discoveryv1.EndpointSlice { return a.byName[name] }
	a.order, a.wanted, a.moves = desired.LosingLast(all, named), slicesByName(all), desired.NewMoves(all, named)
}

// next returns the wanted export, with the slices that the broker has, had or may take, and the next writes.
func (a *attempt) next() (want protocol.Export, next []protocol.Write) {
	a.read()
	want = protocol.Export{UID: types.UID(a.uid), SliceRight: a.right, Tried: a.tried}
	want.RecordRight = a.record != nil && sameRecord(a.record, a.onBroker)
	for _, w := range a.order {
		rejected := a.byName[w.Name] == nil && a.tried[protocol.Write{Kind: protocol.KindSlice, Slice: w.Name}]
		if !rejected || a.own.HadSlice(w.Name) || a.listed(w.Name) { // importers keep what the broker has lost
			want.Slices = append(want.Slices, w.Name)
		}
	}
	for _, e := range a.existing {
		deleted, _ := a.moves.DivideUnwanted([]*discoveryv1.EndpointSlice{e})
		if a.wanted[e.Name] == nil && len(deleted) == 0 {
			want.Slices = append(want.Slices, e.Name)
		}
	}
	have := a.own.Service(a.svc, a.onBroker, a.existing)
	if a.uid == "" && a.inventory.lists(a.svc, "") {
		have.Entry.Stamp = max(1, have.Entry.Stamp) // of a part that was never written, too
	}
	return want, protocol.Next(want, have)
}

// listed reports whether the broker's record lists a slice.
func (a *attempt) listed(name string) bool {
	return a.onBroker != nil && slices.Contains(a.onBroker.Spec.Slices, apibroker.SliceHash(name))
}

// target returns what a slice on the broker is to be now, itself if it stays as it is: endpoints that have moved stay
// until they are elsewhere.
func (a *attempt) target(name string) *discoveryv1.EndpointSlice {
	e := a.byName[name]
	if w := a.wanted[name]; w != nil {
		return a.moves.WithMissing(w, e)
	}
	deleted, trimmed := a.moves.DivideUnwanted([]*discoveryv1.EndpointSlice{e})
	if len(deleted) > 0 {
		return e
	}
	endpoints := e.Endpoints
	if len(trimmed) > 0 {
		endpoints = trimmed[0].Endpoints
	}
	return a.with(e, endpoints)
}

func (a *attempt) right(name string) bool {
	e := a.byName[name]
	if a.same[e] {
		return true
	}
	current := a.target(name)
	same := sameSlice(current, e)
	a.same[e] = same && current == a.wanted[name] // it has nothing that may go later
	return same
}

// write does writes of one stage, and returns what failed. A broker that serves nothing stops it.
func (a *attempt) write(ctx context.Context, want protocol.Export, next []protocol.Write) (failed []error) {
	for _, x := range next {
		a.tried[x] = true
		var err error
		switch {
		case x.Kind == protocol.KindEntry:
		case x.Kind == protocol.KindRecord && x.Delete:
			err = a.own.DeleteRecord(ctx, a.onBroker)
		case x.Kind == protocol.KindRecord:
			err = a.writeRecord(ctx, want.Slices)
		case x.Delete:
			err = a.deleteSlice(ctx, a.byName[x.Slice])
		default:
			err = a.writeSlice(ctx, x)
		}
		if err != nil {
			failed = append(failed, err)
		}
		if err != nil && !isOfObject(err) {
			break
		}
	}
	return failed
}

// writeRecord writes a record that lists the slices with these names. If a new one is rejected, its slices are not
// wanted: they would count against the quota.
func (a *attempt) writeRecord(ctx context.Context, listed []string) error {
	want := a.record.DeepCopy()
	want.Spec.Slices = nil
	for _, name := range slices.Sorted(slices.Values(listed)) {
		want.Spec.Slices = append(want.Spec.Slices, apibroker.SliceHash(name))
	}
	if a.onBroker == nil { // perhaps the broker was restored
		a.forget(a.svc, nil)
	}
	err := a.own.ApplyRecord(ctx, want)
	if a.onBroker == nil && isRejection(err) {
		a.want(nil)
	}
	return err
}

// deleteSlice deletes a slice. While a record that could not be written lists it, importers keep a slice that is gone:
// its endpoints are deleted alone.
func (a *attempt) deleteSlice(ctx context.Context, e *discoveryv1.EndpointSlice) error {
	switch {
	case a.record == nil || !a.listed(e.Name):
		return a.own.DeleteSlice(ctx, e)
	case len(e.Endpoints) == 0:
		return nil
	}
	_, err := a.own.ApplySlice(ctx, a.with(e, []discoveryv1.Endpoint{}))
	return err
}

// with returns a slice on the broker, to be written for this export with other endpoints.
func (a *attempt) with(e *discoveryv1.EndpointSlice, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: e.Name, Labels: e.Labels, Annotations: maps.Clone(e.Annotations)},
		AddressType: e.AddressType, Ports: e.Ports, Endpoints: endpoints,
	}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, apibroker.AnnotationExportUID, a.uid)
	return s
}

// writeSlice writes a slice, and once more if it has endpoints that may go later. The admission of the broker may take
// some out.
func (a *attempt) writeSlice(ctx context.Context, x protocol.Write) error {
	existing, current := a.byName[x.Slice], a.target(x.Slice)
	if current == existing {
		return nil
	}
	if existing != nil && existing.AddressType != current.AddressType { // which cannot change
		if err := a.own.DeleteSlice(ctx, existing); err != nil {
			return err
		}
	}
	found, err := a.own.ApplySlice(ctx, current)
	if err != nil {
		return err
	}
	a.moves.Record(current.Name, found)
	a.tried[x], a.again[x] = current == a.wanted[x.Slice] || a.again[x], true
	return nil
}

func slicesByName(all []*discoveryv1.EndpointSlice) map[string]*discoveryv1.EndpointSlice {
	m := make(map[string]*discoveryv1.EndpointSlice, len(all))
	for _, s := range all {
		m[s.Name] = s
	}
	return m
}

// rejectedBefore reports whether the conditions of an export have a rejection: its record is then tried first, so that
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

// isRejection reports whether the broker will not take a write as it is.
func isRejection(err error) bool { return member.Rejection(err) != "" || apiserver.IsUnknownField(err) }

// isOfObject reports whether a request failed for its object alone: the API server answered, and not that it can serve
// nothing now.
func isOfObject(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && !apierrors.IsUnauthorized(err) && !apierrors.IsTooManyRequests(err) &&
		!apierrors.IsServiceUnavailable(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err)
}

// sameRecord compares records without stamps and lists of slices; got may be nil.
func sameRecord(want, got *v1alpha1.ExportedService) bool {
	if got == nil || !hasLabels(want.Labels, got.Labels) {
		return false
	}
	spec := want.Spec
	spec.Stamp, spec.Slices = got.Spec.Stamp, got.Spec.Slices
	return equality.Semantic.DeepEqual(spec, got.Spec)
}

// sameSlice reports whether got is what want asks for. The annotation with the time of the change does not count alone:
// a pod that moved to another node changes nothing for other clusters.
func sameSlice(want, got *discoveryv1.EndpointSlice) bool {
	return want.Name == got.Name && want.AddressType == got.AddressType && hasLabels(want.Labels, got.Labels) &&
		want.Annotations[apibroker.AnnotationExportUID] == got.Annotations[apibroker.AnnotationExportUID] &&
		maps.Equal(apibroker.TopologyOf(want.Labels), apibroker.TopologyOf(got.Labels)) &&
		equality.Semantic.DeepEqual(want.Endpoints, got.Endpoints) &&
		equality.Semantic.DeepEqual(want.Ports, got.Ports)
}

func hasLabels(want, got map[string]string) bool {
	for key, value := range want {
		if present, ok := got[key]; present != value || !ok {
			return false
		}
	}
	return true
}
