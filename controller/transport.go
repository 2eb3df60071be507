package controller

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// The two API servers, as the label "side" of metric writes_total has them.
const (
	sideLocal  = "local"
	sideBroker = "broker"
)

// errNotLeader refuses a write without the lease.
var errNotLeader = errors.New("the lease of the controller is not held")

// A fence is open while the lease was renewed a moment ago. An instance that was paused, and does not know yet that another
// one leads, finds it shut.
type fence struct {
	limit time.Duration // how long it stays open

	mu      sync.Mutex
	renewed time.Time // when the request of the last renewal that succeeded was sent; zero if the lease is not held
}

// renew opens the fence for a lease that was asked for at the given time.
func (f *fence) renew(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed = at
}

// shut closes the fence until the next renewal.
func (f *fence) shut() { f.renew(time.Time{}) }

// open reports whether the lease is held now. The monotonic clock of a machine that sleeps may stand still, and its wall
// clock may be set back: whichever saw more time pass counts.
func (f *fence) open() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.renewed.IsZero() {
		return false
	}
	now := time.Now()
	return max(now.Sub(f.renewed), now.Round(0).Sub(f.renewed.Round(0))) < f.limit
}

// guarded returns a copy of cfg whose writes need the fence to be open and are counted. Rates are the caller's to set.
func guarded(cfg *rest.Config, side string, f *fence, m *Metrics) *rest.Config {
	c := rest.CopyConfig(cfg)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &gate{next: next, side: side, fence: f, metrics: m}
	})
	return c
}

// A gate is what requests to an API server pass.
type gate struct {
	next    http.RoundTripper
	side    string
	fence   *fence
	metrics *Metrics
}

// RoundTrip implements [http.RoundTripper].
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	verb := writeVerb(r)
	if verb == "" {
		return g.next.RoundTrip(r)
	}
	if !g.fence.open() {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, fmt.Errorf("%s %s: %w", verb, r.URL.Path, errNotLeader)
	}
	g.metrics.wrote(g.side, writeKind(r.URL.Path), verb)
	return g.next.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport below.
func (g *gate) WrappedRoundTripper() http.RoundTripper { return g.next }

// writeVerb returns how a request writes, "" if it does not.
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

// writeKinds are the kinds that the controller writes.
var writeKinds = map[string]string{
	"services": "Service", "endpointslices": "EndpointSlice", "leases": "Lease", "secrets": "Secret", "events": "Event",
	"serviceexports": "ServiceExport", "serviceimports": "ServiceImport", "clusterproperties": "ClusterProperty",
	"exportedservices": "ExportedService", "members": "Member",
}

// writeKind returns the kind that a path of the API is about, with its subresource if it has one: "ServiceImport/status".
// What the controller never writes is "other".
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
