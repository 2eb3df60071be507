package importer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/importer/write"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// maxRounds is how often a writer compares again. Three rounds are usual for a new service with a derived Service: the
// import, then what belongs to it, then those that need the addresses of the Service. The others are for objects that
// change meanwhile.
const maxRounds = 8

// A writerConfig is what all writers share.
type writerConfig struct {
	writes     *write.Writer
	rejections *Rejections
	foreign    *logging.OnChangeOf[types.NamespacedName, string] // names that objects have which are not ours
	log        logging.Logger
	lacks      []string // the fields of ServiceImport that the API server does not have
	choices    *choices
	retry      func(types.NamespacedName, time.Duration)
}

// A writer makes the objects of one imported service what a plan asks for. It serves one reconcile.
//
//	write: +--> compare (desired.ObjectsOf, desired.Diff)      --> none left: done
//	       |        v
//	       +---- [write.Import.Apply]: deletions, import, derived Service, slices; then the status alone
type writer struct {
	cfg      writerConfig
	svc      types.NamespacedName
	written  *write.Import
	reported bool          // the rejections are
	notes    notes         // to be written with the import
	wait     time.Duration // until other clusters may be in use; 0 without a wait
}

func newWriter(cfg writerConfig, svc types.NamespacedName) *writer {
	return &writer{cfg: cfg, svc: svc, written: cfg.writes.Import(svc)}
}

// write compares and writes until nothing is left to write.
func (w *writer) write(ctx context.Context, p plan) error {
	if p.result.Import == nil {
		defer w.cfg.writes.Forget(w.svc)
		defer w.cfg.choices.set(w.svc, choice{}, false)
	}
	for range maxRounds {
		wrote, err := w.written.Apply(ctx, w.compare(p))
		if !wrote {
			w.chooseAgain()
		}
		if !wrote || err != nil {
			return err
		}
	}
	return fmt.Errorf("import %s: others change it as fast as it is written", w.svc)
}

// compare returns the changes, and logs names of objects that are not ours.
func (w *writer) compare(p plan) desired.Changes {
	wanted, existing := w.desired(p, nil), w.written.Objects()
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
	if w.cfg.foreign.Changed(w.svc, strings.Join(c.Foreign, ", ")) && len(c.Foreign) > 0 {
		w.cfg.log.Warningf("import %s: not ours, and left alone: %v", w.svc, c.Foreign)
	}
	return c
}

// desired returns what should exist, as far as it is known now. Without an import, and beside an import that is not
// ours, there are no other objects.
func (w *writer) desired(p plan, foreign []string) desired.Objects {
	c, existing := p.cluster, w.written.Objects()
	if c.ClusterIPs = w.written.ClusterIPs(); existing.Service == nil && p.result.Routed() {
		c.ClusterIPs = nil // those of the import are not the Service's
	}
	imported := member.IsOurs(existing.Import)
	c.Unrouted = w.written.Unrouted()
	o, rejected := desired.ObjectsOf(p.result, c)
	if o.Import == nil {
		return o
	}
	if imported {
		w.report(rejected)
	}
	var enough notes
	w.notes, enough = newNotes(o.Import.Status.Clusters, p.shares, notesOf(existing.Import))
	enough.annotate(o.Import)
	w.choose(p.prefers, p.prefers.consumer(o.Import, o.Service), o.Slices)
	o.Import.Status.Conditions = []metav1.Condition{readiness(p, o, foreign, w.written.Failure())}
	switch {
	case !imported:
		o.Service, o.Slices = nil, nil
	case o.Service != nil && len(o.Import.Spec.IPs) == 0 && w.written.Failure() == nil && len(foreign) == 0:
		// For a moment DNS would return the endpoints of an import that has no address yet.
		o.Slices = existing.Slices
	}
	o.Import = w.expressible(o.Import)
	return o
}

// expressible returns an import without the fields that the API server does not have (docs/spec/controller.md 5.3).
func (w *writer) expressible(imp *mcsv1beta1.ServiceImport) *mcsv1beta1.ServiceImport {
	if len(w.cfg.lacks) == 0 {
		return imp
	}
	less, err := crd.Without(imp, w.cfg.lacks)
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
		w.cfg.rejections.Report(r)
	}
}

// choose hides the unused desired slices.
func (w *writer) choose(prefers preferences, c consumer, wanted []*discoveryv1.EndpointSlice) {
	if c == nothing {
		w.cfg.choices.set(w.svc, choice{}, false)
		w.written.Show(nil)
		w.wait = 0
		return
	}
	w.written.Show(wanted)
	w.wait = w.cfg.choices.choose(w.svc, prefers, c, wanted, w.written.Objects())
}

// chooseAgain queues the service for the time when other clusters may be in use.
func (w *writer) chooseAgain() {
	if w.wait > 0 {
		w.cfg.retry(w.svc, w.wait)
	}
}

// replaceSlices makes wanted the slices of some clusters in the import, and leaves everything else as it is, but for
// which clusters are in use: that follows from the preferences which the import has, and is decided once for all
// clusters.
func (w *writer) replaceSlices(ctx context.Context, clusters []string, wanted []*discoveryv1.EndpointSlice) error {
	others := func(e *discoveryv1.EndpointSlice) bool {
		return !slices.Contains(clusters, e.Labels[mcsv1beta1.LabelSourceCluster])
	}
	existing := w.written.Objects()
	prefers := writtenPreferences(existing.Import)
	if c := prefers.consumer(existing.Import, existing.Service); c != nothing {
		for _, e := range existing.Slices {
			if desired.IsImported(e) && others(e) {
				wanted = append(wanted, desired.ShownCopy(e))
			}
		}
		w.choose(prefers, c, wanted)
		defer w.chooseAgain()
	} else {
		w.written.Ignore(others)
	}
	c := desired.Diff(desired.Objects{Slices: wanted}, desired.Objects{Slices: w.written.Objects().Slices})
	_, err := w.written.Apply(ctx, c)
	return err
}
