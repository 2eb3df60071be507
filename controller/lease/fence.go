package lease

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/elapsed"
)

// ErrNotHeld is the error of a write that the fence rejects.
var ErrNotHeld = errors.New("the lease of the controller is not held")

// A Fence lets requests that write through while the Lease was renewed less than its limit ago. It has two states:
//
//	shut ── Renew ──▶ open
//	  ▲                │
//	  └─ Shut, or limit after the last Renew
//
// The [Election] that made it moves it. Its methods may be called by several goroutines.
type Fence struct {
	limit time.Duration

	mu      sync.Mutex
	renewed time.Time // when the last renewal that succeeded was sent; zero after Shut
}

// NewFence returns a fence that is shut.
func NewFence(limit time.Duration) *Fence { return &Fence{limit: limit} }

// Renew opens the fence for a renewal that was sent at the given time.
func (f *Fence) Renew(sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed = sent
}

// Shut closes the fence until the next renewal.
func (f *Fence) Shut() { f.Renew(time.Time{}) }

// Open reports whether a write may pass now.
func (f *Fence) Open() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.renewed.IsZero() && elapsed.Between(f.renewed, time.Now()) < f.limit
}

// Guard returns a copy of cfg whose clients send a write only while the fence is open. Each write is passed to count,
// with its kind ("Service", "ServiceImport/status", "other") and its verb ("create", "update", "apply", "patch",
// "delete"). Otherwise it fails with [ErrNotHeld] before anything is sent.
func (f *Fence) Guard(cfg *rest.Config, count func(kind, verb string)) *rest.Config {
	c := rest.CopyConfig(cfg)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return &guard{next, f, count} })
	return c
}

// A guard is the transport of [Fence.Guard].
type guard struct {
	next  http.RoundTripper
	fence *Fence
	count func(kind, verb string)
}

// RoundTrip implements [http.RoundTripper].
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	verb := writeVerb(r)
	if verb == "" {
		return g.next.RoundTrip(r)
	}
	if !g.fence.Open() {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, fmt.Errorf("%s %s: %w", verb, r.URL.Path, ErrNotHeld)
	}
	g.count(writeKind(r.URL.Path), verb)
	return g.next.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport below.
func (g *guard) WrappedRoundTripper() http.RoundTripper { return g.next }

// writeVerb returns the API verb of a request that writes, "" for a read.
func writeVerb(r *http.Request) string {
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodDelete:
		return "delete"
	case http.MethodPatch:
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch") {
			return "apply"
		}
		return "patch"
	}
	return ""
}

// writeKinds are the kinds that the controller writes, by resource.
var writeKinds = map[string]string{
	"services": "Service", "endpointslices": "EndpointSlice", "leases": "Lease", "secrets": "Secret", "events": "Event",
	"serviceexports": "ServiceExport", "serviceimports": "ServiceImport", "clusterproperties": "ClusterProperty",
	"exportedservices": "ExportedService", "inventories": "Inventory", "members": "Member",
}

// writeKind returns the kind that a path of the API names, with "/status" for that subresource. Paths of kinds that the
// controller never writes are "other", which bounds the label of the metric.
func writeKind(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	skip := 3 // apis, group, version
	if parts[0] == "api" {
		skip = 2
	}
	if len(parts) > skip+2 && parts[skip] == "namespaces" {
		skip += 2
	}
	if len(parts) <= skip {
		return "other"
	}
	resource, sub := parts[skip], ""
	if len(parts) > skip+2 {
		sub = parts[skip+2]
	}
	switch kind := writeKinds[resource]; {
	case resource == "serviceaccounts" && sub == "token":
		return "TokenRequest"
	case kind == "":
		return "other"
	case sub == "status":
		return kind + "/status"
	default:
		return kind
	}
}
