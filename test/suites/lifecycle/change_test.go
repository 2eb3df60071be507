package lifecycle

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// theBlock serves {namespaces}.
const theBlock = `
clusterset.local.:{port} {
	bind 127.0.0.1
	clusterset {
		kubeconfig {kubeconfig}
		namespaces {namespaces}
		startup_timeout 90s
	}
}`

// TestChanges changes objects under load. Each answer is that of the state before or after a change.
func TestChanges(t *testing.T) {
	ns := namespace(t, "changes")
	apply(t,
		vip(ns, "flip", "10.96.2.1"), slice(ns, "flip-east", "flip", "east", "10.1.0.1", "10.1.0.2"),
		headless(ns, "one"), headless(ns, "two"), slice(ns, "moves", "one", "east", "10.1.0.3"),
		headless(ns, "ready"), slice(ns, "ready-east", "ready", "east", "10.1.0.4", "10.1.0.5"),
	)
	s := start(t, theBlock, "{namespaces}", ns)
	const (
		flip  = question("flip.changes.svc.clusterset.local A")
		host  = question("10-1-0-1.east.flip.changes.svc.clusterset.local A")
		one   = question("one.changes.svc.clusterset.local A")
		two   = question("two.changes.svc.clusterset.local A")
		ready = question("ready.changes.svc.clusterset.local A")
	)
	l := startLoad(t, s.addr, permitted{
		flip:  {"NOERROR 10.96.2.1", "NOERROR 10.1.0.1 10.1.0.2"},
		host:  {"NXDOMAIN", "NOERROR 10.1.0.1"},
		one:   {"NXDOMAIN", "NOERROR 10.1.0.3"},
		two:   {"NXDOMAIN", "NOERROR 10.1.0.3"},
		ready: {"NXDOMAIN", "NOERROR 10.1.0.4", "NOERROR 10.1.0.4 10.1.0.5"},
	})
	for range 3 {
		s.await(flip, "NOERROR 10.96.2.1")
		s.want(host, "NXDOMAIN")
		apply(t, headless(ns, "flip"))
		s.await(flip, "NOERROR 10.1.0.1 10.1.0.2")
		s.want(host, "NOERROR 10.1.0.1")
		apply(t, vip(ns, "flip", "10.96.2.1"))

		s.await(one, "NOERROR 10.1.0.3")
		apply(t, slice(ns, "moves", "two", "east", "10.1.0.3"))
		s.await(two, "NOERROR 10.1.0.3")
		s.want(one, "NXDOMAIN")
		apply(t, slice(ns, "moves", "one", "east", "10.1.0.3"))

		s.await(ready, "NOERROR 10.1.0.4 10.1.0.5")
		apply(t, slice(ns, "ready-east", "ready", "east", "10.1.0.4", "-10.1.0.5"))
		s.await(ready, "NOERROR 10.1.0.4")
		apply(t, slice(ns, "ready-east", "ready", "east", "-10.1.0.4", "-10.1.0.5"))
		s.await(ready, "NXDOMAIN")
		apply(t, slice(ns, "ready-east", "ready", "east", "10.1.0.4", "10.1.0.5"))
	}
	s.await(ready, "NOERROR 10.1.0.4 10.1.0.5")
	l.stop()

	// A slice without its label does not count, and a namespace is deleted with everything in it.
	unlabelled := `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
  metadata: {name: moves, namespace: changes}, endpoints: [{addresses: [10.1.0.3]}]}`
	s.await(one, "NOERROR 10.1.0.3")
	apply(t, unlabelled)
	s.await(one, "NXDOMAIN")
	remove(t, namespaceYAML(ns))
	for _, q := range []question{flip, one, two, ready, "changes.svc.clusterset.local A"} {
		s.await(q, "NXDOMAIN")
	}
	s.want("svc.clusterset.local A", "NOERROR")
}

// TestAPIKilledUnderLoad kills and starts the API server under load, and each third time stops it and lets it go on.
// The last state is served until it is back. The log has one line about the begin of an outage, and one about its end.
func TestAPIKilledUnderLoad(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "killed")
	east := make([]string, 20)
	var all string
	for i := range east {
		east[i] = fmt.Sprintf("10.2.0.%d", 100+i)
		all += " " + east[i]
	}
	apply(t, vip(ns, "web", "10.96.3.1"), headless(ns, "db"), slice(ns, "db-east", "db", "east", east...))
	// However long a start of the API server takes, answers are not marked as stale.
	s := start(t, strings.Replace(theBlock, "startup_timeout", "stale_after 1h\n\t\tstartup_timeout", 1), "{namespaces}", ns)
	const web, db = question("web.killed.svc.clusterset.local A"), question("db.killed.svc.clusterset.local A")
	s.want(db, "NOERROR"+all)
	l := startLoad(t, s.addr, permitted{
		web: {"NOERROR 10.96.3.1", "NOERROR 10.96.3.2"},
		db:  {"NOERROR" + all},
		"100.east.db.killed.svc.clusterset.local A":        {"NXDOMAIN"},
		"10-2-0-100.east.db.killed.svc.clusterset.local A": {"NOERROR 10.2.0.100"},
		"_http._tcp.web.killed.svc.clusterset.local SRV":   {"NOERROR 0 100 80 web.killed.svc.clusterset.local."},
	})
	cp := api(t)
	server := "kubeconfig " + cp.Kubeconfig()
	var before usage
	begin := time.Now()
	for i := 0; i < 3 || time.Since(begin) < *soak; i++ {
		if i == 1 { // after the allocations that are made once
			before = used()
		}
		if i%3 == 2 {
			must(t, cp.Freeze())
			l.more(enough)
			must(t, cp.Thaw())
		} else {
			written := journal.mark()
			cp.KillAPIServer()
			until.OK(t, "one log line", func(context.Context) error { return onceIn(written(), server+": out of reach: ") })
			l.more(enough)
			must(t, cp.StartAPIServer(t.Context()))
			until.OK(t, "one log line", func(context.Context) error { return onceIn(written(), server+": reached ") })
		}
		// The new watches see the next writes.
		back, ip := time.Now(), fmt.Sprintf("10.96.3.%d", 2-i%2)
		apply(t, vip(ns, "web", ip))
		s.await(web, "NOERROR "+ip)
		outages.Since(t, "F2", back, 5*time.Second, "change visible")
		if i%2 == 0 {
			apply(t, headless(ns, "more"), slice(ns, "more-east", "more", "east", "10.2.0.90", "10.2.0.91"))
			s.await("more.killed.svc.clusterset.local A", "NOERROR 10.2.0.90 10.2.0.91")
		} else {
			remove(t, headless(ns, "more"), slice(ns, "more-east", "more", "east"))
			s.await("more.killed.svc.clusterset.local A", "NXDOMAIN")
		}
	}
	l.stop()
	before.awaitFlat(t, time.Since(begin))
	outages.Measured(t, "F1", "%d answers, %d wrong, %d datagrams lost", l.answers.Load(), len(l.wrong), l.lost.Load())
}

