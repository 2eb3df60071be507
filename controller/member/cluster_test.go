package member

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// testBlind holds the watch of one kind after another. The cluster is blind if exports are made of the kind
// (docs/spec/controller.md 8.1).
func testBlind(t *testing.T, server *rest.Config) {
	kinds := map[string]string{
		"Namespace": "namespaces", "Service": "services", "EndpointSlice": "endpointslices",
		"ServiceExport":   "serviceexports",
		"ClusterProperty": "clusterproperties", "ServiceImport": "serviceimports",
	}
	for held, plural := range kinds {
		cfg := rest.CopyConfig(server)
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/"+plural) {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return next.RoundTrip(r)
			})
		})
		c, err := New(Config{REST: cfg})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		var g errgroup.Group
		g.Go(func() error { return c.Run(ctx) })
		for other := range kinds {
			if other != held {
				until.True(t, "contact of "+other, func() bool {
					return c.set.LastContact(apiserver.WatchID{Kind: other}).After(
						begin)
				})
			}
		}
		want := held + ": nothing was heard of it"
		if held == "ServiceImport" {
			want = ""
		}
		if why := c.Blind(begin); !strings.HasPrefix(why, want) || (why == "") != (want == "") ||
			strings.Contains(why, "nil") {
			t.Errorf("%s has no contact: blind for %q, want %q", held, why, want)
		}
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		c.Close()
	}
}
