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
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// Rules follows the rules of all namespaces. The caches of the member are complete.
type Rules struct {
	Member *member.Cluster
	Policy member.Policy
	// GoesOn reports whether an export goes on without its ServiceExport, or that is not known.
	GoesOn func(types.NamespacedName) bool
	// Ignored reports a rule that cannot be read, once for each value.
	Ignored func(ns *corev1.Namespace, detail string)

	unread logging.OnChangeOf[string, string] // annotations that cannot be read, by namespace
}

// Known reports whether the rules can be followed: the ServiceExports of this cluster are known, and their kind is
// served.
func (r *Rules) Known() bool { return r.Member.ExportsKnown() && r.Member.ExportsAbsent() == "" }

// Concerns reports whether a service has a rule, or an export by one.
func (r *Rules) Concerns(svc types.NamespacedName) bool {
	return selectorOf(r.Member.Namespace(svc.Namespace)) != nil || isMade(r.Member.Export(svc))
}

// Reconcile makes or ends the ServiceExport of one Service. Nothing follows from a rule that cannot be read, or from
// objects that are not known.
func (r *Rules) Reconcile(ctx context.Context, svc types.NamespacedName) error {
	ns, exp, stored := r.Member.Namespace(svc.Namespace), r.Member.Export(svc), r.Member.StoredExport(svc)
	policy := r.Policy.Of(ns)
	if policy == export.Terminating || !r.Known() || r.Member.Unreadable(svc) ||
		exp != nil && !isMade(exp) || stored != nil && stored.DeletionTimestamp != nil {
		return nil
	}
	want := false
	if text := selectorOf(ns); text != nil && policy == export.Allowed {
		selector, err := labels.Parse(*text)
		if err != nil {
			if r.unread.Changed(ns.Name, broker.Hash(16, *text)) {
				r.Ignored(ns, fmt.Sprintf("annotation %s %.80q: want a label selector", broker.AnnotationExportSelector, *text))
			}
			return nil
		}
		r.unread.Clear(ns.Name)
		want = matches(selector, r.Member.Service(svc))
	}
	switch {
	case want && stored == nil && (exp != nil || !r.GoesOn(svc)):
		return r.create(ctx, svc)
	case !want && stored != nil:
		return r.end(ctx, stored)
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

// isMade reports whether a rule has made the ServiceExport, and others have written its status alone. An export that
// somebody else has a hand in is a user's.
func isMade(exp *mcsv1beta1.ServiceExport) bool {
	return exp != nil && exp.Labels[broker.LabelManagedBy] == broker.ManagedBy &&
		!slices.ContainsFunc(exp.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.Subresource == "" && e.Manager != wellknown.ManagerExporter
		})
}

// matches leaves out Services that cannot be exported, those that opt out, and those that are derived from imports,
// also by another implementation: it would derive a Service from their exports again.
func matches(selector labels.Selector, s *corev1.Service) bool {
	if s == nil || s.DeletionTimestamp != nil || s.Spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	_, derived := s.Labels[mcsv1beta1.LabelServiceName]
	return !derived && s.Labels[broker.LabelManagedBy] != broker.ManagedBy &&
		s.Annotations[broker.AnnotationExport] != "false" && selector.Matches(labels.Set(s.Labels))
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

// end deletes the version that it has read: one that somebody else has a hand in meanwhile is a user's.
func (r *Rules) end(ctx context.Context, exp *mcsv1beta1.ServiceExport) error {
	switch err := r.Member.Client().DeleteVersion(ctx, exp); {
	case apierrors.IsConflict(err):
		return nil // its event follows
	case err != nil:
		return fmt.Errorf("export of %s/%s by rule: %w", exp.Namespace, exp.Name, err)
	}
	r.Member.Deleted(exp)
	return nil
}
