package lifecycle

import (
	"fmt"
	"testing"
)

// TestBlocks: two server blocks with sources of their own, of which one never comes, two zones in one block, and blocks that
// a view tells apart.
func TestBlocks(t *testing.T) {
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
	// One block of the process waits for a list that can come.
	must(t, wantReady(ready, false))
}

// TestBlocksWaitTogether: the time that one block waits in vain is not lost for another one.
func TestBlocksWaitTogether(t *testing.T) {
	ns := namespace(t, "together")
	apply(t, vip(ns, "web", "10.96.9.4"))
	nowhere := ""
	for i := range 3 {
		nowhere += fmt.Sprintf(`
nowhere%d.example.:{port} {
	bind 127.0.0.1
	clusterset {
		kubeconfig %s
		startup_timeout 3s
	}
}`, i, kubeconfigAt(t, port(t)))
	}
	s := start(t, nowhere+`
clusterset.local.:{port} {
	bind 127.0.0.1
	clusterset {
		kubeconfig {kubeconfig}
		namespaces together
		startup_timeout 3s
	}
}`)
	s.want("web.together.svc.clusterset.local A", "NOERROR 10.96.9.4")
	s.want("web.together.svc.nowhere1.example A", "SERVFAIL EDE14")
}
