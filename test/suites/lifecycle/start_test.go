package lifecycle

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// other is a server block with another plugin in the same process, which has to answer at all times.
const other = `
other.example.:{port} {
	bind 127.0.0.1
	template IN A {
		answer "{{ .Name }} 60 IN A 192.0.2.53"
	}
}
`

const otherQuestion, otherAnswer = question("www.other.example A"), "NOERROR 192.0.2.53"

// TestAPIAbsentAtStart starts the server without an API server. It does not wait for that: it serves another zone at
// once, answers SERVFAIL in its own, with the extended error "Not Ready" to clients with EDNS, and answers everything
// once the API server is there.
func TestAPIAbsentAtStart(t *testing.T) {
	ns := namespace(t, "absent")
	apply(t, vip(ns, "web", "10.96.1.1"))
	cp := api(t)
	must(t, cp.StopAPIServer())
	defer func() { must(t, cp.StartAPIServer(t.Context())) }()

	zone := filepath.Join(t.TempDir(), "zone")
	must(t, os.WriteFile(zone, []byte("@ 60 IN SOA a. b. 1 60 60 60 60\n@ 60 IN NS a.\n*.absent.svc 60 IN TXT next\n"),
		0o600))
	ready := port(t)
	written, begin := journal.mark(), time.Now()
	s := start(t, other+`
clusterset.local.:{port} {
	bind 127.0.0.1
	ready 127.0.0.1:{ready}
	transfer {
		to *
	}
	clusterset {
		kubeconfig {kubeconfig}
		namespaces absent
		startup_timeout 90s
		fallthrough
	}
	file {zone} clusterset.local
}`, "{ready}", fmt.Sprint(ready), "{zone}", zone)

	s.await(otherQuestion, otherAnswer)
	outages.Since(t, "F3", begin, time.Second, "answer of another zone")
	if strings.Contains(written(), "starting after") {
		t.Error("the start waited for startup_timeout, although nothing answers at the address of the API server")
	}
	awaitReady(t, ready, false)
	for _, name := range []string{"web.absent.svc.clusterset.local", "none.absent.svc.clusterset.local",
		"clusterset.local"} {
		for _, kind := range []string{"A", "AAAA", "SRV", "SOA", "NS", "TXT", "ANY"} {
			q := question(name + " " + kind)
			s.want(q, "SERVFAIL EDE14")
			s.want(q+" tcp", "SERVFAIL EDE14")
			s.want(q+" noedns", "SERVFAIL")
		}
	}
	s.want("clusterset.local AXFR tcp", "SERVFAIL") // and not the zone of the plugin file

	must(t, cp.StartAPIServer(t.Context()))
	back := time.Now()
	s.await("web.absent.svc.clusterset.local A", "NOERROR 10.96.1.1")
	outages.Since(t, "F3", back, 2*time.Second, "first answer")
	s.want("web.absent.svc.clusterset.local AAAA", "NOERROR")
	// That is the plugin file, once the slices are listed, too: a service with addresses does not need them.
	s.await("none.absent.svc.clusterset.local A", "NOERROR")
	s.want(otherQuestion, otherAnswer)
	awaitReady(t, ready, true)
}

// TestCRDsComeAndGo starts the server without the CRDs: it does not wait for them.
func TestCRDsComeAndGo(t *testing.T) {
	cp := api(t)
	ns := namespace(t, "crds")
	crds := controlplane.MCSCRDs()
	must(t, cp.DeleteCRDs(t.Context(), crds...))
	installed := false
	defer func() {
		if !installed {
			must(t, cp.InstallCRDs(t.Context(), crds...))
		}
	}()
	ready := port(t)
	s := start(t, other+`
clusterset.local.:{port} {
	bind 127.0.0.1
	ready 127.0.0.1:{ready}
	clusterset {
		kubeconfig {kubeconfig}
		namespaces crds
		startup_timeout 90s
	}
}`, "{ready}", fmt.Sprint(ready))
	awaitReady(t, ready, true)
	s.want("web.crds.svc.clusterset.local A", "SERVFAIL EDE14")
	s.want(otherQuestion, otherAnswer)

	must(t, cp.InstallCRDs(t.Context(), crds...))
	installed = true
	served := time.Now()
	apply(t, vip(ns, "web", "10.96.1.2"))
	s.await("web.crds.svc.clusterset.local A", "NOERROR 10.96.1.2")
	outages.Since(t, "F16", served, 5*time.Second, "first answer after the CRDs are installed")

	// The last state is served while the CRD is away, and the new one when the CRD is installed again.
	must(t, cp.DeleteCRDs(t.Context(), crds...))
	installed = false
	must(t, cp.InstallCRDs(t.Context(), crds...))
	installed = true
	apply(t, vip(ns, "api", "10.96.1.3"))
	s.await("api.crds.svc.clusterset.local A", "NOERROR 10.96.1.3")
	s.await("web.crds.svc.clusterset.local A", "NXDOMAIN")
}

