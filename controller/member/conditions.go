package member

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// maxMessage is the limit of the CRDs of the MCS API for the message of a condition, in octets.
const maxMessage = 32768

// Conditions writes conditions of ServiceExports and records an Event for each transition.
//
// Two parts of the controller write conditions of one ServiceExport, each with its own field manager: the exporter
// Valid and Ready, the importer Conflict. Neither touches those of the other, nor those that someone else wrote.
//
// Someone else may overwrite ours, such as another implementation of the MCS API: each attempt then waits twice as long
// as the one before.
type Conditions struct {
	Cluster     *Cluster
	Events      *Events
	overwritten *Overwritten
	// whether the right is missing to write the annotation of [Conditions.SetExportedTo]
	forbidden *logging.OnChange[bool]
	log       logging.Logger
}

// NewConditions returns Conditions for the cluster.
func NewConditions(c *Cluster, e *Events, log logging.Logger) Conditions {
	return Conditions{Cluster: c, Events: e, log: log, overwritten: &Overwritten{}, forbidden: &logging.OnChange[bool]{}}
}

// Set makes want all the conditions of exp that manager owns (docs/spec/controller.md 6), and clusters, sorted, its
// status.clusters if the CRD has that (docs/spec/controller.md 3.8). exp is as it was read; nothing given is changed.
// Set writes nothing if exp has that status already. If someone else overwrites it, or other members change clusters
// often, it writes nothing either, and returns when to try again.
func (c Conditions) Set(ctx context.Context, exp *mcsv1beta1.ServiceExport, manager string, want []metav1.Condition,
	clusters []string) (wait time.Duration, err error) {
	now := time.Now()
	owned := ownedConditions(exp.ManagedFields, manager)
	want = slices.Concat(want, sharedConditions(exp, manager, owned, want))
	next := nextConditions(exp.Status.Conditions, want, metav1.NewTime(now).Rfc3339Copy())
	if !c.Cluster.exportClusters {
		clusters = nil
	}
	differ := conditionsDiffer(exp.Status.Conditions, owned, next)
	if !differ && (manager != wellknown.ManagerExporter || slices.Equal(clusters, ReachedClusters(exp))) {
		return 0, nil
	}
	key, asked := manager+" "+KeyOf(exp).String(), fingerprint(exp, want, clusters)
	wait = c.overwritten.Wait(key, asked, now)
	if !differ {
		wait = max(wait, c.overwritten.WaitChange(key, now))
	}
	if wait > 0 {
		return wait, nil
	}
	applied := &mcsv1beta1.ServiceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: exp.Namespace, Name: exp.Name, UID: exp.UID},
		Status:     mcsv1beta1.ServiceExportStatus{Conditions: next},
	}
	switch err := c.Cluster.Client().ApplyStatus(ctx, applied, manager, moreOf(clusters)); {
	case apierrors.IsNotFound(err): // deleted a moment ago
		return 0, nil
	case err != nil:
		return 0, err
	}
	c.Cluster.Wrote(applied)
	c.Events.Transitions(exp, exp.Status.Conditions, next)
	if c.overwritten.Wrote(key, asked, now) {
		c.log.Warningf("export %s: someone else overwrites its conditions (%s); they are written again ever more rarely",
			KeyOf(exp), strings.Join(OtherWriters(exp), ", "))
	}
	return 0, nil
}

// moreOf returns the field status.clusters, which the Go type lacks.
func moreOf(clusters []string) map[string]any {
	if len(clusters) == 0 {
		return nil
	}
	var items []any
	for _, id := range clusters {
		items = append(items, map[string]any{"cluster": id})
	}
	return map[string]any{"clusters": items}
}

// Forget drops the state of a deleted export.
func (c Conditions) Forget(svc types.NamespacedName) {
	for _, what := range []string{wellknown.ManagerExporter, wellknown.ManagerImporter, apibroker.AnnotationExportedTo} {
		c.overwritten.Forget(what + " " + svc.String())
	}
}

