package lifecycle

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// A gate is a TCP proxy of the API server. It accepts connections at once, but passes nothing on until it is open, nor
// while paused is locked.
type gate struct {
	port     int
	target   string
	opened   chan struct{}
	accepted chan struct{}
	conns    sync.WaitGroup
	ended    chan struct{}
	paused   sync.RWMutex
}

func newGate(t *testing.T) *gate {
	t.Helper()
	u, err := url.Parse(api(t).Config().Host)
	must(t, err)
	g := &gate{
		port: port(t), target: u.Host,
		opened: make(chan struct{}), accepted: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", g.port))
	must(t, err)
	g.conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			select {
			case g.accepted <- struct{}{}:
			default:
			}
			g.conns.Go(func() { g.pass(conn) })
		}
	})
	t.Cleanup(func() {
		close(g.ended)
		l.Close()
		g.conns.Wait()
	})
	return g
}

// pass joins conn to the API server until one of them ends.
func (g *gate) pass(conn net.Conn) {
	defer conn.Close()
	select {
	case <-g.ended:
		return
	case <-g.opened:
	}
	server, err := net.Dial("tcp", g.target)
	if err != nil {
		return
	}
	defer server.Close()
	over := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{conn, server}, {server, conn}} {
		g.conns.Go(func() {
			_, _ = io.Copy(pausedWriter{pair[0], &g.paused}, pair[1])
			over <- struct{}{}
		})
	}
	select {
	case <-over:
	case <-g.ended:
	}
}

// A pausedWriter writes while paused is not locked.
type pausedWriter struct {
	io.Writer
	paused *sync.RWMutex
}

func (w pausedWriter) Write(b []byte) (int, error) {
	w.paused.RLock()
	defer w.paused.RUnlock()
	return w.Writer.Write(b)
}

func (g *gate) open() { close(g.opened) }

// awaitConnection waits until the gate has a connection.
func (g *gate) awaitConnection(t *testing.T) {
	t.Helper()
	select {
	case <-g.accepted:
	case <-t.Context().Done():
		t.Error("the gate got no connection")
	}
}
