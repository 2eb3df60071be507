package member

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// maxMessage is the limit of the CRDs of the MCS API for the message of a condition, in octets.
const maxMessage = 32768

// Conditions writes conditions of ServiceExports and records an Event for each transition.
//
// Two parts of the controller write conditions of one ServiceExport, each with its own field manager: the exporter Valid and
// Ready, the importer Conflict. Neither touches those of the other, nor those that someone else wrote.
type Conditions struct {
	Cluster *Cluster
	Events  *Events
}

// Set makes want all the conditions of exp that manager owns (docs/spec/controller.md 6). exp is as it was read; neither exp
// nor want is changed. Set writes nothing if exp has these conditions already.
func (c Conditions) Set(ctx context.Context, exp *mcsv1beta1.ServiceExport, manager string, want []metav1.Condition) error {
	next := nextConditions(exp.Status.Conditions, want, metav1.Now().Rfc3339Copy())
	owned := ownedConditions(exp.ManagedFields, manager)
	if !conditionsDiffer(exp.Status.Conditions, owned, next) {
		return nil
	}
	applied := &mcsv1beta1.ServiceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: exp.Namespace, Name: exp.Name, UID: exp.UID},
		Status:     mcsv1beta1.ServiceExportStatus{Conditions: next},
	}
	err := c.Cluster.Client().Apply(ctx, applied, manager, "status")
	switch {
	case apierrors.IsNotFound(err): // deleted a moment ago
		return nil
	case err != nil:
		return err
	}
	c.Cluster.Wrote(applied)
	c.Events.Transitions(exp, exp.Status.Conditions, next)
	return nil
}

// nextConditions returns want with transition times: now where the status differs from the existing condition, else its time.
func nextConditions(existing, want []metav1.Condition, now metav1.Time) []metav1.Condition {
	next := slices.Clone(want)
	for i := range next {
		c := &next[i]
		c.Message = CutText(c.Message, maxMessage)
		c.LastTransitionTime = now
		if was := meta.FindStatusCondition(existing, c.Type); was != nil && was.Status == c.Status && !was.LastTransitionTime.IsZero() {
			c.LastTransitionTime = was.LastTransitionTime
		}
	}
	return next
}

// conditionsDiffer reports whether a wanted condition is missing or different, or an owned one exists that is not wanted.
func conditionsDiffer(existing []metav1.Condition, owned []string, want []metav1.Condition) bool {
	for i := range want {
		was := meta.FindStatusCondition(existing, want[i].Type)
		if was == nil || !was.LastTransitionTime.Equal(&want[i].LastTransitionTime) {
			return true
		}
		same := *was
		same.LastTransitionTime = want[i].LastTransitionTime // equal times may have different zones
		if same != want[i] {
			return true
		}
	}
	return slices.ContainsFunc(owned, func(typ string) bool {
		return meta.FindStatusCondition(want, typ) == nil && meta.FindStatusCondition(existing, typ) != nil
	})
}

// ownedConditions returns the types of the conditions that manager has set by server-side apply, sorted. It decodes the one
// level that it needs; fieldpath.Set of structured-merge-diff builds the tree of all fields (see ownedKeys in package merge).
func ownedConditions(entries []metav1.ManagedFieldsEntry, manager string) []string {
	var owned []string
	for _, e := range entries {
		if e.Manager != manager || e.Operation != metav1.ManagedFieldsOperationApply || e.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Status struct {
				Conditions map[string]json.RawMessage `json:"f:conditions"`
			} `json:"f:status"`
		}
		if json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for key := range fields.Status.Conditions {
			var item struct {
				Type string `json:"type"`
			}
			if text, ok := strings.CutPrefix(key, "k:"); ok && json.Unmarshal([]byte(text), &item) == nil {
				owned = append(owned, item.Type)
			}
		}
	}
	slices.Sort(owned)
	return slices.Compact(owned)
}
