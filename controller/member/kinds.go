package member

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// Kinds are the kinds of an API server that differ between versions of Kubernetes and of the about API.
type Kinds struct {
	AboutAlpha   bool // ClusterProperty is served at v1alpha1 only
	ServiceCIDRs bool // ServiceCIDR is served
}

// CheckKinds returns what the member's API server serves (docs/spec/controller.md 5.3). The error names the CRD to install or
// update, or the request that failed.
func CheckKinds(ctx context.Context, client *apiserver.Client) (Kinds, error) {
	for _, r := range crd.MCS() {
		if _, err := checkKind(ctx, client, r); err != nil {
			return Kinds{}, err
		}
	}
	version, err := checkKind(ctx, client, crd.Properties())
	if err != nil {
		return Kinds{}, err
	}
	cidrs, err := client.Serves(ctx, &networkingv1.ServiceCIDR{})
	if err != nil {
		return Kinds{}, err
	}
	return Kinds{AboutAlpha: version == "v1alpha1", ServiceCIDRs: cidrs}, nil
}

// checkKind returns the first required version that is served.
func checkKind(ctx context.Context, client *apiserver.Client, r crd.Requirement) (string, error) {
	existing, err := client.Definition(ctx, r.Name)
	if apierrors.IsNotFound(err) {
		existing = nil
	} else if err != nil {
		return "", err
	}
	return r.Check(existing)
}
