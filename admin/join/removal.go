package join

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// A removal takes one member off the broker. It marks the namespace first, by which other members end their imports,
// and keeps it.
type removal struct {
	broker    *write.Writer
	member    *v1alpha1.Member // nil if somebody has deleted it
	admission Admission
	now       time.Time                  // of the removal
	force     bool                       // create the namespace for the mark if it is missing
	leaving   bool                       // the cluster itself leaves: it need not read the mark
	marked    *unstructured.Unstructured // the namespace, if it stays and marks the member as removed; else nil
}

// withdrawExports deletes what the other members read of this one.
func (r *removal) withdrawExports(ctx context.Context) error {
	if owned, err := r.ownsNamespace(ctx); err != nil || !owned {
		return err
	}
	for _, kind := range []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind("Inventory"),
		v1alpha1.GroupVersion.WithKind("ExportedService"),
		discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
		mcsv1beta1.SchemeGroupVersion.WithKind(mcsv1beta1.ServiceImportKindName),
		coordinationv1.SchemeGroupVersion.WithKind("Lease"),
	} {
		if err := r.broker.DeleteAll(ctx, read.Object(kind, r.admission.Spec.Namespace, "")); err != nil {
			return err
		}
	}
	return nil
}

// ownsNamespace reports whether the broker namespace exists and belongs to the member.
func (r *removal) ownsNamespace(ctx context.Context) (bool, error) {
	namespace, err := r.broker.Find(ctx, toUnstructured(r.admission.namespace()))
	return namespace != nil && namespace.GetLabels()[broker.LabelClusterID] == r.admission.ClusterID &&
		read.IsManaged(namespace), err
}

// removeAdmission deletes the objects of the admission in reverse order: rights before limits, and the Member last, so
// that the id is free only when everything else is gone.
func (r *removal) removeAdmission(ctx context.Context) error {
	for _, o := range slices.Backward(r.admission.Objects()) {
		o := toUnstructured(o)
		if o.GetKind() == "Member" {
			return r.removeMember(ctx, o)
		}
		if r.keepsObject(o) {
			continue
		}
		removed, err := r.broker.Remove(ctx, o)
		if err != nil {
			return err
		}
		if removed && o.GetKind() == "Namespace" && r.broker.Options.DryRun == write.DryRunNone {
			if err := r.waitForNamespace(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *removal) waitForNamespace(ctx context.Context, namespace *unstructured.Unstructured) error {
	what := "the broker has emptied and deleted " + read.Describe(namespace)
	err := r.broker.Options.WaitUntil(ctx, what, func(ctx context.Context) (bool, error) {
		left, err := r.broker.Find(ctx, namespace)
		return err == nil && left == nil, err
	})
	if err != nil {
		return fmt.Errorf("broker: %w; check that its kube-controller-manager runs", err)
	}
	return nil
}

// removeMember deletes the Member that was read, by its UID: meanwhile another cluster may have taken the id.
func (r *removal) removeMember(ctx context.Context, o *unstructured.Unstructured) error {
	if r.member == nil {
		r.broker.Report(o, write.Unchanged, "not found")
		return nil
	}
	o.SetUID(r.member.UID)
	return r.broker.Delete(ctx, o)
}

// checkExists returns an error if the broker has no object of this member, which has no Member.
func (r *removal) checkExists(ctx context.Context) error {
	for _, o := range r.admission.Objects()[1:] {
		if left, err := r.broker.Find(ctx, toUnstructured(o)); err != nil || left != nil && read.IsManaged(left) {
			return err
		}
	}
	members, err := read.List[v1alpha1.Member](ctx, r.broker.Cluster, v1alpha1.Members, "", "")
	if err != nil {
		return err
	}
	names := make([]string, len(members))
	for i := range members {
		names[i] = members[i].Name
	}
	if slices.Sort(names); len(names) == 0 {
		return fmt.Errorf("member %q does not exist, and the broker has no other members", r.admission.ClusterID)
	}
	return fmt.Errorf("member %q does not exist: want one of %s", r.admission.ClusterID, strings.Join(names, ", "))
}

// markRemoved annotates the namespace as removed. Other members then end their imports from it, even if they are away
// now. If others removed the cluster, it may read the mark. A second removal finds a mark and no Member, and deletes
// the namespace; a second leave keeps it.
func (r *removal) markRemoved(ctx context.Context) error {
	namespace, err := r.broker.Find(ctx, toUnstructured(r.admission.namespace()))
	lost := namespace == nil // and with it the account
	switch {
	case err != nil:
		return err
	case lost && r.force:
		namespace = toUnstructured(r.admission.namespace())
	case namespace == nil || namespace.GetDeletionTimestamp() != nil ||
		namespace.GetLabels()[broker.LabelClusterID] != r.admission.ClusterID || !read.IsManaged(namespace) ||
		read.IsMarked(namespace) && r.member == nil && !r.leaving:
		return nil
	}
	uid, err := r.broker.KubeSystem(ctx)
	if err != nil {
		return err
	}
	marked := r.admission.namespace()
	marked.Annotations = broker.GrantOf(namespace.GetAnnotations()).Annotations()
	marked.Annotations[broker.AnnotationRemoved] = cmp.Or(
		namespace.GetAnnotations()[broker.AnnotationRemoved], r.now.UTC().Format(time.RFC3339))
	marked.Annotations[broker.AnnotationBrokerUID] = string(uid)
	if joined, is := namespace.GetAnnotations()[broker.AnnotationJoined]; is {
		marked.Annotations[broker.AnnotationJoined] = joined
	}
	r.marked = toUnstructured(marked)
	if _, err = r.broker.Apply(ctx, r.marked, "removed"); err != nil || r.leaving || lost {
		return err
	}
	for _, o := range r.admission.readMark() {
		if _, err := r.broker.Apply(ctx, toUnstructured(o), ""); err != nil {
			return err
		}
	}
	return nil
}

// keepsObject reports whether an object of the member stays on the broker: its mark, and the account that may read it.
func (r *removal) keepsObject(o *unstructured.Unstructured) bool {
	return r.marked != nil && (o.GetKind() == "Namespace" || o.GetKind() == "ServiceAccount" && !r.leaving)
}
