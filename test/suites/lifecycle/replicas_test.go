package lifecycle

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// TestServersDiffer serves the same objects twice, from the API server and from a file. The hashes of both are equal
// while their answers are, and differ while one of them has not got a change (F27).
func TestServersDiffer(t *testing.T) {
	tier.All(t)
	ns := namespace(t, "replicas")
	imports := []string{vip(ns, "web", "10.96.11.1"), headless(ns, "db")}
	early, late := slice(ns, "db-east", "db", "east", "10.5.11.1"),
		slice(ns, "db-east", "db", "east", "10.5.11.1", "10.5.11.2")
	apply(t, append(imports, early)...)
	file := filepath.Join(t.TempDir(), "objects.yaml")
	serve := func(last string) {
		t.Helper()
		must(t, os.WriteFile(file+".new", []byte(strings.Join(append(imports, last), "---\n")), 0o600))
		must(t, os.Rename(file+".new", file))
	}
	serve(early)
	other, metrics := port(t), port(t)
	s := start(t, `clusterset.local:{port} {
	bind 127.0.0.1
	prometheus 127.0.0.1:{metrics}
	clusterset {
		kubeconfig {kubeconfig}
		namespaces {namespaces}
	}
}
clusterset.local:{other} {
	bind 127.0.0.1
	clusterset {
		manifests {file}
	}
}`, "{namespaces}", ns, "{file}", file, "{other}", fmt.Sprint(other), "{metrics}", fmt.Sprint(metrics))
	second := &server{t: t, addr: fmt.Sprintf("127.0.0.1:%d", other)}
	const question question = "db.replicas.svc.clusterset.local A"
	differ := func(want bool) {
		t.Helper()
		until.OK(t, fmt.Sprintf("hashes that differ: %t", want), func(context.Context) error {
			all, err := scrape(metrics)
			if err != nil {
				return err
			}
			hashes := all.Named("coredns_clusterset_state_hash")
			if len(hashes) != 2 || (hashes[0].Value != hashes[1].Value) != want {
				return fmt.Errorf("%v", hashes)
			}
			return nil
		})
	}
	s.await(question, "NOERROR 10.5.11.1")
	second.await(question, "NOERROR 10.5.11.1")
	differ(false)

	begin := time.Now()
	apply(t, late)
	s.await(question, "NOERROR 10.5.11.1 10.5.11.2")
	second.want(question, "NOERROR 10.5.11.1")
	differ(true)
	outages.Since(t, "F27", begin, time.Minute, "a metric says that two servers differ")

	serve(late)
	second.await(question, "NOERROR 10.5.11.1 10.5.11.2")
	differ(false)
}
