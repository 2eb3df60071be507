package testclusterset

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

func fromUnstructured(u *unstructured.Unstructured, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
}

func typed(kind schemaKind) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kind.version, Kind: kind.kind}
}

type schemaKind struct{ version, kind string }

// Namespace returns a Namespace.
func Namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{TypeMeta: typed(schemaKind{"v1", "Namespace"}), ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// Port returns a port of a Service, to the same number of its Pods.
func Port(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: number, TargetPort: intstr.FromInt32(number)}
}

// Service returns a Service without selector: its slices are written by the test.
func Service(namespace, name string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   typed(schemaKind{"v1", "Service"}),
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: ports},
	}
}

// Headless returns a Service without cluster IP.
func Headless(namespace, name string, ports ...corev1.ServicePort) *corev1.Service {
	s := Service(namespace, name, ports...)
	s.Spec.ClusterIP = corev1.ClusterIPNone
	return s
}

// Export returns the ServiceExport of a service.
func Export(namespace, name string) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{
		TypeMeta:   typed(schemaKind{mcsv1beta1.GroupVersion.String(), "ServiceExport"}),
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	}
}

// An Endpoint is an endpoint of a slice, ready unless NotReady is set.
type Endpoint struct {
	Address, Hostname, Node, Zone string
	NotReady                      bool
}

// Slice returns an EndpointSlice of service, as the endpointslice controller would write it.
func Slice(service *corev1.Service, name string, endpoints ...Endpoint) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		TypeMeta: typed(schemaKind{"discovery.k8s.io/v1", "EndpointSlice"}),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: name,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: service.Name,
				discoveryv1.LabelManagedBy:   "endpointslice-controller.k8s.io",
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		s.Labels[corev1.IsHeadlessService] = ""
	}
	for _, p := range service.Spec.Ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{
			Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol), Port: ptr.To(p.TargetPort.IntVal), AppProtocol: p.AppProtocol,
		})
	}
	for _, e := range endpoints {
		if addressType(e.Address) == discoveryv1.AddressTypeIPv6 {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
		endpoint := discoveryv1.Endpoint{
			Addresses: []string{e.Address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(!e.NotReady)},
		}
		if e.Hostname != "" {
			endpoint.Hostname = ptr.To(e.Hostname)
		}
		if e.Node != "" {
			endpoint.NodeName = ptr.To(e.Node)
		}
		if e.Zone != "" {
			endpoint.Zone = ptr.To(e.Zone)
		}
		s.Endpoints = append(s.Endpoints, endpoint)
	}
	return s
}

func addressType(address string) discoveryv1.AddressType {
	for _, r := range address {
		if r == ':' {
			return discoveryv1.AddressTypeIPv6
		}
	}
	return discoveryv1.AddressTypeIPv4
}

// Put creates or updates the objects in the member. A failure ends the test.
func (m *Member) Put(t testing.TB, objects ...runtime.Object) {
	t.Helper()
	if err := m.Apply(t.Context(), objects...); err != nil {
		t.Fatalf("%s: %v", m.ID, err)
	}
}

// Drop deletes the objects. A failure ends the test.
func (m *Member) Drop(t testing.TB, objects ...runtime.Object) {
	t.Helper()
	if err := m.Delete(t.Context(), objects...); err != nil {
		t.Fatalf("%s: %v", m.ID, err)
	}
}

// Import returns a ServiceImport; the error of an absent one is "not found".
func (m *Member) Import(ctx context.Context, namespace, name string) (*mcsv1beta1.ServiceImport, error) {
	imp := &mcsv1beta1.ServiceImport{}
	return imp, m.get(ctx, imp, resource("multicluster.x-k8s.io/v1beta1", "serviceimports"), namespace, name)
}

// ServiceExport returns a ServiceExport.
func (m *Member) ServiceExport(ctx context.Context, namespace, name string) (*mcsv1beta1.ServiceExport, error) {
	exp := &mcsv1beta1.ServiceExport{}
	return exp, m.get(ctx, exp, resource("multicluster.x-k8s.io/v1beta1", "serviceexports"), namespace, name)
}

// Imported returns the imported slices of a service.
func (m *Member) Imported(ctx context.Context, namespace, name string) ([]discoveryv1.EndpointSlice, error) {
	list, err := m.Dynamic().Resource(resource("discovery.k8s.io/v1", "endpointslices")).Namespace(namespace).
		List(ctx, metav1.ListOptions{LabelSelector: mcsv1beta1.LabelServiceName + "=" + name})
	if err != nil {
		return nil, err
	}
	slices := make([]discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		if err := fromUnstructured(&list.Items[i], &slices[i]); err != nil {
			return nil, err
		}
	}
	return slices, nil
}

// Condition returns nil if the conditions contain want: "<type>=<status>/<reason>", such as "Valid=True/Valid".
func Condition(conditions []metav1.Condition, want string) error {
	for _, c := range conditions {
		if got := fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason); got == want {
			return nil
		}
	}
	return fmt.Errorf("conditions %v, want %s", conditions, want)
}

// Gone turns the error "not found" into nil, and the absence of an error into one.
func Gone(object metav1.Object, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return fmt.Errorf("%s/%s is there", object.GetNamespace(), object.GetName())
	}
	return err
}

func (m *Member) get(ctx context.Context, into runtime.Object, of schema.GroupVersionResource, namespace,
	name string) error {
	u, err := m.Dynamic().Resource(of).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return fromUnstructured(u, into)
}

func resource(version, plural string) schema.GroupVersionResource {
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		panic("testclusterset: " + err.Error())
	}
	return gv.WithResource(plural)
}
