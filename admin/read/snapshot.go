package read

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
)

func (c *Cluster) readUID(ctx context.Context) cause.Read[types.UID] {
	ns := One[corev1.Namespace](ctx, c, Namespaces, "", metav1.NamespaceSystem)
	return converted(ns, func(ns *corev1.Namespace) types.UID { return ns.UID })
}

// Member reads all of a member that is about one service, but its credential.
func (c *Cluster) Member(ctx context.Context, t cause.Target, controller string) (found cause.Cluster) {
	Parallel(
		func() { found.UID = c.readUID(ctx) },
		func() { found.ClusterID = c.Property(ctx, about.ClusterIDName) },
		func() { found.ClusterSet = c.Property(ctx, about.ClusterSetName) },
		func() { found.Namespace = One[corev1.Namespace](ctx, c, Namespaces, "", t.Namespace) },
		func() { found.Import = c.Import(ctx, t) },
		func() {
			slices, _ := Many[discoveryv1.EndpointSlice](ctx, c, EndpointSlices, t.Namespace,
				metav1.ListOptions{LabelSelector: mcsv1beta1.LabelServiceName + "=" + t.Service})
			found.Slices = converted(slices, pointers)
		},
		func() {
			found.Export = One[mcsv1beta1.ServiceExport](ctx, c, ServiceExports, t.Namespace, t.Service)
		},
		func() {
			lease := One[coordinationv1.Lease](ctx, c, Leases, controller, wellknown.ControllerLease)
			found.Leader = converted(lease, func(l *coordinationv1.Lease) *coordinationv1.LeaseSpec { return &l.Spec })
			found.Namespaces = converted(lease, func(l *coordinationv1.Lease) wellknown.NamespaceChoice {
				return wellknown.ParseNamespaceChoice(l.Annotations[wellknown.AnnotationNamespaces])
			}).Value
			found.Frozen = converted(lease, func(l *coordinationv1.Lease) []wellknown.Freeze {
				return wellknown.ParseFreezes(l.Annotations[wellknown.AnnotationFrozen])
			}).Value
		},
	)()
	return found
}

func pointers[T any](list []T) []*T {
	all := make([]*T, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}

// Property reads a ClusterProperty.
func (c *Cluster) Property(ctx context.Context, name string) cause.Read[cause.Property] {
	found, err := c.Get(ctx, v1beta1.Resource, "", name)
	if err != nil {
		return Unread[cause.Property](c, err, "get", v1beta1.Resource, "")
	}
	p := cause.Property{Value: StringAt(found, "spec", "value"), Annotations: found.GetAnnotations()}
	return cause.Read[cause.Property]{State: cause.Present, Value: p}
}

// Import reads a ServiceImport.
func (c *Cluster) Import(ctx context.Context, t cause.Target) cause.Read[cause.Import] {
	found, err := c.Get(ctx, ServiceImports, t.Namespace, t.Service)
	if err != nil {
		return Unread[cause.Import](c, err, "get", ServiceImports, t.Namespace)
	}
	var imp cause.Import
	if imp.JSON, err = found.MarshalJSON(); err == nil {
		imp.Object = &mcsv1beta1.ServiceImport{}
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, imp.Object)
	}
	if err != nil {
		imp.Object, imp.Undecodable = nil, logging.Line(err)
	}
	return cause.Read[cause.Import]{State: cause.Present, Value: imp}
}

// Credential also returns the configuration for the broker, nil without a credential. It keeps the token to itself,
// and describes its invalid parts without their text.
func (c *Cluster) Credential(ctx context.Context, namespace string) (cause.Read[cause.Credential],
	*rest.Config) {
	secret := One[corev1.Secret](ctx, c, secrets, namespace, broker.SecretName)
	if secret.State != cause.Present {
		return converted(secret, func(*corev1.Secret) cause.Credential { return cause.Credential{} }), nil
	}
	found := cause.Read[cause.Credential]{State: cause.Present}
	token, err := apiserver.ParseToken(string(secret.Value.Data[broker.KeyToken]))
	if err != nil {
		found.Value.Invalid = "key \"token\" holds no token of a ServiceAccount"
		return found, nil
	}
	found.Value.Expires = token.Expires
	config, _, err := CredentialConfig(secret.Value)
	if err != nil {
		found.Value.Invalid = "key \"kubeconfig\" holds no kubeconfig that names a broker"
		return found, nil
	}
	return found, config
}

// Broker reads all of a broker that is about one service.
func (c *Cluster) Broker(ctx context.Context, t cause.Target) (b cause.Broker) {
	record := broker.RecordName(t.Namespace, t.Service)
	byLabels := mcsv1beta1.LabelServiceName + "=" + t.Service + "," + broker.LabelSourceNamespace + "=" + t.Namespace
	Parallel(
		func() { b.UID = c.readUID(ctx) },
		func() {
			b.Namespaces, _ = Many[corev1.Namespace](ctx, c, Namespaces, "",
				metav1.ListOptions{LabelSelector: broker.LabelClusterID})
		},
		func() { b.Members, _ = Many[v1alpha1.Member](ctx, c, v1alpha1.Members, "", metav1.ListOptions{}) },
		func() {
			b.Records, b.Undecodable = Many[v1alpha1.ExportedService](ctx, c, v1alpha1.ExportedServices, "",
				metav1.ListOptions{FieldSelector: "metadata.name=" + record})
		},
		func() {
			b.Slices, _ = Many[discoveryv1.EndpointSlice](ctx, c, EndpointSlices, "",
				metav1.ListOptions{LabelSelector: byLabels})
		},
		func() {
			all, _ := Many[coordinationv1.Lease](ctx, c, Leases, "",
				metav1.ListOptions{FieldSelector: "metadata.name=" + broker.HeartbeatName})
			b.Heartbeats = converted(all, heartbeats)
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
