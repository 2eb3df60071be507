package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/explain"
	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// readHub reads the broker with a configuration or, if that is nil, with the credential of the cluster.
func (r *reader) readHub(
	ctx context.Context, onBroker *rest.Config, service explain.Target, o ExplainOptions,
) (explain.Read[explain.Credential], explain.Broker, error) {
	var b explain.Broker
	var err error
	read := func(config *rest.Config, grants string) {
		var hub *reader
		if hub, err = newReader(config, o.Timeout); err == nil {
			hub.grants = grants
			b = hub.readBroker(ctx, service)
		}
	}
	wait := func() {}
	if onBroker != nil {
		wait = parallel(func() { read(onBroker, grantsBroker) })
	}
	credential, config := r.readCredential(ctx, o.Namespace)
	if onBroker == nil && config != nil {
		read(config, grantsCredential)
	}
	wait()
	return credential, b, err
}

// A reader reads single objects and short lists of one API server, with the rights of the user.
type reader struct {
	client  dynamic.Interface
	timeout time.Duration
	grants  string // names the manifest with the rights to read what is read; "" if the caller names it
}

func newReader(config *rest.Config, timeout time.Duration) (*reader, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 100, 200
	client, err := dynamic.NewForConfig(config)
	return &reader{client: client, timeout: timeout}, err
}

var (
	serviceImports  = mcsv1beta1.SchemeGroupVersion.WithResource("serviceimports")
	serviceExports  = mcsv1beta1.SchemeGroupVersion.WithResource("serviceexports")
	endpointSlices  = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	namespaces      = corev1.SchemeGroupVersion.WithResource("namespaces")
	secrets         = corev1.SchemeGroupVersion.WithResource("secrets")
	leases          = coordinationv1.SchemeGroupVersion.WithResource("leases")
	clusterProperty = schema.GroupVersionResource{Group: about.GroupName, Version: "v1beta1",
		Resource: "clusterproperties"}
)

// unread returns the failed read that an error describes. The texts of API servers have no credential.
func unread[T any](r *reader, err error, verb string, of schema.GroupVersionResource,
	namespace string) explain.Read[T] {
	what := of.GroupResource().String()
	if namespace != "" {
		what += " in namespace " + namespace
	}
	switch class := apiserver.Classify(err); {
	case class == apiserver.Absent && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return explain.Read[T]{State: explain.NotInstalled,
			Why: "the API server does not have " + of.GroupResource().String()}
	case class == apiserver.Absent:
		return explain.Read[T]{State: explain.Absent}
	case class == apiserver.Unauthorized:
		return explain.Read[T]{State: explain.Unauthorized, Why: "the API server rejects the credential (401)"}
	case class == apiserver.Forbidden:
		why := fmt.Sprintf("the right to %s %s is missing", verb, what)
		if r.grants != "" {
			why += "; " + r.grants + " has it"
		}
		return explain.Read[T]{State: explain.Forbidden, Why: why}
	}
	why := logging.Line(err)
	if errors.Is(err, context.DeadlineExceeded) {
		why = "no answer within " + r.timeout.String() + " (--timeout)"
	}
	return explain.Read[T]{State: explain.Unreachable, Why: fmt.Sprintf("%s %s: %s", verb, what, why)}
}

func (r *reader) get(ctx context.Context, of schema.GroupVersionResource, namespace,
	name string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	if namespace == "" {
		return r.client.Resource(of).Get(ctx, name, metav1.GetOptions{})
	}
	return r.client.Resource(of).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

// readOne reads one object and turns it into a T.
func readOne[T any](ctx context.Context, r *reader, of schema.GroupVersionResource, namespace,
	name string) explain.Read[*T] {
	found, err := r.get(ctx, of, namespace, name)
	if err != nil {
		return unread[*T](r, err, "get", of, namespace)
	}
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, into); err != nil {
		return explain.Read[*T]{State: explain.Unreachable,
			Why: fmt.Sprintf("%s does not decode: %s", describe(found), logging.Line(err))}
	}
	return explain.Read[*T]{State: explain.Present, Value: into}
}

// readList lists objects in a namespace or, without one, in all. It leaves out and names objects that do not decode.
func readList[T any](
	ctx context.Context, r *reader, of schema.GroupVersionResource, namespace string, o metav1.ListOptions,
) (_ explain.Read[[]T], undecodable []string) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	all, err := r.client.Resource(of).Namespace(namespace).List(ctx, o)
	if err != nil {
		return unread[[]T](r, err, "list", of, namespace), nil
	}
	list := make([]T, 0, len(all.Items))
	for i := range all.Items {
		var item T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(all.Items[i].Object, &item); err != nil {
			undecodable = append(undecodable, fmt.Sprintf("%s does not decode: %s", describe(&all.Items[i]), logging.Line(err)))
			continue
		}
		list = append(list, item)
	}
	return explain.Read[[]T]{State: explain.Present, Value: list}, undecodable
}

// then turns the value of a read.
func then[T, U any](r explain.Read[T], turn func(T) U) explain.Read[U] {
	next := explain.Read[U]{State: r.State, Why: r.Why}
	if r.State == explain.Present {
		next.Value = turn(r.Value)
	}
	return next
}

func (r *reader) readUID(ctx context.Context) explain.Read[types.UID] {
	ns := readOne[corev1.Namespace](ctx, r, namespaces, "", metav1.NamespaceSystem)
	return then(ns, func(ns *corev1.Namespace) types.UID { return ns.UID })
}

