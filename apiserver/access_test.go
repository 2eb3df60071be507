package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// A server with another credential, another address and another path is reached after Reconnect, by the same client.
func TestReconnect(t *testing.T) {
	var asked atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Host + r.URL.Path + " " + r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"uid": "u"}}`)
	}))
	defer server.Close()
	other := httptest.NewServer(server.Config.Handler)
	defer other.Close()
	c, err := NewClient(&rest.Config{Host: server.URL + "/a", BearerToken: "one"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const path = "/api/v1/namespaces/kube-system"
	for i, tt := range []struct{ url, base, token string }{
		{server.URL, "/a", "one"}, {server.URL, "/a", "two"}, {other.URL, "", "three"}, {other.URL, "/b/c/", "four"},
		{server.URL, "/a", "five"},
	} {
		dials := c.Dials()
		if i > 0 {
			if err := c.Reconnect(&rest.Config{Host: tt.url + tt.base, BearerToken: tt.token}); err != nil {
				t.Fatal(err)
			}
		}
		if uid, err := c.SystemUID(t.Context()); uid != "u" || err != nil {
			t.Errorf("UID %q, %v", uid, err)
		}
		base := map[string]string{"/b/c/": "/b/c"}[tt.base]
		if base == "" {
			base = tt.base
		}
		if got, want := asked.Load(), tt.url[len("http://"):]+base+path+" Bearer "+tt.token; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
		if c.Dials() == dials {
			t.Error("no new connection: the server check would cover it")
		}
	}
}
