package controlplane

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
)

// A Port is a number that was free at 127.0.0.1, for UDP and TCP, when it was reserved. No other caller of
// [ReservePort] gets it, in this or another process, until it is closed.
type Port struct {
	Number int
	held   io.Closer
}

// Ports from 32768 up are source ports of outgoing connections: a server that comes back could find its own taken.
const firstPort, endPort = 10000, 32768

// ReservePort finds a free port, for a test server that must come back on the same one.
func ReservePort() (*Port, error) {
	var last error
	for range 100 {
		n := firstPort + rand.IntN(endPort-firstPort)
		held, err := reserve(n)
		if err != nil {
			last = err
			continue
		}
		if last = free(n); last == nil {
			return &Port{Number: n, held: held}, nil
		}
		held.Close()
	}
	return nil, fmt.Errorf("no free port from %d to %d: %w", firstPort, endPort-1, last)
}

// Close gives the number back.
func (p *Port) Close() error { return p.held.Close() }

func (p *Port) String() string { return fmt.Sprintf("127.0.0.1:%d", p.Number) }

func free(port int) error {
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	l.Close()
	u, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	return u.Close()
}
