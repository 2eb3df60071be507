package read

import (
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// Resources that several verbs read.
var (
	ServiceImports = mcsv1beta1.SchemeGroupVersion.WithResource("serviceimports")
	ServiceExports = mcsv1beta1.SchemeGroupVersion.WithResource("serviceexports")
	EndpointSlices = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	Namespaces     = corev1.SchemeGroupVersion.WithResource("namespaces")
	secrets        = corev1.SchemeGroupVersion.WithResource("secrets")
	Leases         = coordinationv1.SchemeGroupVersion.WithResource("leases")
	Services       = corev1.SchemeGroupVersion.WithResource("services")
	Pods           = corev1.SchemeGroupVersion.WithResource("pods")
	Nodes          = corev1.SchemeGroupVersion.WithResource("nodes")
	Deployments    = appsv1.SchemeGroupVersion.WithResource("deployments")
)

// OpenShiftDNS is the object from which OpenShift configures the DNS server of a cluster.
var OpenShiftDNS = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"}
