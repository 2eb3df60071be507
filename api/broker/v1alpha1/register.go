package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: broker.GroupName, Version: "v1alpha1"}

// The resources that the objects are read and written through.
var (
	ExportedServices = GroupVersion.WithResource("exportedservices") // namespaced
	Inventories      = GroupVersion.WithResource("inventories")      // namespaced
	Members          = GroupVersion.WithResource("members")          // cluster-scoped, with a status
)

var schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme makes the types of this package known to a scheme.
var AddToScheme = schemeBuilder.AddToScheme

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &ExportedService{}, &ExportedServiceList{}, &Inventory{}, &InventoryList{},
		&Member{}, &MemberList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
