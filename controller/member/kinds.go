package member

import (
	"context"
	"reflect"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// Kinds are the kinds of an API server that differ between versions of Kubernetes and of the about API.
type Kinds struct {
	ServiceCIDRs   bool // ServiceCIDR is served
	NoImports      bool // ServiceImport is not served
	ExportClusters bool // a ServiceExport has status.clusters (KEP-1645, enhancements#6329)

	ImportObserves bool // a ServiceImport has status.observedGeneration (KEP-5939)

	ImportLacks []string // the fields of ServiceImport that its CRD lacks: they cannot be written
	Warnings    []string // what other fields of ours the CRDs lack, for people
}

// CheckKinds returns what the member's API server serves (docs/spec/controller.md 5.3). The error names the CRD to
// install or update, or the request that failed. ServiceExport and ServiceImport may be missing.
func CheckKinds(ctx context.Context, client *apiserver.Client) (Kinds, error) {
	var kinds Kinds
	for _, r := range append(crd.MCS(), crd.Properties()) {
		existing, err := client.Definition(ctx, r.Name)
		if apierrors.IsNotFound(err) {
			existing = nil
		} else if err != nil {
			return Kinds{}, err
		}
		served, err := r.Check(existing)
		kinds.ExportClusters = kinds.ExportClusters || r.Name == mcsv1beta1.ServiceExportFullName && existing != nil &&
			crd.Has(existing, served.Version, "status.clusters[].cluster")
		switch {
		case err != nil && r.Name == mcsv1beta1.ServiceExportFullName:
			if served.Version != "" { // else see [Cluster.ExportsAbsent]
				kinds.Warnings = append(kinds.Warnings, err.Error())
			}
			continue
		case r.Name == mcsv1beta1.ServiceImportFullName && served.Version == "":
			kinds.NoImports = true // see [Cluster.ImportsUnknown]
			continue
		case err != nil:
			return Kinds{}, err
		}
		if w := r.Warning(served); w != "" {
			kinds.Warnings = append(kinds.Warnings, w)
		}
		if r.Name == mcsv1beta1.ServiceImportFullName {
			kinds.ImportLacks = served.Lacks
			kinds.ImportObserves = crd.Has(existing, served.Version, "status.observedGeneration")
		}
	}
	var err error
	kinds.ServiceCIDRs, err = client.Serves(ctx, &networkingv1.ServiceCIDR{})
	if err != nil {
		return Kinds{}, err
	}
	return kinds, nil
}

// Equal reports whether both are the same.
func (k Kinds) Equal(other Kinds) bool { return reflect.DeepEqual(k, other) }