// TestStaleAfter stops the API server. Answers are marked as stale after stale_after, until it is back.
func TestStaleAfter(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "stale")
	apply(t, vip(ns, "web", "10.96.4.1"))
	ready, metrics := port(t), port(t)
	s := start(t, `
clusterset.local.:{port} {
	bind 127.0.0.1
	ready 127.0.0.1:{ready}
	prometheus 127.0.0.1:{metrics}
	clusterset {
		kubeconfig {kubeconfig}
		namespaces stale
		startup_timeout 90s
		stale_after 2s
	}
}`, "{ready}", fmt.Sprint(ready), "{metrics}", fmt.Sprint(metrics))
	silent := func(context.Context) error {
		all, err := scrape(metrics)
		if err != nil {
			return err
		}
		for _, watch := range all.Named("coredns_clusterset_last_contact_seconds") {
			if watch.Value < 2 {
				return fmt.Errorf("%v: want at least stale_after", watch)
			}
		}
		return nil
	}
	const web, none = question("web.stale.svc.clusterset.local A"), question("none.stale.svc.clusterset.local A")
	s.await(web, "NOERROR 10.96.4.1")
	written := journal.mark()
	must(t, api(t).Freeze())
	s.await(web, "NOERROR EDE3 10.96.4.1")
	until.OK(t, "a log line", func(context.Context) error {
		return isIn(written(), "clusterset.local.: answers are stale: ")
	})
	until.OK(t, "a metric that says so", silent)
	must(t, wantReady(ready, true))
	s.want(web+" noedns", "NOERROR 10.96.4.1")
	s.want(none, "NXDOMAIN EDE19")
	s.want("clusterset.local MX", "NOERROR EDE3")
	must(t, api(t).Thaw())
	s.await(web, "NOERROR 10.96.4.1")
	until.OK(t, "a log line", func(context.Context) error {
		return isIn(written(), "clusterset.local.: no answer is stale any longer")
	})
	until.OK(t, "a metric that says so", func(ctx context.Context) error {
		if silent(ctx) == nil {
			return errors.New("all watches are silent for stale_after")
		}
		return nil
	})
	api(t).KillAPIServer()
	s.await(none, "NXDOMAIN EDE19")
	must(t, api(t).StartAPIServer(t.Context()))
	s.await(none, "NXDOMAIN")
	s.await(web, "NOERROR 10.96.4.1")
}

// isIn returns nil if text is in log. An API server that is slow for stale_after makes answers stale for a moment, too.
func isIn(log, text string) error {
	if !strings.Contains(log, text) {
		return fmt.Errorf("no line with %q", text)
	}
	return nil
}

// onceIn returns nil if text is in log once.
func onceIn(log, text string) error {
	if n := strings.Count(log, text); n != 1 {
		return fmt.Errorf("%d lines with %q, want 1", n, text)
	}
	return nil
}

var soak = flag.Duration("soak", 0, "how long TestAPIKilledUnderLoad goes on")

// usage is what this process uses, its log apart.
type usage struct{ heap, goroutines, descriptors int }

func used() usage {
	open, _ := os.ReadDir("/proc/self/fd") // none but on Linux
	return usage{int(heap()) - len(journal.String()), runtime.NumGoroutine(), len(open)}
}

// awaitFlat waits until this process uses hardly more than u, and half a megabyte for each hour.
func (u usage) awaitFlat(t *testing.T, since time.Duration) {
	t.Helper()
	most := usage{u.heap + 4<<20 + int(since.Hours()*500_000), u.goroutines + 5, u.descriptors + 5}
	var now usage
	until.OK(t, "memory, goroutines and descriptors as before", func(context.Context) error {
		if now = used(); now.heap > most.heap || now.goroutines > most.goroutines || now.descriptors > most.descriptors {
			return fmt.Errorf("%+v, want at most %+v", now, most)
		}
		return nil
	})
	outages.Measured(t, "F26", "heap %+.1f MB, goroutines %+d, descriptors %+d in %s",
		float64(now.heap-u.heap)/1e6, now.goroutines-u.goroutines, now.descriptors-u.descriptors, since.Round(time.Second))
}
