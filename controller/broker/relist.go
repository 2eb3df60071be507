package broker

import (
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// Read reads the heartbeat of a member from the broker, since the watch may lag. Without a Lease it returns the zero
// value.
func (h *Heartbeats) Read(ctx context.Context, clusterID string) (read protocol.Heartbeat, err error) {
	m := h.members.Get(clusterID)
	if m == nil {
		return read, fmt.Errorf("broker: Member %s: not there", clusterID)
	}
	lease := &coordinationv1.Lease{}
	switch err := h.client.Get(ctx, lease, m.Spec.Namespace, broker.HeartbeatName); {
	case apierrors.IsNotFound(err):
		return read, nil
	case err != nil:
		return read, fmt.Errorf("broker: %w", err)
	}
	h.observe(lease, false)
	return HeartbeatOf(lease), nil
}

// Relist lists all objects of a member, and reports whether the caches are as new.
func (h *Heartbeats) Relist(ctx context.Context, clusterID string) (caughtUp bool, err error) {
	m := h.members.Get(clusterID)
	if m == nil {
		return false, fmt.Errorf("broker: Member %s: not there", clusterID)
	}
	for _, kind := range h.lists {
		if err := h.failure(kind.id); err != nil { // its cache may be older than a rollback
			return false, err
		}
		list, err := h.client.ListMetadata(ctx, kind.example, m.Spec.Namespace, kind.labels)
		if err != nil {
			return false, fmt.Errorf("broker: %w", err)
		}
		bad := make(map[string]bool)
		for _, u := range h.set.Undecodables(kind.id) {
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
	for _, current := range list.Items {
		listed[current.Name] = true
		item, ok, _ := informer.GetStore().GetByKey(namespace + "/" + current.Name)
		if !ok || older(item.(metav1.Object).GetResourceVersion(), current.ResourceVersion) {
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
