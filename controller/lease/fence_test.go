package lease

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/test/harness/clocks"
)

func TestWriteKind(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/namespaces/shop/services":                                                           "Service",
		"/api/v1/namespaces/shop/services/db":                                                        "Service",
		"/api/v1/namespaces/clusterset-system/secrets/clusterset-broker":                             "Secret",
		"/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/db-1":                              "EndpointSlice",
		"/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop/serviceimports/db":                      "ServiceImport",
		"/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop/serviceimports/db/status":               "ServiceImport/status",
		"/apis/broker.clusterset-dns.io/v1alpha1/members/east/status":                                "Member/status",
		"/apis/about.k8s.io/v1beta1/clusterproperties":                                               "ClusterProperty",
		"/apis/coordination.k8s.io/v1/namespaces/b/leases/heartbeat":                                 "Lease",
		"/api/v1/namespaces/b/serviceaccounts/member/token":                                          "TokenRequest",
		"/apis/multicluster.x-k8s.io/v1beta1/namespaces/serviceimports/serviceexports/status/status": "ServiceExport/status",
		"/api/v1/namespaces/shop/pods/db":                                                            "other",
		"/api/v1/namespaces/shop":                                                                    "other",
		"/":                                                                                          "other",
		"":                                                                                           "other",
	} {
		if got := writeKind(path); got != want {
			t.Errorf("kind of %s = %s, want %s", path, got, want)
		}
	}
}

// Reads pass always. Writes pass while the fence is open, and each that passes is counted.
func TestFence(t *testing.T) {
	var served atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	defer server.Close()
	f, counted := NewFence(time.Hour), ""
	client, err := rest.HTTPClientFor(f.Guard(&rest.Config{Host: server.URL},
		func(kind, verb string) { counted += kind + " " + verb }))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	send := func(method, contentType string) error {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/api/v1/namespaces/shop/services/db",
			strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", contentType)
		answer, err := client.Do(r)
		if err == nil {
			answer.Body.Close()
		}
		return err
	}
	writes := []struct{ method, content, verb string }{
		{http.MethodPost, "application/json", "create"},
		{http.MethodPut, "application/json", "update"},
		{http.MethodDelete, "application/json", "delete"},
		{http.MethodPatch, "application/apply-patch+yaml", "apply"},
		{http.MethodPatch, "application/merge-patch+json", "patch"},
	}
	for _, state := range []struct {
		name    string
		renewed time.Time
		open    bool
	}{
		{name: "never held"},
		{name: "held", renewed: time.Now(), open: true},
		{name: "not renewed in time", renewed: time.Now().Add(-time.Hour)},
		{name: "the machine slept", renewed: clocks.SetWall(time.Now(), -time.Hour)},
	} {
		f.Renew(state.renewed)
		served.Store(0)
		if err := send(http.MethodGet, ""); err != nil || served.Load() != 1 {
			t.Errorf("%s: a read: %v", state.name, err)
		}
		for _, w := range writes {
			served.Store(0)
			counted = ""
			want := ""
			if state.open {
				want = "Service " + w.verb
			}
			err := send(w.method, w.content)
			if passed := served.Load() == 1; passed != state.open || errors.Is(err, ErrNotHeld) == state.open ||
				counted != want {
				t.Errorf("%s: %s: passed %t, counted %q, error %v; want %t, %q", state.name, w.verb, passed, counted, err,
					state.open, want)
			}
		}
	}
	f.Renew(time.Now())
	f.Shut()
	if f.Open() {
		t.Error("the fence is open after it was shut")
	}
}
