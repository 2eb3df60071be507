package join

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// Remove removes a member from the broker, if its cluster no longer exists or shall leave. It returns an error if the
// member renewed its heartbeat less than its TTL ago (at least a minute, at most an hour), unless Force is set, and if
// the broker has no object with this id; with Force it marks that id as removed, as others may still import from it.
//
// The cluster itself and its importers learn of it from a mark (docs/spec/controller.md 7.4): the namespace stays, and
// the account, which may read the mark. A second call deletes both, and so does a Remove of another member after a
// year.
func Remove(ctx context.Context, onBroker *rest.Config, clusterID string, o LeaveOptions) (LeaveResult, error) {
	c, err := write.Open(read.RoleBroker, onBroker, o.Options)
	if err != nil {
		return LeaveResult{}, fmt.Errorf("remove: %w", err)
	}
	r, err := findRemoval(ctx, c, clusterID, o)
	for _, step := range []func(context.Context) error{r.markRemoved, r.withdrawExports, r.removeAdmission, r.withdrawLate,
		r.forgetOthers} {
		if err == nil {
			err = step(ctx)
		}
	}
	if err != nil {
		return LeaveResult{}, fmt.Errorf("remove: %w", err)
	}
	result := LeaveResult{ClusterID: clusterID, Namespace: r.admission.Spec.Namespace}
	if r.marked != nil {
		result.Warnings = append(result.Warnings, fmt.Sprintf(
			"%s stays, so that all clusters can read that this one was removed, also those that are away now: "+
				"run this again to delete it at once; otherwise a removal of another member does so after a year",
			read.Describe(r.marked)))
	}
	return result, nil
}

// memberFrom returns a Member that was read. If it does not decode, the result has all that a removal needs: its name,
// its UID, its namespace and the UID of its cluster. Any member can break its own, by its status.
func memberFrom(o *unstructured.Unstructured) (m v1alpha1.Member) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &m); err != nil {
		return v1alpha1.Member{
			ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), UID: o.GetUID()},
			Spec: v1alpha1.MemberSpec{Namespace: read.StringAt(o, "spec", "namespace"),
				KubeSystemUID: read.StringAt(o, "spec", "kubeSystemUID")},
		}
	}
	return m
}

// findRemoval finds the objects of a member on the broker alone, and checks that they may be removed.
func findRemoval(ctx context.Context, c *write.Writer, clusterID string, o LeaveOptions) (*removal, error) {
	r := &removal{broker: c, admission: Admission{ClusterID: clusterID}, now: o.now(), force: o.Force}
	if !broker.IsClusterID(clusterID) {
		return r, fmt.Errorf("cluster id %q: %s", clusterID, wantClusterID)
	}
	member := r.admission.member()
	found, err := c.Find(ctx, toUnstructured(member))
	if err != nil {
		return r, err
	}
	usual := broker.NamespaceName(cmp.Or(o.Prefix, DefaultPrefix), clusterID)
	if found == nil {
		r.admission.Spec.Namespace = usual
		if o.Force { // the broker may have lost the member: the others need the mark
			return r, nil
		}
		return r, r.checkExists(ctx)
	}
	*member = memberFrom(found)
	member.Spec.Namespace = cmp.Or(member.Spec.Namespace, usual)
	r.admission.Spec = member.Spec
	r.member = member
	heartbeat, err := c.Heartbeat(ctx, member.Spec.Namespace)
	if err != nil || heartbeat == nil || o.Force {
		return r, err
	}
	if now := o.now(); !broker.HeartbeatExpired(heartbeat, time.Minute, now) {
		age := max(now.Sub(heartbeat.RenewTime.Time), 0)
		err = fmt.Errorf("member %q renewed its heartbeat %s ago: run \"clusterset leave\" in that cluster, or use --force",
			clusterID, age.Round(time.Second))
	}
	return r, err
}

// withdrawLate deletes what the member wrote before its rights ended, while its namespace stays.
func (r *removal) withdrawLate(ctx context.Context) error {
	if r.marked == nil || r.broker.Options.DryRun != write.DryRunNone {
		return nil
	}
	return r.withdrawExports(ctx)
}

// markLife is how long the mark of a member that was removed stays.
const markLife = 365 * 24 * time.Hour

// forgetOthers deletes the namespaces of members that were removed so long ago that no token of theirs can be valid,
// and no importer needs the mark.
func (r *removal) forgetOthers(ctx context.Context) error {
	namespaces, err := r.broker.ListObjects(ctx, read.Namespaces, "", broker.LabelClusterID)
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		removed, err := time.Parse(time.RFC3339, namespace.GetAnnotations()[broker.AnnotationRemoved])
		if err != nil || !read.IsManaged(namespace) || r.now.Sub(removed) < max(markLife,
			broker.GrantOf(namespace.GetAnnotations()).Lasts()) {
			continue
		}
		if err := r.broker.Delete(ctx, namespace); err != nil {
			return err
		}
	}
	return nil
}
