package controlplane

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EndNamespacesT ends namespaces that are deleted, with all that is in them, as kube-controller-manager does in a whole cluster, until the test
// is over or stop is called.
func (c *ControlPlane) EndNamespacesT(t testing.TB) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c.endNamespaces(ctx, t)
			_ = pause(ctx, 50*time.Millisecond) // ctx has ended
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func (c *ControlPlane) endNamespaces(ctx context.Context, t testing.TB) {
	all, err := c.dynamic.Resource(namespaces).List(ctx, metav1.ListOptions{})
	if err != nil {
		return // ctx has ended, or the server is stopped
	}
	for i := range all.Items {
		if n := &all.Items[i]; n.GetDeletionTimestamp() != nil {
			if err := c.Delete(ctx, n); err != nil && ctx.Err() == nil {
				t.Logf("%v; trying again", err)
			}
		}
	}
}
