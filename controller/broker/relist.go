package broker

import (
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// ReadHeartbeat reads the heartbeat of a member from the broker, since the watch may lag. Without a Lease it returns
// the zero value.
func (b *Broker) ReadHeartbeat(ctx context.Context, clusterID string) (h protocol.Heartbeat, err error) {
	m := b.Members.Get(clusterID)
	if m == nil {
		return h, fmt.Errorf("broker: Member %s: not there", clusterID)
	}
	lease := &coordinationv1.Lease{}
	switch err := b.client.Get(ctx, lease, m.Spec.Namespace, broker.HeartbeatName); {
	case apierrors.IsNotFound(err):
		return h, nil
	case err != nil:
		return h, fmt.Errorf("broker: %w", err)
	}
	b.heartbeats.observe(lease, false)
	return HeartbeatOf(lease), nil
}

// Relist lists all objects of a member, and reports whether the caches are as new.
func (b *Broker) Relist(ctx context.Context, clusterID string) (caughtUp bool, err error) {
	m := b.Members.Get(clusterID)
	if m == nil {
		return false, fmt.Errorf("broker: Member %s: not there", clusterID)
	}
	for _, kind := range []struct {
		id       apiserver.WatchID
		example  apiserver.Object
		labels   string
		informer cache.SharedIndexInformer
	}{
		{watchRecords, &v1alpha1.ExportedService{}, mcsv1beta1.LabelSourceCluster, b.records},
		{watchSlices, &discoveryv1.EndpointSlice{}, mcsv1beta1.LabelSourceCluster, b.slices},
		{watchInventories, &v1alpha1.Inventory{}, "", b.inventories},
	} {
		if err := b.failure(kind.id); err != nil { // its cache may be older than a rollback
			return false, err
		}
		list, err := b.client.ListMetadata(ctx, kind.example, m.Spec.Namespace, kind.labels)
		if err != nil {
			return false, fmt.Errorf("broker: %w", err)
		}
		bad := make(map[string]bool)
		for _, u := range b.set.Undecodables(kind.id) {
			bad[u.Namespace+"/"+u.Name] = true
		}
		list.Items = slices.DeleteFunc(list.Items, func(
			o metav1.PartialObjectMetadata) bool {
			return bad[o.Namespace+"/"+o.Name]
		})
		if !hasAll(kind.informer, m.Spec.Namespace, list) {
			return false, nil
		}
	}
	return true, nil
}

// hasAll reports whether a cache is as new as a list of a namespace.
func hasAll(informer cache.SharedIndexInformer, namespace string, list *metav1.PartialObjectMetadataList) bool {
	older := func(a, b string) bool { return apiserver.VersionNumber(a) < apiserver.VersionNumber(b) }
	listed := make(map[string]bool)
	for _, is := range list.Items {
		listed[is.Name] = true
		item, ok, _ := informer.GetStore().GetByKey(namespace + "/" + is.Name)
		if !ok || older(item.(metav1.Object).GetResourceVersion(), is.ResourceVersion) {
			return false
		}
	}
	for _, o := range indexed[metav1.Object](informer, cache.NamespaceIndex, namespace) {
		if !listed[o.GetName()] && older(o.GetResourceVersion(), list.ResourceVersion) {
			return false
		}
	}
	return true
}