// readCluster reads all of a cluster but its credential.
func (r *reader) readCluster(ctx context.Context, t explain.Target, controller string) (c explain.Cluster) {
	parallel(
		func() { c.UID = r.readUID(ctx) },
		func() { c.ClusterID = r.readProperty(ctx, about.ClusterIDName) },
		func() { c.ClusterSet = r.readProperty(ctx, about.ClusterSetName) },
		func() { c.Namespace = readOne[corev1.Namespace](ctx, r, namespaces, "", t.Namespace) },
		func() { c.Import = r.readImport(ctx, t) },
		func() {
			slices, _ := readList[discoveryv1.EndpointSlice](ctx, r, endpointSlices, t.Namespace,
				metav1.ListOptions{LabelSelector: mcsv1beta1.LabelServiceName + "=" + t.Service})
			c.Slices = then(slices, pointers)
		},
		func() { c.Export = readOne[mcsv1beta1.ServiceExport](ctx, r, serviceExports, t.Namespace, t.Service) },
		func() {
			lease := readOne[coordinationv1.Lease](ctx, r, leases, controller, wellknown.ControllerLease)
			c.Leader = then(lease, func(l *coordinationv1.Lease) *coordinationv1.LeaseSpec { return &l.Spec })
			c.Namespaces = then(lease, func(l *coordinationv1.Lease) wellknown.NamespaceChoice {
				return wellknown.ParseNamespaceChoice(l.Annotations[wellknown.AnnotationNamespaces])
			}).Value
			c.Frozen = then(lease, func(l *coordinationv1.Lease) []wellknown.Freeze {
				return wellknown.ParseFreezes(l.Annotations[wellknown.AnnotationFrozen])
			}).Value
		},
	)()
	return c
}

func pointers[T any](list []T) []*T {
	all := make([]*T, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}

func (r *reader) readProperty(ctx context.Context, name string) explain.Read[explain.Property] {
	of := clusterProperty
	found, err := r.get(ctx, of, "", name)
	if err != nil && unread[any](r, err, "", of, "").State == explain.NotInstalled {
		of.Version = "v1alpha1"
		found, err = r.get(ctx, of, "", name)
	}
	if err != nil {
		return unread[explain.Property](r, err, "get", of, "")
	}
	p := explain.Property{Value: stringAt(found, "spec", "value"), Annotations: found.GetAnnotations()}
	return explain.Read[explain.Property]{State: explain.Present, Value: p}
}

func (r *reader) readImport(ctx context.Context, t explain.Target) explain.Read[explain.Import] {
	of := serviceImports
	found, err := r.get(ctx, of, t.Namespace, t.Service)
	if err != nil && unread[any](r, err, "", of, "").State == explain.NotInstalled {
		of.Version = "v1alpha1"
		found, err = r.get(ctx, of, t.Namespace, t.Service)
	}
	if err != nil {
		return unread[explain.Import](r, err, "get", of, t.Namespace)
	}
	var imp explain.Import
	if imp.JSON, err = found.MarshalJSON(); err == nil {
		imp.Object = &mcsv1beta1.ServiceImport{}
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, imp.Object)
	}
	if err != nil {
		imp.Object, imp.Undecodable = nil, logging.Line(err)
	}
	return explain.Read[explain.Import]{State: explain.Present, Value: imp}
}

// readCredential also returns the configuration for the broker, nil without a credential. It keeps the token to itself,
// and describes its invalid parts without their text.
func (r *reader) readCredential(ctx context.Context, namespace string) (explain.Read[explain.Credential],
	*rest.Config) {
	secret := readOne[corev1.Secret](ctx, r, secrets, namespace, broker.SecretName)
	if secret.State != explain.Present {
		return then(secret, func(*corev1.Secret) explain.Credential { return explain.Credential{} }), nil
	}
	c := explain.Read[explain.Credential]{State: explain.Present}
	token, err := apiserver.ParseToken(string(secret.Value.Data[broker.KeyToken]))
	if err != nil {
		c.Value.Invalid = "key \"token\" holds no token of a ServiceAccount"
		return c, nil
	}
	c.Value.Expires = token.Expires
	config, _, err := credentialConfig(secret.Value)
	if err != nil {
		c.Value.Invalid = "key \"kubeconfig\" holds no kubeconfig that names a broker"
		return c, nil
	}
	return c, config
}

func (r *reader) readBroker(ctx context.Context, t explain.Target) (b explain.Broker) {
	record := broker.RecordName(t.Namespace, t.Service)
	byLabels := mcsv1beta1.LabelServiceName + "=" + t.Service + "," + broker.LabelSourceNamespace + "=" + t.Namespace
	parallel(
		func() { b.UID = r.readUID(ctx) },
		func() {
			b.Namespaces, _ = readList[corev1.Namespace](ctx, r, namespaces, "",
				metav1.ListOptions{LabelSelector: broker.LabelClusterID})
		},
		func() { b.Members, _ = readList[v1alpha1.Member](ctx, r, v1alpha1.Members, "", metav1.ListOptions{}) },
		func() {
			b.Records, b.Undecodable = readList[v1alpha1.ExportedService](ctx, r, v1alpha1.ExportedServices, "",
				metav1.ListOptions{FieldSelector: "metadata.name=" + record})
		},
		func() {
			b.Slices, _ = readList[discoveryv1.EndpointSlice](ctx, r, endpointSlices, "",
				metav1.ListOptions{LabelSelector: byLabels})
		},
		func() {
			all, _ := readList[coordinationv1.Lease](ctx, r, leases, "",
				metav1.ListOptions{FieldSelector: "metadata.name=" + broker.HeartbeatName})
			b.Heartbeats = then(all, heartbeats)
		},
	)()
	return b
}

func heartbeats(all []coordinationv1.Lease) map[string]*coordinationv1.LeaseSpec {
	by := make(map[string]*coordinationv1.LeaseSpec, len(all))
	for i := range all {
		by[all[i].Namespace] = &all[i].Spec
	}
	return by
}
