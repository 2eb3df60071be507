package admin

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
)

// A local is what a cluster says about itself.
type local struct {
	uid        types.UID                  // of its namespace kube-system
	about      string                     // version of ClusterProperty that it serves, v1beta1 if none
	id         *unstructured.Unstructured // ClusterProperty cluster.clusterset.k8s.io, or nil
	membership *unstructured.Unstructured // ClusterProperty clusterset.k8s.io, or nil
	unsound    []error                    // what is wrong with its CRDs
}

// clusterID is "" if there is none.
func (l local) clusterID() string { return value(l.id) }

// clusterSet is "" unless the cluster is a member.
func (l local) clusterSet() string { return value(l.membership) }

// brokerUID is that of the broker that the cluster is a member at.
func (l local) brokerUID() types.UID {
	if l.membership == nil {
		return ""
	}
	return types.UID(l.membership.GetAnnotations()[broker.AnnotationBrokerUID])
}

func (l local) leaving() bool {
	if l.membership == nil {
		return false
	}
	_, ok := l.membership.GetAnnotations()[broker.AnnotationLeaving]
	return ok
}

func value(property *unstructured.Unstructured) string {
	if property == nil {
		return ""
	}
	return text(property, "spec", "value")
}

// local reads what the cluster says about itself.
func (s *side) local(ctx context.Context) (local, error) {
	l := local{about: "v1beta1"}
	var err error
	if l.uid, err = s.kubeSystem(ctx); err != nil {
		return l, err
	}
	for _, ours := range memberDefinitions() {
		there, err := s.find(ctx, ours)
		if err != nil {
			return l, err
		}
		if there == nil {
			continue
		}
		if err := checkDefinition(ours, there); err != nil {
			l.unsound = append(l.unsound, err)
		}
		if v := aboutVersion(there); v != "" && text(there, "spec", "group") == about.GroupName {
			l.about = v
		}
	}
	if l.id, err = s.find(ctx, l.property(about.ClusterIDName, "")); err != nil {
		return l, err
	}
	l.membership, err = s.find(ctx, l.property(about.ClusterSetName, ""))
	return l, err
}

// property is a ClusterProperty in the version that the cluster serves.
func (l local) property(name, value string) *unstructured.Unstructured {
	o := object(schema.GroupVersionKind{Group: about.GroupName, Version: l.about, Kind: "ClusterProperty"}, "", name)
	o.Object["spec"] = map[string]any{"value": value}
	return o
}

// podCIDRs returns the networks of the Nodes that there are, as few as can be.
func (s *side) podCIDRs(ctx context.Context) ([]netip.Prefix, error) {
	nodes, err := list[corev1.Node](ctx, s, corev1.SchemeGroupVersion.WithResource("nodes"), "", "")
	if err != nil {
		return nil, err
	}
	var all []netip.Prefix
	for i := range nodes {
		found, err := parseCIDRs(nodes[i].Spec.PodCIDRs)
		if err != nil {
			return nil, fmt.Errorf("%s: node %s: %w", s.name, nodes[i].Name, err)
		}
		all = append(all, found...)
	}
	return aggregate(all), nil
}

// serviceCIDRs returns the networks of the ServiceCIDR objects; none before Kubernetes 1.33.
func (s *side) serviceCIDRs(ctx context.Context) ([]netip.Prefix, error) {
	objects, err := list[networkingv1.ServiceCIDR](ctx, s, networkingv1.SchemeGroupVersion.WithResource("servicecidrs"), "", "")
	if err != nil {
		return nil, err
	}
	var all []netip.Prefix
	for i := range objects {
		found, err := parseCIDRs(objects[i].Spec.CIDRs)
		if err != nil {
			return nil, fmt.Errorf("%s: ServiceCIDR %s: %w", s.name, objects[i].Name, err)
		}
		all = append(all, found...)
	}
	return aggregate(all), nil
}

// cidrs returns the networks to declare: those given, or else those found and, lest a network is lost by a node that is
// away, those declared before.
func cidrs(what string, given, declared []string, find func() ([]netip.Prefix, error)) ([]netip.Prefix, error) {
	all, err := parseCIDRs(given)
	if err != nil {
		return nil, err
	}
	if len(given) == 0 {
		found, err := find()
		if err != nil {
			return nil, err
		}
		if all, err = parseCIDRs(declared); err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if all = aggregate(all); len(all) > broker.MaxCIDRs {
		return nil, fmt.Errorf("%d %s CIDRs: want at most %d, give the network they lie in by --%s-cidr", len(all), what, broker.MaxCIDRs, what)
	}
	return all, nil
}

// ensure makes an object, unless it is there.
func (s *side) ensure(ctx context.Context, o *unstructured.Unstructured) error {
	there, err := s.find(ctx, o)
	if err != nil {
		return err
	}
	if there == nil {
		_, err = s.apply(ctx, o, "")
		return err
	}
	if there.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s: %s is being deleted: run this again when it is gone", s.name, describe(o))
	}
	s.report(o, Unchanged, "")
	return nil
}

// secret returns the broker credential of the member, or nil.
func (s *side) secret(ctx context.Context, namespace string) (*corev1.Secret, error) {
	secret := newSecret(namespace)
	there, err := s.read(ctx, secret)
	if err != nil || !there {
		return nil, err
	}
	return secret, nil
}
