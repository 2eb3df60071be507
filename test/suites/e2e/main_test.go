// Package e2e compares the answers of a server on real sockets with golden files and with CoreDNS's plugin kubernetes.
// The objects are in a real API server.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/nsid"
	_ "github.com/coredns/coredns/plugin/transfer"
	"github.com/miekg/dns"

	_ "github.com/clusterset-dns/clusterset"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/golden"
	"github.com/clusterset-dns/clusterset/test/harness/program"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

func TestMain(m *testing.M) {
	// The order is that of cmd/coredns.
	err := dnsserver.SetDirectives([]string{"nsid", "bind", "errors", "transfer", "clusterset", "file"})
	if err != nil {
		panic(err)
	}
	caddy.Quiet, dnsserver.Quiet = true, true
	log.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// start starts CoreDNS with this Corefile. It is stopped with the test.
func start(t *testing.T, corefile string) {
	t.Helper()
	instance, err := caddy.Start(caddy.CaddyfileInput{
		Filepath: "Corefile", Contents: []byte(corefile), ServerTypeName: "dns",
	})
	if err != nil {
		t.Fatalf("%s\n%s", err, corefile)
	}
	t.Cleanup(func() {
		for _, err := range instance.ShutdownCallbacks() {
			t.Error(err)
		}
		if err := instance.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// port reserves a port until the test ends. Call it before start: then the server ends first.
func port(t *testing.T) *controlplane.Port {
	t.Helper()
	p, err := controlplane.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// block returns a server block on a port of loopback.
func block(zones []string, p *controlplane.Port, body string) string {
	var keys []string
	for _, z := range zones {
		keys = append(keys, fmt.Sprintf("%s:%d", z, p.Number))
	}
	return strings.Join(keys, " ") + " {\nbind 127.0.0.1\n" + body + "}\n"
}

// dig asks all questions of a file with one run of dig.
func dig(t *testing.T, p *controlplane.Port, questions []golden.Question, transport string) []golden.Reply {
	t.Helper()
	var batch bytes.Buffer
	for _, q := range questions {
		// In a batch, dig forgets the question if it stands behind the options.
		fmt.Fprintf(&batch, "@127.0.0.1 -p %d -t %s -q %s +noall +comments +answer +authority +additional "+
			"+noidnin +noidnout %s +ignore +time=60 +tries=1 +nocookie +bufsize=%d\n",
			p.Number, dns.TypeToString[q.Type], q.Name, transport, golden.Bufsize)
	}
	path := filepath.Join(t.TempDir(), "batch")
	if err := os.WriteFile(path, batch.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), until.Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, program.Find(t, "dig"), "-r", "-f", path).CombinedOutput()
	if err != nil {
		t.Fatalf("dig: %s\n%s", err, out)
	}
	replies, err := golden.ParseDig(string(out))
	if err != nil {
		t.Fatal(err)
	}
	if len(replies) != len(questions) {
		t.Fatalf("dig shows %d replies to %d questions:\n%s", len(replies), len(questions), out)
	}
	return replies
}
