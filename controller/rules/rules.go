// Package rules makes, keeps and ends ServiceExports by the rule of a Namespace (docs/spec/controller.md 3.9): those of
// the Services that its label selector matches. It touches only ServiceExports with our label, so one that a user has
// made always wins.
package rules

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// Rules follows the rules of all namespaces. The caches of the member are complete.
type Rules struct {
	Member   *member.Cluster
	Policy   member.Policy
	Rejected func(merge.Rejection) // reports a rule that cannot be read
}

// Concerns reports whether a service has a rule, or an export by one.
func (r *Rules) Concerns(svc types.NamespacedName) bool {
	return selectorOf(r.Member.Namespace(svc.Namespace)) != nil || isMade(r.Member.StoredExport(svc))
}

// Reconcile makes or ends the ServiceExport of one Service. Nothing follows from a rule that cannot be read, or from
// objects that are not known.
func (r *Rules) Reconcile(ctx context.Context, svc types.NamespacedName) error {
	ns, exp := r.Member.Namespace(svc.Namespace), r.Member.StoredExport(svc)
	policy := r.Policy.Of(ns)
	if policy == export.Terminating || r.Member.ExportsAbsent() != "" || r.Member.Unreadable(svc) ||
		exp != nil && (!isMade(exp) || exp.DeletionTimestamp != nil) {
		return nil
	}
	want := false
	if text := selectorOf(ns); text != nil && policy == export.Allowed {
		selector, err := labels.Parse(*text)
		if err != nil {
			r.Rejected(merge.Rejection{Cluster: merge.Local, Object: "Namespace " + ns.Name, Reason: merge.NotTaken,
				Detail: fmt.Sprintf("annotation %s %q: %v: want a label selector", broker.AnnotationExportSelector, *text, err)})
			return nil
		}
		want = matches(selector, r.Member.Service(svc))
	}
	switch {
	case want && exp == nil:
		return r.create(ctx, svc)
	case !want && exp != nil:
		return r.end(ctx, exp)
	}
	return nil
}

// selectorOf returns the rule of a namespace, nil if it has none.
func selectorOf(ns *corev1.Namespace) *string {
	if ns == nil {
		return nil
	}
	if text, ok := ns.Annotations[broker.AnnotationExportSelector]; ok {
		return &text
	}
	return nil
}

// isMade reports whether a rule has made the ServiceExport.
func isMade(exp *mcsv1beta1.ServiceExport) bool {
	return exp != nil && exp.Labels[broker.LabelManagedBy] == broker.ManagedBy
}

// matches leaves out Services that are derived from imports, those that cannot be exported, and those that opt out.
func matches(selector labels.Selector, s *corev1.Service) bool {
	return s != nil && s.DeletionTimestamp == nil && s.Labels[broker.LabelManagedBy] != broker.ManagedBy &&
		s.Spec.Type != corev1.ServiceTypeExternalName && s.Annotations[broker.AnnotationExport] != "false" &&
		selector.Matches(labels.Set(s.Labels))
}

func (r *Rules) create(ctx context.Context, svc types.NamespacedName) error {
	exp := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name,
		Labels: map[string]string{broker.LabelManagedBy: broker.ManagedBy}}}
	err := r.Member.Client().Create(ctx, exp, wellknown.ManagerExporter)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil // its event follows
	case err != nil:
		return fmt.Errorf("export of %s by rule: %w", svc, err)
	}
	r.Member.Wrote(exp)
	return nil
}

// end deletes what it has read, unless somebody else has a hand in it meanwhile: it is a user's then.
func (r *Rules) end(ctx context.Context, exp *mcsv1beta1.ServiceExport) error {
	stored := &mcsv1beta1.ServiceExport{}
	err := r.Member.Client().Get(ctx, stored, exp.Namespace, exp.Name)
	if apierrors.IsNotFound(err) || err == nil && !isMadeByUs(stored) {
		return nil
	}
	if err == nil {
		err = r.Member.Client().Delete(ctx, stored)
	}
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("export of %s/%s by rule: %w", exp.Namespace, exp.Name, err)
	}
	r.Member.Deleted(exp)
	return nil
}

// isMadeByUs reports whether a rule has made a stored ServiceExport, and others have written its status alone.
func isMadeByUs(stored *mcsv1beta1.ServiceExport) bool {
	return isMade(stored) && !slices.ContainsFunc(stored.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Subresource == "" && e.Manager != wellknown.ManagerExporter
	})
}
