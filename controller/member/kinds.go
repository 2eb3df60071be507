package member

import (
	"context"
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// A definition is a CustomResourceDefinition that the controller needs, in one of the versions and with all the fields.
type definition struct {
	name     string
	versions []string // the best first
	fields   []string // dotted paths below the schema
	remedy   string
}

// The required definitions (docs/spec/controller.md 5). The fields are those that the controller reads or writes: an API
// server silently drops a field that its schema lacks.
var (
	exportDefinition = definition{
		name: mcsv1beta1.ServiceExportFullName, versions: []string{mcsv1beta1.GroupVersion.Version},
		fields: []string{"spec.exportedLabels", "spec.exportedAnnotations", "status.conditions"},
		remedy: "update it to that of sigs.k8s.io/mcs-api v0.5",
	}
	importDefinition = definition{
		name: mcsv1beta1.ServiceImportFullName, versions: []string{mcsv1beta1.GroupVersion.Version},
		fields: []string{
			"spec.ports", "spec.type", "spec.ips", "spec.ipFamilies", "spec.sessionAffinity", "spec.sessionAffinityConfig",
			"spec.internalTrafficPolicy", "spec.trafficDistribution",
			"status.clusters", "status.conditions", "status.endpointSliceObjects",
		},
		remedy: "update it to that of sigs.k8s.io/mcs-api v0.5",
	}
	propertyDefinition = definition{
		name: "clusterproperties." + about.GroupName, versions: []string{"v1beta1", "v1alpha1"},
		fields: []string{"spec.value"},
		remedy: "install that of sigs.k8s.io/about-api",
	}
)

// Kinds are the kinds of an API server that differ between versions of Kubernetes and of the about API.
type Kinds struct {
	AboutAlpha   bool // ClusterProperty is served at v1alpha1 only
	ServiceCIDRs bool // ServiceCIDR is served
}

// CheckKinds returns what the member's API server serves. The error names the definition to install or update, or the request
// that failed.
func CheckKinds(ctx context.Context, client *apiserver.Client) (Kinds, error) {
	for _, d := range []definition{exportDefinition, importDefinition} {
		if _, err := d.check(ctx, client); err != nil {
			return Kinds{}, err
		}
	}
	version, err := propertyDefinition.check(ctx, client)
	if err != nil {
		return Kinds{}, err
	}
	cidrs, err := client.Serves(ctx, &networkingv1.ServiceCIDR{})
	if err != nil {
		return Kinds{}, err
	}
	return Kinds{AboutAlpha: version == "v1alpha1", ServiceCIDRs: cidrs}, nil
}

// check returns the first wanted version that is served.
func (d definition) check(ctx context.Context, client *apiserver.Client) (string, error) {
	u, err := client.Definition(ctx, d.name)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("CustomResourceDefinition %s is not there: %s", d.name, d.remedy)
	}
	if err != nil {
		return "", err
	}
	version, missing := d.served(u)
	switch {
	case version == "":
		return "", fmt.Errorf("CustomResourceDefinition %s does not serve %s: %s", d.name, d.versions[0], d.remedy)
	case len(missing) > 0:
		return "", fmt.Errorf("CustomResourceDefinition %s lacks %s at %s: %s",
			d.name, strings.Join(missing, ", "), version, d.remedy)
	}
	return version, nil
}

// served returns the first wanted version that is served, or "", and the fields that are missing from its schema.
func (d definition) served(u *unstructured.Unstructured) (version string, missing []string) {
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	for _, want := range d.versions {
		for _, v := range versions {
			m, _ := v.(map[string]any)
			if m["name"] == want && m["served"] == true {
				return want, d.missingFields(m)
			}
		}
	}
	return "", nil
}

// missingFields returns the wanted fields that are missing from the schema of a version.
func (d definition) missingFields(version map[string]any) (missing []string) {
	for _, field := range d.fields {
		path := []string{"schema", "openAPIV3Schema"}
		for _, name := range strings.Split(field, ".") {
			path = append(path, "properties", name)
		}
		if _, found, err := unstructured.NestedMap(version, path...); err != nil || !found {
			missing = append(missing, field)
		}
	}
	return missing
}
