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

// InitOptions are the options of [Init].
type InitOptions struct {
	WriteOptions
	AggregateView bool // also install the CRD ServiceImport, which members with "aggregate_view on" need
}

// Init prepares an API server to be a broker: it installs the CRDs, the role that lets members read, a priority level and the
// admission policies that restrict each member to its own namespace. It updates older versions of these. Init starts no program.
func Init(ctx context.Context, config *rest.Config, o InitOptions) error {
	c, err := open(RoleBroker, config, o.WriteOptions)
	if err == nil {
		err = c.install(ctx, brokerCRDs(o.AggregateView), true)
	}
	if err == nil {
		err = c.applyAll(ctx, parse(deploy.Broker))
	}
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	return nil
}

// missingFromInit returns the first object of [Init] that a join needs and that does not exist, nil if all of them exist.
func (c *cluster) missingFromInit(ctx context.Context) (*unstructured.Unstructured, error) {
	admission := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	wanted := append(brokerCRDs(false),
		object(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), "", memberRole),
		object(schema.GroupVersionKind{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "PriorityLevelConfiguration"}, "", priorityLevel),
		object(admission.WithKind("ValidatingAdmissionPolicy"), "", writesPolicy),
		object(admission.WithKind("ValidatingAdmissionPolicyBinding"), "", writesPolicy),
		object(admission.WithKind("ValidatingAdmissionPolicy"), "", addressesPolicy),
	)
	for _, o := range wanted {
		if found, err := c.find(ctx, o); err != nil || found == nil {
			return o, err
		}
	}
	return nil, nil
}
