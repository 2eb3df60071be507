package cause

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/selection"
)

// Selected is which of the clusters of an import its traffic goes to.
type Selected struct {
	InUse  []string // sorted, as all lists
	Hidden []string // all others that have slices
	// Since is the time of the last write of a slice by the controller: nothing has been hidden or shown since. Zero if
	// unknown.
	Since time.Time
}

// SelectedBy returns what imported slices of one service show (docs/spec/selection.md 4).
func SelectedBy(imported []*discoveryv1.EndpointSlice) Selected {
	var s Selected
	for _, e := range imported {
		id := sourceOf(e)
		if _, hidden := e.Labels[corev1.IsHeadlessService]; hidden {
			s.Hidden = append(s.Hidden, id)
		} else {
			s.InUse = append(s.InUse, id)
		}
		for _, f := range e.ManagedFields {
			if f.Manager == wellknown.ManagerImporter && f.Time != nil && f.Time.After(s.Since) {
				s.Since = f.Time.Time
			}
		}
	}
	slices.Sort(s.InUse)
	s.InUse = slices.Compact(s.InUse)
	s.Hidden = slices.DeleteFunc(s.Hidden, func(id string) bool { return slices.Contains(s.InUse, id) })
	slices.Sort(s.Hidden)
	s.Hidden = slices.Compact(s.Hidden)
	return s
}

// Preferred returns what the annotations of an import say that its traffic prefers, as one phrase: "east, then east
// north"; "" if nothing.
func Preferred(imp *mcsv1beta1.ServiceImport) string {
	var ranks []string
	for _, clusters := range selection.ParseResults(imp.Annotations[broker.AnnotationResults]) {
		if len(clusters) == 0 {
			clusters = []string{"no cluster"}
		}
		ranks = append(ranks, strings.Join(clusters, " "))
	}
	return strings.Join(ranks, ", then ")
}

// checkSelection shows which clusters traffic goes to, if the import prefers some.
func checkSelection(w *walk) {
	imp, all := w.in.Here.Import, w.in.Here.Slices
	if imp.State != Present || !isOurs(imp.Value) || all.State != Present {
		return
	}
	preferred := Preferred(imp.Value.Object)
	if preferred == "" {
		return
	}
	s := SelectedBy(all.Value)
	since := ""
	if !s.Since.IsZero() {
		since = ", for " + max(w.in.Now.Sub(s.Since), 0).Round(time.Second).String() + " at least"
	}
	w.ok("selection", "in use [%s], not in use [%s]%s; preferred by %s: %s", strings.Join(s.InUse, " "),
		strings.Join(s.Hidden, " "), since,
		preferredBy(w, imp.Value.Object), preferred)
}

// preferredBy names the author of the preference.
func preferredBy(w *walk, imp *mcsv1beta1.ServiceImport) string {
	if ns := w.in.Here.Namespace; ns.State == Present {
		if _, given, err := selection.FromAnnotations(ns.Value.Annotations); given && err == nil {
			return "annotations of Namespace " + w.target.Namespace
		}
	}
	for _, e := range w.exporters {
		if e.isExporting() && len(e.record.Spec.ClusterSelectors) > 0 &&
			selection.FromRecord(e.record.Spec.ClusterSelectors).String() == imp.Annotations[broker.AnnotationSelectors] {
			return "the export of " + e.id
		}
	}
	return "the option affinity, or an export that was not read"
}
