package cache

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// These share one control plane; the last one finds it stopped.
func TestInherit(t *testing.T) {
	tier.All(t)
	cp := shared(t)
	apply(t, cp, shopWeb, shopDB, dbFar, ourCluster)
	file := filepath.Join(t.TempDir(), "snapshot")
	cfg := func() Config { return Config{REST: cp.Config(), Snapshot: file, CheckInterval: 100 * time.Millisecond} }
	old := start(t, cfg())
	old.awaitNames(t, "db.shop web.shop")
	until.True(t, "our cluster is known", func() bool { return old.State().LocalCluster == "east" })
	old.settled(t)

	t.Run("options that DNS does not show", func(t *testing.T) {
		next := cfg()
		next.CheckInterval = 50 * time.Millisecond
		next.REST.QPS = 100
		r := startBeside(t, next, old.Store)
		inherited(t, r.first, old.State())
		until.True(t, "listed", func() bool {
			r.watches.mu.Lock()
			defer r.watches.mu.Unlock()
			return r.consistent()
		})
		apply(t, cp, bankPay)
		r.awaitNames(t, "pay.bank db.shop web.shop")
		until.True(t, "the publish is counted", func() bool { return r.Stats().Publishes >= 2 })
		if got := r.Stats().Publishes; got != 2 {
			t.Errorf("%d publishes, want 2: a relist without a change is none", got)
		}
		remove(t, cp, bankPay)
		r.awaitNames(t, "db.shop web.shop")
	})
	old.awaitNames(t, "db.shop web.shop")
	old.settled(t)

	cp.KillAPIServer() // It would wait for its watchers to go.
	t.Run("without the API server", func(t *testing.T) {
		next := cfg()
		next.Index = index.Options{ClusterNames: true, Zone: "z1"}
		// A wrong snapshot must not come before the inherited state.
		sn := &snapshot{Identity: old.cfg.identity(), AsOf: time.Now().Unix(), Serial: 1}
		must(t, writeFile(file, encoded(t, sn)))
		r := startBeside(t, next, old.Store)
		st := r.first
		if !st.Ready || st.Stale("", true) || names(st) != "db.shop web.shop" || hasFar(st) || st.LocalCluster != "east" {
			t.Errorf("got %s, %+v, want what is for our zone", show(st), st)
		}
		if before := old.State(); !hasFar(before) || st.Serial <= before.Serial {
			t.Errorf("serial %d, want above %d: DNS shows something else", st.Serial, before.Serial)
		}
		// And once more, before there was a list.
		again := next
		again.REST = cp.Config()
		again.Index.Zone = ""
		third := startBeside(t, again, r.Store)
		if got := third.first; !got.Ready || got.Stale("", true) || !hasFar(got) {
			t.Errorf("got %s, %+v, want what is for all zones again", show(got), got)
		}
		until.True(t, "logged", func() bool { return r.log.count("out of reach") > 0 && third.log.count("out of reach") > 0 })
		if st := r.State(); !st.Ready || st.Stale("", true) || r.Waiting() != "" || r.Silence("", true) > time.Hour {
			t.Errorf("got %+v, waiting %q, silence %v", st, r.Waiting(), r.Silence("", true))
		}
		must(t, cp.StartAPIServer(t.Context()))
		apply(t, cp, bankPay)
		r.awaitNames(t, "pay.bank db.shop web.shop")
		third.awaitNames(t, "pay.bank db.shop web.shop")
	})
}

// dbFar is a slice of db.shop that is not for all zones.
const dbFar = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  namespace: shop
  name: db-far
  labels:
    multicluster.kubernetes.io/service-name: db
    multicluster.kubernetes.io/source-cluster: west
    endpointslice.kubernetes.io/for-zone: z2
