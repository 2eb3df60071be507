package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/api/about"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: about.GroupName, Version: "v1beta1"}

// Resource is the resource that ClusterProperty objects are read and written through. It is cluster-scoped.
var Resource = GroupVersion.WithResource("clusterproperties")

var schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme makes the types of this package known to a scheme.
var AddToScheme = schemeBuilder.AddToScheme

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &ClusterProperty{}, &ClusterPropertyList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
