package admin

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/deploy"
)

// InitOptions say how a broker is prepared.
type InitOptions struct {
	Writing
	AggregateView bool // with the CRD of ServiceImport, which "aggregate_view on" in any member needs
}

// Init makes an API server a broker: CRDs, what members may read, and the policies that hold them to what is theirs. An
// older version of these is updated. No program of ours will run there.
func Init(ctx context.Context, config *rest.Config, o InitOptions) error {
	s, err := o.open(OnBroker, config)
	if err == nil {
		err = s.install(ctx, brokerDefinitions(o.AggregateView), true)
	}
	if err == nil {
		err = s.applyAll(ctx, parse(deploy.Broker))
	}
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	return nil
}

func (s *side) applyAll(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if _, err := s.apply(ctx, o, ""); err != nil {
			return err
		}
	}
	return nil
}

// initialised returns the first object that [Init] makes and that a join relies on, but that is not there; nil if all are.
func (s *side) initialised(ctx context.Context) (missing *unstructured.Unstructured, err error) {
	admission := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	wanted := append(brokerDefinitions(false),
		object(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), "", memberRole),
		object(schema.GroupVersionKind{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "PriorityLevelConfiguration"}, "", priorityLevel),
		object(admission.WithKind("ValidatingAdmissionPolicy"), "", writesPolicy),
		object(admission.WithKind("ValidatingAdmissionPolicyBinding"), "", writesPolicy),
		object(admission.WithKind("ValidatingAdmissionPolicy"), "", addressesPolicy),
	)
	for _, o := range wanted {
		if found, err := s.find(ctx, o); err != nil || found == nil {
			return o, err
		}
	}
	return nil, nil
}
