package controller

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"
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

// Reads pass; writes need the lease, and are counted.
func TestGate(t *testing.T) {
	var served atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	defer server.Close()
	m, f := NewMetrics(nil), &fence{limit: time.Hour}
	client, err := rest.HTTPClientFor(guarded(&rest.Config{Host: server.URL}, sideLocal, f, m))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	send := func(method, contentType string) error {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/api/v1/namespaces/shop/services/db", strings.NewReader("{}"))
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
	} {
		f.renew(state.renewed)
		served.Store(0)
		if err := send(http.MethodGet, ""); err != nil || served.Load() != 1 {
			t.Errorf("%s: a read: %v", state.name, err)
		}
		for _, w := range writes {
			served.Store(0)
			before := testutil.ToFloat64(m.writes.WithLabelValues(sideLocal, "Service", w.verb))
			err := send(w.method, w.content)
			counted := testutil.ToFloat64(m.writes.WithLabelValues(sideLocal, "Service", w.verb)) - before
			if passed := served.Load() == 1; passed != state.open || errors.Is(err, errNotLeader) == state.open || (counted == 1) != state.open {
				t.Errorf("%s: %s: passed %t, counted %v, error %v; want %t", state.name, w.verb, passed, counted, err, state.open)
			}
		}
	}
	f.renew(time.Now())
	f.shut()
	if f.open() {
		t.Error("the fence is open after it was shut")
	}
}