// OtherWriters returns the field managers that have written conditions of exp and are not ours, sorted.
func OtherWriters(exp *mcsv1beta1.ServiceExport) []string {
	var others []string
	for _, e := range exp.ManagedFields {
		if !strings.HasPrefix(e.Manager, wellknown.ManagerPrefix) && len(conditionsIn(e)) > 0 {
			others = append(others, e.Manager)
		}
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// nextConditions returns want with transition times: now where the status differs from the existing condition, else its
// time.
func nextConditions(existing, want []metav1.Condition, current metav1.Time) []metav1.Condition {
	next := slices.Clone(want)
	for i := range next {
		c := &next[i]
		c.Message = cutMessage(c.Message, maxMessage)
		c.LastTransitionTime = current
		if before := meta.FindStatusCondition(existing, c.Type); before != nil && before.Status == c.Status &&
			!before.LastTransitionTime.IsZero() {
			c.LastTransitionTime = before.LastTransitionTime
		}
	}
	return next
}

// conditionsDiffer reports whether a wanted condition is missing or different, or an owned one exists that is not
// wanted.
func conditionsDiffer(existing []metav1.Condition, owned []string, want []metav1.Condition) bool {
	for i := range want {
		before := meta.FindStatusCondition(existing, want[i].Type)
		if before == nil || !before.LastTransitionTime.Equal(&want[i].LastTransitionTime) {
			return true
		}
		same := *before
		same.LastTransitionTime = want[i].LastTransitionTime // equal times may have different zones
		if same != want[i] {
			return true
		}
	}
	return slices.ContainsFunc(owned, func(typ string) bool {
		return meta.FindStatusCondition(want, typ) == nil && meta.FindStatusCondition(existing, typ) != nil
	})
}

// ownedConditions returns the types of the conditions that manager has set by server-side apply, sorted. It decodes the
// one level that it needs; fieldpath.Set of structured-merge-diff builds the tree of all fields (see ownedKeys in
// package desired).
func ownedConditions(entries []metav1.ManagedFieldsEntry, manager string) []string {
	var owned []string
	for _, e := range entries {
		if e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply {
			owned = append(owned, conditionsIn(e)...)
		}
	}
	slices.Sort(owned)
	return slices.Compact(owned)
}

// requiredFields are those without which the API server rejects a condition, as managed fields name them.
var requiredFields = []string{"f:type", "f:status", "f:reason", "f:message", "f:lastTransitionTime"}

// sharedConditions returns the conditions that manager owns, no longer wants, and cannot give up, since others own a
// part of them, be it the key alone. That part would stay, and the API server would reject the export for it, at each
// attempt. They stay unchanged.
func sharedConditions(exp *mcsv1beta1.ServiceExport, manager string, owned []string,
	want []metav1.Condition) []metav1.Condition {
	var shared []metav1.Condition
	for _, typ := range owned {
		before := meta.FindStatusCondition(exp.Status.Conditions, typ)
		if before == nil || meta.FindStatusCondition(want, typ) != nil {
			continue
		}
		theirs, own := make(map[string]bool), false
		for _, e := range exp.ManagedFields {
			if e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply {
				continue
			}
			fields, found := conditionFields(e)[typ]
			own = own || found
			for field := range fields {
				theirs[field] = true
			}
		}
		if own && slices.ContainsFunc(requiredFields, func(field string) bool { return !theirs[field] }) {
			shared = append(shared, *before)
		}
	}
	return shared
}

// ReachedClusters returns the status.clusters that the exporter has set, sorted. The Go type lacks the field.
func ReachedClusters(exp *mcsv1beta1.ServiceExport) (ids []string) {
	for _, e := range exp.ManagedFields {
		var fields struct {
			Status struct {
				Clusters map[string]struct{} `json:"f:clusters"`
			} `json:"f:status"`
		}
		if e.Manager != wellknown.ManagerExporter || e.Operation != metav1.ManagedFieldsOperationApply ||
			e.FieldsV1 == nil || json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for key := range fields.Status.Clusters {
			var item mcsv1beta1.ClusterStatus
			if text, ok := strings.CutPrefix(key, "k:"); ok && json.Unmarshal([]byte(text), &item) == nil {
				ids = append(ids, item.Cluster)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// conditionsIn returns the types of the conditions that the manager of an entry has set.
func conditionsIn(e metav1.ManagedFieldsEntry) []string {
	return slices.Collect(maps.Keys(conditionFields(e)))
}

// conditionFields returns the fields of each condition that the manager of an entry has set, by type.
func conditionFields(e metav1.ManagedFieldsEntry) map[string]map[string]json.RawMessage {
	var fields struct {
		Status struct {
			Conditions map[string]map[string]json.RawMessage `json:"f:conditions"`
		} `json:"f:status"`
	}
	if e.FieldsV1 == nil || json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil {
		return nil
	}
	byType := make(map[string]map[string]json.RawMessage)
	for key, set := range fields.Status.Conditions {
		var item struct {
			Type string `json:"type"`
		}
		if text, ok := strings.CutPrefix(key, "k:"); ok && json.Unmarshal([]byte(text), &item) == nil {
			byType[item.Type] = set
		}
	}
	return byType
}

// WithLegacy returns Valid and Ready, and both under the names that the first version of KEP-1645 gave them.
func WithLegacy(valid, ready metav1.Condition) []metav1.Condition {
	initialized, exported := valid, ready
	initialized.Type, exported.Type = legacyInitialized, legacyExported
	return []metav1.Condition{valid, ready, initialized, exported}
}

// SetExportedTo sets the annotation of exp with the clusters that it reaches, or removes it if value is "". The status
// of mcs-api v0.5 has no field for that. It does not write an equal value. If someone else overwrites it, or the right
// to write it is missing, as in a member with old rights, it returns when to try again: nothing else depends on it.
func (c Conditions) SetExportedTo(ctx context.Context, exp *mcsv1beta1.ServiceExport,
	value string) (wait time.Duration, err error) {
	if present, ok := exp.Annotations[apibroker.AnnotationExportedTo]; present == value && ok == (value != "") {
		return 0, nil
	}
	now := time.Now()
	key, asked := apibroker.AnnotationExportedTo+" "+KeyOf(exp).String(), string(exp.UID)+" "+value
	if wait := max(c.overwritten.Wait(key, asked, now), c.overwritten.WaitChange(key, now)); wait > 0 {
		return wait, nil
	}
	patched := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: exp.Namespace, Name: exp.Name}}
	switch err := c.Cluster.Client().Patch(ctx, patched, exportedToPatch(exp, value), wellknown.ManagerExporter); {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // deleted a moment ago, or made anew
		return 0, nil
	case apierrors.IsForbidden(err):
		c.overwritten.Wrote(key, asked, now)
		if c.forbidden.Changed(true) {
			c.log.Warningf("annotation %s: %v; apply the rights of this version", apibroker.AnnotationExportedTo, err)
		}
		return c.overwritten.Wait(key, asked, now), nil
	case err != nil:
		return 0, err
	}
	c.overwritten.Wrote(key, asked, now)
	c.forbidden.Changed(false)
	c.Cluster.Wrote(patched)
	return 0, nil
}

// exportedToPatch is a JSON merge patch for the export that was read.
func exportedToPatch(exp *mcsv1beta1.ServiceExport, value string) []byte {
	annotations := map[string]*string{apibroker.AnnotationExportedTo: nil}
	if value != "" {
		annotations[apibroker.AnnotationExportedTo] = &value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": exp.UID, "annotations": annotations}})
	if err != nil {
		panic("member: an annotation is no JSON: " + err.Error())
	}
	return patch
}
