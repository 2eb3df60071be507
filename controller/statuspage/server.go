package statuspage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/page"
)

const (
	listenRetry = 5 * time.Second // between two attempts to listen
	drainTime   = 5 * time.Second // for requests that are being answered at the end, at most
)

// A Server serves the page over HTTP. Nothing of the controller depends on it: an address that cannot be listened on is
// logged and tried again.
type Server struct {
	address netip.AddrPort
	status  func(page.Query) page.Status
	log     logging.Logger
	barrier *logging.Barrier
	busy    chan struct{} // one page is made at a time; capacity 1
}

// New returns a Server at an address. status returns the contents; barrier logs and counts a panic in it.
func New(address netip.AddrPort, status func(page.Query) page.Status, log logging.Logger,
	barrier *logging.Barrier) *Server {
	return &Server{address: address, status: status, log: log, barrier: barrier, busy: make(chan struct{}, 1)}
}

// Run serves until ctx ends; it then returns nil.
func (s *Server) Run(ctx context.Context) error {
	var failure logging.OnChange[string]
	for ctx.Err() == nil {
		err := s.serve(ctx)
		if ctx.Err() != nil {
			break
		}
		if failure.Changed(err.Error()) {
			s.log.Errorf("status page: %v; trying again", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenRetry):
		}
	}
	return nil
}

// serve listens and serves until ctx ends or that fails.
func (s *Server) serve(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address.String())
	if err != nil {
		return err
	}
	s.log.Infof("status page: http://%s/", l.Addr())
	server := &http.Server{
		Handler: s, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       log.New(io.Discard, "", 0), // connections that clients break
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // ends Serve
	defer stop()
	err = server.Serve(l)
	// Requests read the parts of the controller, which end after this. Where Serve has failed by itself, its connections
	// end, too.
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	if server.Shutdown(drain) != nil {
		server.Close()
	}
	return err
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", page.Policy())
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept")
	switch {
	case !s.addressed(r.Host):
		http.Error(w, fmt.Sprintf("host %q: want an IP address or localhost", r.Host), http.StatusMisdirectedRequest)
	case r.URL.Path != "/" && r.URL.Path != "/status.json":
		http.Error(w, "want / or /status.json", http.StatusNotFound)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "want GET or HEAD", http.StatusMethodNotAllowed)
	default:
		s.answer(w, r)
	}
}

// addressed reports whether a Host header may name this server. A page of the web that has its name resolve to the
// loopback address would otherwise read the status in the browser of an administrator.
func (s *Server) addressed(host string) bool {
	if !s.address.Addr().IsLoopback() {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

// answer writes the page, as JSON if that is asked for.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	select {
	case s.busy <- struct{}{}:
	case <-r.Context().Done():
		return
	}
	var b bytes.Buffer
	accept := r.Header.Get("Accept")
	asJSON := r.URL.Path != "/" || strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
	err := errors.New("panic")
	s.barrier.Do("status page", func() string { return r.URL.Path }, func() {
		q := page.ParseQuery(r.URL.Query())
		if status := s.status(q); asJSON {
			err = page.JSON(&b, status)
		} else {
			err = page.HTML(&b, status, q)
		}
	})
	<-s.busy // slow readers block nothing
	switch {
	case err != nil:
		http.Error(w, "the page could not be made; see the log", http.StatusInternalServerError)
		return
	case asJSON:
		w.Header().Set("Content-Type", "application/json")
	default:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
	}
	_, _ = w.Write(b.Bytes()) // a client that has gone
}
