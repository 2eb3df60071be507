package controlplane

import (
	"net"
	"testing"
)

func TestReservePort(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		p, err := ReservePort()
		must(t, err)
		defer func() { must(t, p.Close()) }()
		if p.Number < firstPort || p.Number >= endPort || seen[p.Number] {
			t.Fatalf("port %d after %v, want a new one from %d to %d", p.Number, seen, firstPort, endPort-1)
		}
		seen[p.Number] = true
	}
}

func TestReservedPortIsTaken(t *testing.T) {
	p, err := ReservePort()
	must(t, err)
	if again, err := reserve(p.Number); err == nil {
		_ = again.Close()
		t.Errorf("port %d was reserved twice", p.Number)
	}
	must(t, p.Close())
	again, err := reserve(p.Number)
	must(t, err)
	must(t, again.Close())
}

func TestFree(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { must(t, tcp.Close()) }()
	if err := free(tcp.Addr().(*net.TCPAddr).Port); err == nil {
		t.Errorf("free(%s) = nil while someone listens", tcp.Addr())
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer func() { must(t, udp.Close()) }()
	if err := free(udp.LocalAddr().(*net.UDPAddr).Port); err == nil {
		t.Errorf("free(%s) = nil while someone listens", udp.LocalAddr())
	}
}
