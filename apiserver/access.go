package apiserver

import (
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// An access is how requests reach an API server: its address, and a transport that adds the credential.
type access struct {
	base      *url.URL
	transport http.RoundTripper
}

func newAccess(cfg *rest.Config) (*access, error) {
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	return &access{base, transport}, nil
}

// A clientTransport is the transport of all REST clients of a [Client]. REST clients keep the address that they are
// made with: it sends their requests to the address of the current access.
type clientTransport struct {
	first   *access // of the REST clients
	current atomic.Pointer[access]
	closes  atomic.Bool // the server, or a proxy, closed the connection of the last response
}

func newClientTransport(cfg *rest.Config) (*clientTransport, error) {
	first, err := newAccess(cfg)
	if err != nil {
		return nil, err
	}
	s := &clientTransport{first: first}
	s.current.Store(first)
	return s, nil
}

// RoundTrip implements [http.RoundTripper].
func (s *clientTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	current := s.current.Load()
	if *current.base != *s.first.base {
		r = r.Clone(r.Context())
		r.URL.Scheme, r.URL.Host, r.Host = current.base.Scheme, current.base.Host, ""
		path := strings.TrimPrefix(r.URL.Path, strings.TrimSuffix(s.first.base.Path, "/"))
		r.URL.Path, r.URL.RawPath = strings.TrimSuffix(current.base.Path, "/")+path, ""
	}
	response, err := current.transport.RoundTrip(r)
	if err == nil {
		s.closes.Store(response.Close)
	}
	return response, err
}

// CloseIdleConnections is what [http.Client] calls.
func (s *clientTransport) CloseIdleConnections() {
	utilnet.CloseIdleConnectionsFor(s.current.Load().transport)
}