// TestCRDDeletedUnderLoad deletes the CRD of ServiceImport, and with it 20 imports, under load. All of them are served
// while it is away, and what is back then (docs/spec/dns.md 6.9). A gate holds the events back until the kind is gone:
// however slow the API server deletes, they come at once.
func TestCRDDeletedUnderLoad(t *testing.T) {
	tier.All(t)
	cp, ns := api(t), namespace(t, "withdrawn")
	imports := make([]string, 20)
	all, some := permitted{}, permitted{}
	for i := range imports {
		q := question(fmt.Sprintf("web-%d.withdrawn.svc.clusterset.local A", i))
		ip := fmt.Sprintf("10.96.13.%d", 1+i)
		imports[i] = vip(ns, fmt.Sprintf("web-%d", i), ip)
		if all[q] = []string{"NOERROR " + ip}; i%5 == 0 {
			some[q] = all[q]
		}
	}
	apply(t, imports...)
	metrics, gate := port(t), newGate(t)
	gate.open()
	s := start(t, strings.NewReplacer("{kubeconfig}", "{gated}", "startup_timeout", "stale_after 1h\n\t\tstartup_timeout",
		"bind", "prometheus 127.0.0.1:{metrics}\n\tbind").Replace(theBlock),
		"{namespaces}", ns, "{metrics}", fmt.Sprint(metrics), "{gated}", kubeconfigAt(t, gate.port))
	l := startLoad(t, s.addr, some)
	written, crds := journal.mark(), controlplane.MCSCRDs()
	installed := false
	defer func() {
		if !installed {
			must(t, cp.InstallCRDs(t.Context(), crds...))
		}
	}()
	gate.paused.Lock()
	err := cp.DeleteCRDs(t.Context(), crds...)
	gate.paused.Unlock()
	must(t, err)
	until.OK(t, "a log line", func(context.Context) error {
		return isIn(written(), "ServiceImport in withdrawn: not installed")
	})
	for q, answers := range all {
		s.want(q, answers[0])
	}
	l.more(enough)
	must(t, cp.InstallCRDs(t.Context(), crds...))
	installed = true
	apply(t, imports...)
	until.OK(t, "no import is withheld", func(context.Context) error {
		page, err := scrape(metrics)
		if got := page.Named("coredns_clusterset_withheld_imports").Sum(); err == nil && got != 0 {
			err = fmt.Errorf("%v are", got)
		}
		return err
	})
	for q, answers := range all {
		s.want(q, answers[0])
	}
	l.stop()
	outages.Measured(t, "F23", "CRD deleted with %d imports: %d answers, %d wrong or lost", len(imports),
		l.answers.Load(), len(l.wrong))
}

// TestRightsMissing starts the server with a user without rights. Only the zone of that user waits.
func TestRightsMissing(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "rights")
	apply(t, vip(ns, "web", "10.96.1.4"))
	user, err := api(t).UserKubeconfig("not-yet-allowed")
	must(t, err)
	ready := port(t)
	const strict = `
clusterset.local.:{port} {
	bind 127.0.0.1
	ready 127.0.0.1:{ready}
	clusterset {
		kubeconfig {user}
		namespaces rights
		startup_timeout 90s
		ready strict
	}
}`
	written := journal.mark()
	s := start(t, other+strict, "{ready}", fmt.Sprint(ready), "{user}", user)
	until.OK(t, "a log line", func(context.Context) error {
		return onceIn(written(), "ServiceImport in rights: rights are missing")
	})
	awaitReady(t, ready, false)
	must(t, s.reload(other+strings.Replace(strict, "ready strict", "ready shared", 1)))
	awaitReady(t, ready, true)
	s.want("web.rights.svc.clusterset.local A", "SERVFAIL EDE14")
	s.want(otherQuestion, otherAnswer)

	// What needs no slices is served without the right to see them.
	role := `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: not-yet-allowed, namespace: rights}
rules:
- {apiGroups: [multicluster.x-k8s.io], resources: [serviceimports], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: not-yet-allowed, namespace: rights}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: not-yet-allowed}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: not-yet-allowed}]
`
	apply(t, role)
	s.await("web.rights.svc.clusterset.local A", "NOERROR 10.96.1.4")
	s.want("_http._tcp.web.rights.svc.clusterset.local SRV", "NOERROR 0 100 80 web.rights.svc.clusterset.local.")
	s.want("clusterset.local NS", "NOERROR ns.dns.clusterset.local.")
	s.want("none.rights.svc.clusterset.local A", "SERVFAIL EDE14")
	s.want("east.web.rights.svc.clusterset.local A", "SERVFAIL EDE14")
	must(t, s.reload(other+strict))
	awaitReady(t, ready, false)
	s.await("web.rights.svc.clusterset.local A", "NOERROR 10.96.1.4")

	const slices = "- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}\n---\n"
	apply(t, strings.Replace(role, "---\n", slices, 1))
	s.await("none.rights.svc.clusterset.local A", "NXDOMAIN")
	awaitReady(t, ready, true)
	apply(t, vip(ns, "web", "10.96.1.5"))
	s.await("web.rights.svc.clusterset.local A", "NOERROR 10.96.1.5")
}
