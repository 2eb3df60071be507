package read

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/deploy"
)

// Local is the data of a member's API server about the member itself.
type Local struct {
	UID          types.UID                  // of Namespace kube-system
	AboutVersion string                     // version of ClusterProperty to use; v1beta1 if the CRD is missing
	ID           *unstructured.Unstructured // ClusterProperty cluster.clusterset.k8s.io, or nil
	Membership   *unstructured.Unstructured // ClusterProperty clusterset.k8s.io, or nil
	Region       *unstructured.Unstructured // ClusterProperty region.topology.k8s.io, or nil
	HasExports   bool                       // the cluster has the kind ServiceExport
	MissingCRDs  []error                    // one for each CRD that does not exist
	InvalidCRDs  []error                    // one for each CRD that exists and cannot be used
	OlderCRDs    []string                   // one sentence for each CRD that lacks fields, and can be used
}

// ClusterID returns "" if the cluster has no id.
func (l Local) ClusterID() string { return PropertyValue(l.ID) }

// ClusterSet returns "" if the cluster is not a member.
func (l Local) ClusterSet() string { return PropertyValue(l.Membership) }

// BrokerUID returns the UID of the broker that the cluster joined, "" if it is not a member.
func (l Local) BrokerUID() types.UID {
	if l.Membership == nil {
		return ""
	}
	return types.UID(l.Membership.GetAnnotations()[broker.AnnotationBrokerUID])
}

// Leaving reports whether Leave has begun and has not finished.
func (l Local) Leaving() bool {
	if l.Membership == nil {
		return false
	}
	_, ok := l.Membership.GetAnnotations()[broker.AnnotationLeaving]
	return ok
}

// PropertyValue returns the value of a ClusterProperty, "" if it is nil.
func PropertyValue(property *unstructured.Unstructured) string {
	if property == nil {
		return ""
	}
	return StringAt(property, "spec", "value")
}

// Property returns a ClusterProperty in the version that the cluster serves.
func (l Local) Property(name, value string) *unstructured.Unstructured {
	kind := schema.GroupVersionKind{Group: about.GroupName, Version: l.AboutVersion, Kind: "ClusterProperty"}
	o := Object(kind, "", name)
	o.Object["spec"] = map[string]any{"value": value}
	return o
}

// MembershipProperty returns ClusterProperty clusterset.k8s.io with these annotations.
func (l Local) MembershipProperty(clusterSet string, annotations map[string]string) *unstructured.Unstructured {
	o := l.Property(about.ClusterSetName, clusterSet)
	o.SetLabels(map[string]string{broker.LabelManagedBy: broker.ManagedBy})
	o.SetAnnotations(annotations)
	return o
}

// Policies returns those that a join writes.
func (l Local) Policies() []*unstructured.Unstructured {
	policies := deploy.Member
	if l.AboutVersion == "v1alpha1" {
		policies = deploy.MemberV1alpha1()
	}
	return Stamped(Parse(policies))
}

// BrokerText is a phrase about a cluster that is a broker and not a member, and "" for other clusters. uid belongs
// to Namespace kube-system.
func (c *Cluster) BrokerText(ctx context.Context, uid types.UID) string {
	members, _ := Many[v1alpha1.Member](ctx, c, v1alpha1.Members, "", metav1.ListOptions{})
	if members.State != cause.Present {
		return ""
	}
	text := "this is a broker"
	for i := range members.Value {
		m := &members.Value[i]
		if m.Spec.KubeSystemUID == string(uid) {
			return ""
		}
		if name := m.Annotations[broker.AnnotationClusterSet]; name != "" {
			text = "this is the broker of clusterset " + name
		}
	}
	return text + ", and not a member"
}

// Local reads what the cluster says about itself.
func (c *Cluster) Local(ctx context.Context) (Local, error) {
	l := Local{AboutVersion: "v1beta1"}
	var err error
	if l.UID, err = c.KubeSystem(ctx); err != nil {
		return l, err
	}
	for _, r := range memberRequirements() {
		existing, err := c.Find(ctx, Parse(r.Manifest)[0])
		if err != nil {
			return l, err
		}
		served, err := r.Check(existing)
		switch {
		case existing == nil:
			l.MissingCRDs = append(l.MissingCRDs, err)
			continue
		case err != nil:
			l.InvalidCRDs = append(l.InvalidCRDs, err)
		}
		if r.Name == mcsv1beta1.ServiceExportFullName {
			l.HasExports = len(ServedVersions(existing)) > 0
		}
		if w := r.Warning(served); w != "" {
			l.OlderCRDs = append(l.OlderCRDs, w)
		}
		if served.Version != "" && StringAt(existing, "spec", "group") == about.GroupName {
			l.AboutVersion = served.Version
		}
	}
	if l.ID, err = c.Find(ctx, l.Property(about.ClusterIDName, "")); err != nil {
		return l, err
	}
	if l.Membership, err = c.Find(ctx, l.Property(about.ClusterSetName, "")); err != nil {
		return l, err
	}
	l.Region, err = c.Find(ctx, l.Property(about.RegionName, ""))
	return l, err
}