addressType: IPv4
endpoints: [{addresses: [10.2.0.7]}]
`

func hasFar(st *State) bool { return strings.Contains(show(st), "10.2.0.7") }

// inherited checks the first state of a Store that shows what old does.
func inherited(t *testing.T, got, old *State) {
	t.Helper()
	if *got != *old {
		t.Errorf("got %+v, want %+v", got, old)
	}
}

func TestInheritNothing(t *testing.T) {
	unready, err := New(Config{Name: "a", Manifests: []string{t.TempDir()}})
	must(t, err)
	foreign := ready(t, Config{Name: "b"}, 10)
	for name, from := range map[string]*Store{"not ready": unready, "other objects": foreign} {
		cfg := *unready.cfg
		s, err := New(cfg)
		must(t, err)
		s.Inherit(from)
		select {
		case <-s.Synced():
			t.Errorf("%s: synced", name)
		default:
		}
		if st := s.State(); st.Ready || st.Index.Len() != 0 || s.Waiting() == "" {
			t.Errorf("%s: got %+v, waiting %q", name, st, s.Waiting())
		}
	}
}

// State of two times is not shown: it is served as it was built.
func TestInheritDuringARelist(t *testing.T) {
	old := ready(t, Config{Name: "a"}, 20)
	for _, w := range old.all {
		w.progress = outdated
	}
	old.objects.replace(ServiceImport, "", nil)
	old.objects.replace(EndpointSlice, "", nil)
	cfg := *old.cfg
	cfg.Index.ClusterNames = false
	s, err := New(cfg)
	must(t, err)
	s.Inherit(old)
	inherited(t, s.State(), old.State())
	for _, w := range s.all {
		w.progress = listed
	}
	if s.publisher.round(); s.State().Index.Len() != 0 {
		t.Errorf("%d services after the list, want 0", s.State().Index.Len())
	}
}

// Changes that old has not published yet come along, and so does a move of the serial that is behind.
func TestInheritWhatIsNotPublished(t *testing.T) {
	old := ready(t, Config{Name: "a"}, 20)
	before := *old.State()
	old.objects.remove(ServiceImport, "ns-3/svc-3")
	old.objects.put(ClusterProperty, item{key: propertyCluster, value: "east"}, written{})
	cfg := *old.cfg
	s, err := New(cfg)
	must(t, err)
	// The serial has moved in this second, or it moves at once.
	s.publisher.now = func() time.Time { return time.Unix(int64(before.Serial), 0) }
	s.Inherit(old)
	if st := s.State(); st.Index.Len() != before.Index.Len()-1 || st.LocalCluster != "east" || st.Serial != before.Serial {
		t.Errorf("got %+v with %d services after %+v", st, st.Index.Len(), before)
	}
	if !s.publisher.behind {
		t.Error("no move of the serial is behind")
	}
}

func TestInheritKeepsThePlace(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Name: "a", Manifests: []string{dir}, TopologyNode: "n1"}
	old, err := New(cfg)
	must(t, err)
	old.objects.setTopology("z1", "r1")
	for _, w := range old.all {
		w.progress = listed
	}
	old.publisher.round()
	for node, want := range map[string]string{"n1": "z1", "n2": "", "": ""} {
		cfg.TopologyNode = node
		s, err := New(cfg)
		must(t, err)
		s.Inherit(old)
		if got := s.objects.options.Zone; got != want {
			t.Errorf("node %q: zone %q, want %q", node, got, want)
		}
	}
}

// Items that old has from a snapshot are as new as the file, or newer.
func TestInheritFromASnapshot(t *testing.T) {
	old, err := New(Config{Name: "a", Manifests: []string{t.TempDir()}})
	must(t, err)
	old.restorer.restore(testSnapshot())
	old.publisher.restore(<-old.restored)
	s, err := New(*old.cfg)
	must(t, err)
	s.Inherit(old)
	inherited(t, s.State(), old.State())
	if st := s.State(); !st.Stale("", true) || st.Index.Len() == 0 {
		t.Errorf("got %+v with %d services, want the snapshot", st, st.Index.Len())
	}
	if s.restorer.restore(testSnapshot()); len(s.restored) != 0 {
		t.Error("the snapshot is read again")
	}
}

// A reload of a frozen state may be meant to follow the other cluster.
func TestInheritFromTheFrozen(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		cfg := Config{Name: "a", REST: &rest.Config{Host: "https://192.0.2.1"}}
		old, err := New(cfg)
		must(t, err)
		old.restorer.restore(testSnapshot())
		old.publisher.restore(<-old.restored)
		old.set.ExpectUID("ours")
		if frozen {
			old.serverChecked(fmt.Errorf("check: %w", apiserver.ErrReplaced))
			old.publisher.round()
		}
		s, err := New(cfg)
		must(t, err)
		s.Inherit(old)
		if got := s.set.UID() != ""; got == frozen || !s.State().Stale("", true) || !s.State().Ready ||
			old.Stats().Frozen != frozen {
			t.Errorf("frozen %t: knows our cluster %t, state %+v", frozen, got, s.State())
		}
	}
}
