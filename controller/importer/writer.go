package importer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// maxRounds is how often a writer compares again. Three rounds are usual for a new service with a derived Service: the
// import, then what belongs to it, then those that need the addresses of the Service. The others are for objects that
// change meanwhile.
const maxRounds = 8

// A writer makes the objects of one imported service what a plan asks for. It serves one reconcile.
//
//	write: +--> compare (desired.Of, desired.Diff)      --> none left: done
//	       |        |                    \--> the status alone: writeStatus
//	       |        v
//	       +---- apply: deletions, import, derived Service, slices
//
// It decides; an [applier] writes, with a [derived] for the Service, and [requests] that know the existing objects. It
// does not repeat a change that the API server does not keep. Where clusters are selected, a [visibility] sets the
// order of the slices.
type writer struct {
	applier
	reported bool          // the rejections are
	notes    notes         // to be written with the import
	wait     time.Duration // until other clusters may be in use; 0 without a wait
}

func newWriter(cfg writerConfig, svc types.NamespacedName) *writer {
	return newWriterOf(cfg, svc, desired.Objects{
		Import: cfg.member.Import(svc), Service: cfg.member.Derived(svc), Slices: cfg.member.ImportedSlices(svc),
	})
}

// newWriterOf returns a writer for a service with these existing objects.
func newWriterOf(cfg writerConfig, svc types.NamespacedName, now desired.Objects) *writer {
	r := &requests{writerConfig: cfg, svc: svc, now: newObjects(now), asked: make(map[string]string)}
	return &writer{applier: applier{requests: r, derived: &derived{requests: r}}}
}

// write compares and writes until nothing is left to write. The status is written last, when it is true.
func (w *writer) write(ctx context.Context, p plan) error {
	if p.result.Import == nil {
		defer w.responses.remove(w.svc)
		defer w.choices.set(w.svc, choice{})
		defer w.overwritten.Forget(w.svc.String())
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
		case serviceStatus != nil && w.derived.mayWriteServiceStatus(serviceStatus):
			w.derived.failure = w.derived.writeServiceStatus(ctx, serviceStatus)
		case status != nil && !w.keptStatus(status):
			if err := w.writeStatus(ctx, status); err != nil {
				return err
			}
		default:
			w.chooseAgain()
			return w.derived.failure
		}
	}
	return fmt.Errorf("import %s: others change it as fast as it is written", w.svc)
}

// compare returns the changes to write now, and logs names that are taken.
func (w *writer) compare(p plan) desired.Changes {
	wanted, existing := w.desired(p, nil), w.now.Objects
	if existing.Import == nil && wanted.Import != nil {
		existing = desired.Objects{} // objects of an earlier import stay for now
	}
	c := desired.Diff(wanted, existing)
	if len(c.Foreign) > 0 {
		c = desired.Diff(w.desired(p, c.Foreign), existing)
	}
	for _, imp := range []*mcsv1beta1.ServiceImport{c.Create.Import, c.Update.Import} {
		if imp != nil {
			w.notes.annotate(imp)
		}
	}
	if w.foreign.Changed(w.svc, strings.Join(c.Foreign, ", ")) && len(c.Foreign) > 0 {
		w.log.Warningf("import %s: not ours, and left alone: %v", w.svc, c.Foreign)
	}
	return w.withoutKept(c)
}

// desired returns what should exist, as far as it is known now. Without an import, and beside an import that is not
// ours, there are no other objects.
func (w *writer) desired(p plan, taken []string) desired.Objects {
	c := p.cluster
	if c.ClusterIPs = w.derived.clusterIPs(); w.now.Service == nil && p.result.Routed() {
		c.ClusterIPs = nil // those of the import are not the Service's
	}
	imported := member.IsOurs(w.now.Import)
	c.Unrouted = w.derived.unrouted()
	o, rejected := desired.Of(p.result, c)
	if o.Import == nil {
		return o
	}
	if imported {
		w.report(rejected)
	}
	var enough notes
	w.notes, enough = newNotes(o.Import.Status.Clusters, p.shares, notesOf(w.now.Import))
	enough.annotate(o.Import)
	w.choose(p.prefers, p.prefers.consumer(o.Import, o.Service), o.Slices)
	o.Import.Status.Conditions = []metav1.Condition{readiness(p, o, taken, w.derived.failure)}
	switch {
	case !imported:
		o.Service, o.Slices = nil, nil
	case o.Service != nil && len(o.Import.Spec.IPs) == 0 && w.derived.failure == nil && len(taken) == 0:
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

// report reports, once, what a plan cannot make objects of.
func (w *writer) report(rejected []merge.Rejection) {
	if w.reported {
		return
	}
	w.reported = true
	for _, r := range rejected {
		w.rejections.Report(r)
	}
}

// choose hides the unused desired slices.
func (w *writer) choose(prefers preferences, c consumer, wanted []*discoveryv1.EndpointSlice) {
	if c == nothing {
		w.choices.set(w.svc, choice{})
		w.visibility, w.wait = visibility{}, 0
		return
	}
	w.visibility = visibilityOf(wanted)
	w.wait = w.choices.choose(w.svc, prefers, c, wanted, w.now.Objects)
}

// chooseAgain queues the service for the time when other clusters may be in use.
func (w *writer) chooseAgain() {
	if w.wait > 0 {
		w.retry(w.svc, w.wait)
	}
}

// importStatusName names the status of the import among the responses.
const importStatusName = "status of ServiceImport"

// keptStatus reports whether writing the status of the import is in vain.
func (w *writer) keptStatus(o *mcsv1beta1.ServiceImport) bool {
	return w.inVain(importStatusName, statusFingerprint(o), statusFingerprint(w.now.Import))
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
	if written, err := w.applyStatus(ctx, importStatusName, applied); !written {
		return err
	}
	w.events.Transitions(applied, was.Status.Conditions, o.Status.Conditions)
	return nil
}

// replaceSlices makes wanted the slices of some clusters in the import, and leaves everything else as it is, but for
// which clusters are in use: that follows from the preferences which the import has, and is decided once for all
// clusters.
func (w *writer) replaceSlices(ctx context.Context, clusters []string, wanted []*discoveryv1.EndpointSlice) error {
	stays := func(e *discoveryv1.EndpointSlice) bool {
		return !slices.Contains(clusters, e.Labels[mcsv1beta1.LabelSourceCluster])
	}
	prefers := writtenPreferences(w.now.Import)
	if c := prefers.consumer(w.now.Import, w.now.Service); c != nothing {
		for _, e := range w.now.Slices {
			if desired.IsImported(e) && stays(e) {
				wanted = append(wanted, desired.Kept(e))
			}
		}
		w.choose(prefers, c, wanted)
		defer w.chooseAgain()
	} else {
		w.now.setSlices(slices.DeleteFunc(w.now.Slices, stays))
	}
	c := desired.Diff(desired.Objects{Slices: wanted}, desired.Objects{Slices: w.now.Slices})
	err := w.apply(ctx, w.withoutKept(c))
	if errors.Is(err, errNamespace) {
		return nil
	}
	return err
}
