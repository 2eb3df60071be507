package faults

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A relay is a TCP proxy of an API server that can be cut. Of several API servers it takes the first that accepts
// connections.
type relay struct {
	listener net.Listener
	targets  []string // host and port

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{} // both ends of all connections
	wg    sync.WaitGroup
}

// newRelay starts a relay that ends with the test.
func newRelay(t testing.TB, targets ...string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, targets: targets, conns: make(map[net.Conn]struct{})}
	r.wg.Go(r.accept)
	t.Cleanup(func() {
		l.Close()
		r.sever()
		r.wg.Wait()
	})
	return r
}

func (r *relay) url() string { return "https://" + r.listener.Addr().String() }

func (r *relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.pass(conn) })
	}
}

func (r *relay) pass(conn net.Conn) {
	defer conn.Close()
	to, err := r.dial()
	if err != nil {
		return
	}
	defer to.Close()
	if !r.keep(conn, to) {
		return
	}
	defer r.forget(conn, to)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(to, conn)
		to.Close()
	}()
	_, _ = io.Copy(conn, to)
	conn.Close()
	<-over
}

func (r *relay) dial() (to net.Conn, err error) {
	for _, target := range r.targets {
		if to, err = net.Dial("tcp", target); err == nil {
			return to, nil
		}
	}
	return nil, err
}

func (r *relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.conns[c] = struct{}{}
	}
	return !r.cut
}

func (r *relay) forget(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		delete(r.conns, c)
	}
}

// sever closes all connections, and later ones at once.
func (r *relay) sever() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	for c := range r.conns {
		c.Close()
	}
}

// mend passes connections on again.
func (r *relay) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = false
}
