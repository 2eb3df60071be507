package admin

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/deploy"
)

// localState is the data of a member's API server about the member itself.
type localState struct {
	uid          types.UID                  // of Namespace kube-system
	aboutVersion string                     // version of ClusterProperty to use; v1beta1 if the CRD is missing
	id           *unstructured.Unstructured // ClusterProperty cluster.clusterset.k8s.io, or nil
	membership   *unstructured.Unstructured // ClusterProperty clusterset.k8s.io, or nil
	region       *unstructured.Unstructured // ClusterProperty region.topology.k8s.io, or nil
	exports      string                     // version in which ServiceExports can be read, ""
	missingCRDs  []error                    // one for each CRD that does not exist
	invalidCRDs  []error                    // one for each CRD that exists and cannot be used
	olderCRDs    []string                   // one sentence for each CRD that lacks fields, and can be used
}

// clusterID returns "" if the cluster has no id.
func (l localState) clusterID() string { return propertyValue(l.id) }

// clusterSet returns "" if the cluster is not a member.
func (l localState) clusterSet() string { return propertyValue(l.membership) }

// brokerUID returns the UID of the broker that the cluster joined, "" if it is not a member.
func (l localState) brokerUID() types.UID {
	if l.membership == nil {
		return ""
	}
	return types.UID(l.membership.GetAnnotations()[broker.AnnotationBrokerUID])
}

// leaving reports whether Leave has begun and has not finished.
func (l localState) leaving() bool {
	if l.membership == nil {
		return false
	}
	_, ok := l.membership.GetAnnotations()[broker.AnnotationLeaving]
	return ok
}

// propertyValue returns the value of a ClusterProperty, "" if it is nil.
func propertyValue(property *unstructured.Unstructured) string {
	if property == nil {
		return ""
	}
	return stringAt(property, "spec", "value")
}

// property returns a ClusterProperty in the version that the cluster serves.
func (l localState) property(name, value string) *unstructured.Unstructured {
	kind := schema.GroupVersionKind{Group: about.GroupName, Version: l.aboutVersion, Kind: "ClusterProperty"}
	o := object(kind, "", name)
	o.Object["spec"] = map[string]any{"value": value}
	return o
}

// membershipProperty returns ClusterProperty clusterset.k8s.io with these annotations.
func (l localState) membershipProperty(clusterSet string, annotations map[string]string) *unstructured.Unstructured {
	o := l.property(about.ClusterSetName, clusterSet)
	o.SetLabels(map[string]string{broker.LabelManagedBy: broker.ManagedBy})
	o.SetAnnotations(annotations)
	return o
}

// policies returns those that a join writes.
func (l localState) policies() []*unstructured.Unstructured {
	policies := deploy.Member
	if l.aboutVersion == "v1alpha1" {
		policies = deploy.MemberV1alpha1()
	}
	return stamped(parse(policies))
}

// localState reads what the cluster says about itself.
func (c *cluster) localState(ctx context.Context) (localState, error) {
	l := localState{aboutVersion: "v1beta1"}
	var err error
	if l.uid, err = c.kubeSystem(ctx); err != nil {
		return l, err
	}
	for _, r := range memberRequirements() {
		existing, err := c.find(ctx, parse(r.Manifest)[0])
		if err != nil {
			return l, err
		}
		served, err := r.Check(existing)
		switch {
		case existing == nil:
			l.missingCRDs = append(l.missingCRDs, err)
			continue
		case err != nil:
			l.invalidCRDs = append(l.invalidCRDs, err)
		}
		if r.Name == mcsv1beta1.ServiceExportFullName {
			l.exports = servedVersion(existing, r.Versions[0])
		}
		if w := r.Warning(served); w != "" {
			l.olderCRDs = append(l.olderCRDs, w)
		}
		if served.Version != "" && stringAt(existing, "spec", "group") == about.GroupName {
			l.aboutVersion = served.Version
		}
	}
	if l.id, err = c.find(ctx, l.property(about.ClusterIDName, "")); err != nil {
		return l, err
	}
	if l.membership, err = c.find(ctx, l.property(about.ClusterSetName, "")); err != nil {
		return l, err
	}
	l.region, err = c.find(ctx, l.property(about.RegionName, ""))
	return l, err
}
