package read

import (
	"context"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/api/logging"
)

// FindNetworks finds the networks of a cluster. It leaves out a source that may not be read, or has an API server that
// is away.
func (c *Cluster) FindNetworks(ctx context.Context) (networks.Found, error) {
	var failed error
	found := networks.Find(func(q networks.Query) ([]*unstructured.Unstructured, error) {
		objects, err := c.query(ctx, q)
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil && !apierrors.IsForbidden(err) && !apierrors.IsServiceUnavailable(err):
			failed = fmt.Errorf("networks of the cluster: %s: %w", q, err)
		}
		return objects, err
	})
	return found, failed
}

func (c *Cluster) query(ctx context.Context, q networks.Query) ([]*unstructured.Unstructured, error) {
	if q.Name == "" {
		return c.ListObjects(ctx, q.Resource, q.Namespace, q.Labels)
	}
	o, err := c.Client.Resource(q.Resource).Namespace(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return []*unstructured.Unstructured{o}, nil
}

// PodsOutside counts the running Pods with addresses outside of all networks; unread is why the count is unknown.
func (c *Cluster) PodsOutside(ctx context.Context, declared []netip.Prefix) (outside networks.Outside, unread string) {
	running := metav1.ListOptions{FieldSelector: "status.phase=Running"}
	err := c.Each(ctx, Pods, "", running,
		func(pod *unstructured.Unstructured) { outside.AddPod(pod, declared) })
	if err != nil {
		return networks.Outside{}, "whether Pods have addresses outside of the declared networks is not known: " +
			logging.Line(err)
	}
	return outside, ""
}
