package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// TestBlocks has server blocks with different sources, one of which is never available, a block with two zones, and two
// blocks of one zone that a view separates.
func TestBlocks(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "blocks")
	apply(t, vip(ns, "web", "10.96.9.1"))
	ready := port(t)
	s := start(t, other+`
clusterset.local.:{port} west.example.:{port} {
	bind 127.0.0.1
	ready 127.0.0.1:{ready}
	clusterset clusterset.local west.example {
		kubeconfig {kubeconfig}
		namespaces blocks
		startup_timeout 90s
	}
}
files.example.:{port} {
	bind 127.0.0.1
	clusterset {
		manifests {manifests}
		startup_timeout 90s
	}
}
nowhere.example.:{port} {
	bind 127.0.0.1
	clusterset {
		kubeconfig {nowhere}
		startup_timeout 50ms
	}
}
viewed.example.:{port} {
	bind 127.0.0.1
	view tcp {
		expr proto() == 'tcp'
	}
	clusterset {
		manifests {manifests}
	}
}
viewed.example.:{port} {
	bind 127.0.0.1
	clusterset {
		kubeconfig {kubeconfig}
		namespaces blocks
		startup_timeout 90s
	}
}`,
		"{ready}", fmt.Sprint(ready), "{nowhere}", kubeconfigAt(t, port(t)),
		"{manifests}", write(t, "web.yaml", vip(ns, "web", "10.96.9.2")+"---\n"+vip(ns, "files", "10.96.9.3")))
	s.want("web.blocks.svc.clusterset.local A", "NOERROR 10.96.9.1")
	s.want("web.blocks.svc.west.example A", "NOERROR 10.96.9.1")
	s.want("_http._tcp.web.blocks.svc.west.example SRV", "NOERROR 0 100 80 web.blocks.svc.west.example.")
	s.want("files.blocks.svc.west.example A", "NXDOMAIN")
	s.want("web.blocks.svc.files.example A", "NOERROR 10.96.9.2")
	s.want("files.blocks.svc.files.example A", "NOERROR 10.96.9.3")
	s.want("web.blocks.svc.nowhere.example A", "SERVFAIL EDE14")
	s.want("web.blocks.svc.viewed.example A", "NOERROR 10.96.9.1")
	s.want("web.blocks.svc.viewed.example A tcp", "NOERROR 10.96.9.2")
	s.want(otherQuestion, otherAnswer)
	// The block of nowhere.example still waits for its list.
	awaitReady(t, ready, false)
}

// TestBlocksListTogether starts two blocks, of which the first waits for an API server behind a gate. The second one
// lists its objects meanwhile: the gate opens only when it has.
func TestBlocksListTogether(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "together")
	apply(t, vip(ns, "web", "10.96.9.4"))
	gate := newGate(t)
	written := journal.mark()
	listed := make(chan struct{})
	go func() {
		defer close(listed)
		for !strings.Contains(written(), "ServiceImport in together: listed") && t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		gate.open()
	}()
	s := start(t, `
gated.example.:{port} {
	bind 127.0.0.1
	clusterset {
		kubeconfig {gated}
		namespaces default
		startup_timeout 3m
	}
}
clusterset.local.:{port} {
	bind 127.0.0.1
	clusterset {
		kubeconfig {kubeconfig}
		namespaces together
		startup_timeout 3m
	}
}`, "{gated}", kubeconfigAt(t, gate.port))
	<-listed
	s.want("web.together.svc.clusterset.local A", "NOERROR 10.96.9.4")
	s.want("svc.gated.example A", "NOERROR")
}
