package member

import (
	"context"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/test/harness/logtest"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A note that cannot be read is waited for: an API server that does not answer once does not end the controller.
func TestLeaseNoteIsAwaited(t *testing.T) {
	c, err := New(Config{REST: &rest.Config{Host: "http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	log := &logtest.Recorder{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var g errgroup.Group
	g.Go(func() error {
		if text, err := (LeaseNote{Cluster: c, Namespace: "n", Lease: "l", Key: "k"}).Await(ctx, log); err == nil ||
			ctx.Err() == nil {
			t.Errorf("note %q, %v before the end of the context", text, err)
		}
		return nil
	})
	until.True(t, "it logs that", func() bool { return log.Count("waiting: ") == 1 })
	cancel()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
