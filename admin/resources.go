package admin

import (
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/about"
)

// Resources that several verbs read.
var (
	serviceImports  = mcsv1beta1.SchemeGroupVersion.WithResource("serviceimports")
	serviceExports  = mcsv1beta1.SchemeGroupVersion.WithResource("serviceexports")
	endpointSlices  = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	namespaces      = corev1.SchemeGroupVersion.WithResource("namespaces")
	secrets         = corev1.SchemeGroupVersion.WithResource("secrets")
	leases          = coordinationv1.SchemeGroupVersion.WithResource("leases")
	clusterProperty = schema.GroupVersionResource{Group: about.GroupName, Version: "v1beta1",
		Resource: "clusterproperties"}
	services    = corev1.SchemeGroupVersion.WithResource("services")
	pods        = corev1.SchemeGroupVersion.WithResource("pods")
	nodes       = corev1.SchemeGroupVersion.WithResource("nodes")
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
)

// openShiftDNS is the object from which OpenShift configures the DNS server of a cluster.
var openShiftDNS = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"}
