package apiserver_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/leaks"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A follower is a running set that follows the services of namespace shop.
type follower struct {
	*testing.T
	set *apiserver.Set
	// another one than the set's: that drops its connections when a check fails, as on a busy machine
	writer     *apiserver.Client
	services   cache.SharedIndexInformer
	overlay    *apiserver.Overlay[*corev1.Service]
	rolledBack atomic.Int32
	stop       func()
}

// follow starts a set, with Services and ClusterProperties. When the test or stop ends it, no goroutine is left.
func follow(t *testing.T, cfg *rest.Config, o apiserver.SetConfig) *follower {
	t.Helper()
	before := goleak.IgnoreCurrent()
	client, err := apiserver.NewClient(cfg)
	must(t, err)
	writer, err := apiserver.NewClient(cfg)
	must(t, err)
	f := &follower{T: t, writer: writer}
	o.Client, o.Name, o.Log = client, "test", logtest.To(t, "")
	o.RolledBack = func() { f.overlay.Reset(); f.rolledBack.Add(1) }
	o.Interval = cmp.Or(o.Interval, 200*time.Millisecond)
	f.set = apiserver.NewSet(o)
	f.services = f.set.Add(&corev1.Service{}, apiserver.WatchOptions{Namespace: "shop", Indexers: cache.Indexers{
		"tier": func(obj any) ([]string, error) { return []string{obj.(*corev1.Service).Labels["tier"]}, nil },
	}})
	f.set.Add(&aboutv1beta1.ClusterProperty{}, apiserver.WatchOptions{})
	f.overlay = apiserver.NewOverlay[*corev1.Service](f.services)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.set.Run(ctx) }()
	var ended bool
	f.stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		client.Close()
		writer.Close()
		leaks.None(t, before)
	}
	t.Cleanup(f.stop)
	return f
}

func (f *follower) await(names ...string) {
	f.Helper()
	until.True(f.T, "services "+strings.Join(names, " "), func() bool { return slices.Equal(f.names(), names) })
}

func (f *follower) names() []string {
	keys := f.services.GetStore().ListKeys()
	slices.Sort(keys)
	for i, key := range keys {
		keys[i] = strings.TrimPrefix(key, "shop/")
	}
	return keys
}

func service(name, tier string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"tier": tier}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func create(t *testing.T, cp *controlplane.ControlPlane, names ...string) {
	t.Helper()
	c, err := apiserver.NewClient(cp.Config())
	must(t, err)
	defer c.Close()
	if err := c.Create(
		t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}); !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
	for _, name := range names {
		must(t, c.Create(t.Context(), service(name, "gold")))
	}
}

func remove(t *testing.T, cp *controlplane.ControlPlane, name string) {
	t.Helper()
	c, err := apiserver.NewClient(cp.Config())
	must(t, err)
	defer c.Close()
	must(t, c.Delete(t.Context(), service(name, "")))
}

func TestLife(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}})
	create(t, cp, "a")

	t.Run("absent kind", func(t *testing.T) {
		f := follow(t, cp.Config(), apiserver.SetConfig{})
		f.await("a")
		until.True(t, "an absent kind", func() bool {
			return slices.Equal(f.set.Absent(), []string{"ClusterProperty"}) &&
				strings.HasPrefix(f.set.Waiting(), "ClusterProperty: ")
		})
		if f.set.Synced() || !f.set.LastContact().IsZero() {
			t.Errorf("synced %t, contact %s, want neither before ClusterProperty is known", f.set.Synced(), f.set.LastContact())
		}
		// Trouble is that of one watch: a decision that needs the other one is not held up.
		shop, property := apiserver.WatchID{Kind: "Service", Namespace: "shop"}, apiserver.WatchID{Kind: "ClusterProperty"}
		until.True(t, "a healthy watch", func() bool { return f.set.Health(shop).Healthy() })
		if !f.set.Synced(shop) || f.set.Err(shop) != nil || f.set.LastContact(shop).IsZero() {
			t.Errorf("%s: %+v, want it to be healthy", shop, f.set.Health(shop))
		}
		if h := f.set.Health(property); h.State != apiserver.Failing || h.Class != apiserver.Absent || h.Listed ||
			h.Healthy() {
			t.Errorf("%s: %+v, want that it fails as absent", property, h)
		}
		must(t, cp.InstallCRDs(t.Context(), crd.ClusterProperties))
		until.True(t, "synced, with contact to a known cluster", func() bool {
			return f.set.Synced() && f.set.Err() == nil && f.set.Waiting() == "" && len(f.set.Absent()) == 0 &&
				!f.set.LastContact().IsZero() && f.set.UID() != ""
		})
	})
	t.Run("overlay", func(t *testing.T) { testOverlay(t, cp) })
	t.Run("readers of an overlay", func(t *testing.T) { testReaders(t, cp) })
	t.Run("killed", func(t *testing.T) { testKilled(t, cp) })
	t.Run("frozen", func(t *testing.T) { testFrozen(t, cp) })
	t.Run("credential", func(t *testing.T) { testCredential(t, cp) })
	t.Run("wrong from the start", func(t *testing.T) {
		f := follow(t, cp.Config(), apiserver.SetConfig{UID: "another"})
		until.True(t, "replaced", f.set.Replaced)
		if f.set.Synced() || len(f.names()) > 0 || !strings.Contains(f.set.Waiting(), "another UID") {
			t.Errorf("services %v, waiting for %q, want nothing read of another cluster", f.names(), f.set.Waiting())
		}
	})
	t.Run("rolled back", func(t *testing.T) { testRolledBack(t, cp) })
	t.Run("replaced", func(t *testing.T) { testReplaced(t, cp) })
}

func testOverlay(t *testing.T, cp *controlplane.ControlPlane) {
	f := follow(t, cp.Config(), apiserver.SetConfig{})
	f.await("a")
	until.True(t, "a list", f.services.HasSynced)
	var late atomic.Int32 // a handler may come after the list
	_, err := f.services.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { late.Add(1) }})
	must(t, err)
	until.True(t, "what was listed before", func() bool { return late.Load() == 1 })
	kept := f.services.GetStore().List()[0].(*corev1.Service)
	copied := kept.DeepCopy()

	s := service("own", "silver")
	must(t, f.writer.Create(t.Context(), s))
	f.overlay.Wrote(s)
	silver := func() (names []string) {
		for _, s := range f.overlay.ByIndex("tier", "silver") {
			names = append(names, s.Name)
		}
		return names
	}
	if got := silver(); !slices.Equal(got, []string{"own"}) {
		t.Errorf("silver = %v right after the write, want own", got)
	}
	f.await("a", "own")
	// Somebody else's later write counts, whatever was written here.
	theirs := s.DeepCopy()
	theirs.Labels["tier"] = "gold"
	must(t, f.writer.Update(t.Context(), theirs))
	until.True(t, "their write", func() bool { return len(silver()) == 0 })
	until.True(t, "two services", func() bool { return len(f.overlay.List()) == 2 })
	// Answers may come in the wrong order: the later version stays.
	before := theirs.DeepCopy()
	theirs.Labels["tier"] = "silver"
	must(t, f.writer.Update(t.Context(), theirs))
	f.overlay.Wrote(theirs)
	if f.overlay.Wrote(before); !slices.Equal(silver(), []string{"own"}) {
		t.Error("an answer of before the last write counts")
	}
	must(t, f.writer.Delete(t.Context(), theirs))
	f.overlay.Deleted(theirs)
	f.overlay.Wrote(before)
	if f.overlay.Get("shop/own") != nil {
		t.Error("the service is there right after it was deleted")
	}
	again := service("own", "silver")
	must(t, f.writer.Create(t.Context(), again))
	until.True(t, "a service of the same name", func() bool { return slices.Equal(silver(), []string{"own"}) })
	must(t, f.writer.Delete(t.Context(), again))
	f.await("a")
	// An answer to a write from before somebody else's deletion, which comes after the watch has delivered that.
	until.True(t, "a late answer does not bring the service back", func() bool {
		f.overlay.Wrote(again.DeepCopy())
		return f.overlay.Get("shop/own") == nil
	})
	if !reflect.DeepEqual(kept, copied) {
		t.Error("an object of the informer was changed")
	}
}

// A write is shown to each reader, whatever others read meanwhile.
func testReaders(t *testing.T, cp *controlplane.ControlPlane) {
	f := follow(t, cp.Config(), apiserver.SetConfig{})
	f.await("a")
	s := service("own", "gold")
	s.Labels["n"] = "0"
	must(t, f.writer.Create(t.Context(), s))
	f.overlay.Wrote(s.DeepCopy())
	var latest atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				want := latest.Load()
				f.overlay.Get("shop/own")
				for _, s := range f.overlay.ByIndex("tier", "gold") {
					if got, err := strconv.ParseInt(s.Labels["n"], 10, 64); s.Name == "own" && (err != nil || got < want) {
						t.Errorf("write %d is shown, want at least %d: %v", got, want, err)
						return
					}
				}
			}
		})
	}
	for n := range int64(300) {
		s.Labels["n"] = strconv.FormatInt(n, 10)
		must(t, f.writer.Update(t.Context(), s))
		f.overlay.Wrote(s.DeepCopy())
		latest.Store(n)
	}
	cancel()
	readers.Wait()
	remove(t, cp, "own")
	f.await("a")
}

func testKilled(t *testing.T, cp *controlplane.ControlPlane) {
	f := follow(t, cp.Config(), apiserver.SetConfig{})
	f.await("a")
	until.True(t, "synced", func() bool { return f.set.Synced() })
	cp.KillAPIServer()
	until.True(t, "an error", func() bool { return f.set.Err() != nil })
	until.True(t, "every watch fails as unreachable", func() bool {
		for _, id := range []apiserver.WatchID{{Kind: "Service", Namespace: "shop"}, {Kind: "ClusterProperty"}} {
			if h := f.set.Health(id); h.State != apiserver.Failing || h.Class != apiserver.Unreachable || !h.Listed {
				return false
			}
		}
		return true
	})
	last := f.set.LastContact()
	if !f.set.Synced() || !slices.Equal(f.names(), []string{"a"}) {
		t.Error("what was known is gone with the server")
	}
	must(t, cp.StartAPIServer(t.Context()))
	create(t, cp, "b")
	f.await("a", "b")
	until.True(t, "contact", func() bool { return f.set.Err() == nil && f.set.LastContact().After(last) })
	remove(t, cp, "b")
	f.await("a")
	if n := f.rolledBack.Load(); n != 0 {
		t.Errorf("%d rollbacks, want 0", n)
	}
}

func testFrozen(t *testing.T, cp *controlplane.ControlPlane) {
	f := follow(t, cp.Config(), apiserver.SetConfig{})
	f.await("a")
	until.True(t, "contact", func() bool { return !f.set.LastContact().IsZero() })
	must(t, cp.Freeze())
	until.True(t, "an error", func() bool { return f.set.Err() != nil })
	silent := f.set.LastContact()
	must(t, cp.Thaw())
	until.True(t, "contact", func() bool { return f.set.Err() == nil && f.set.LastContact().After(silent) })
	create(t, cp, "b")
	f.await("a", "b")
	remove(t, cp, "b")
	// A set ends though the server does not answer.
	must(t, cp.Freeze())
	f.stop()
	must(t, cp.Thaw())
}

func testCredential(t *testing.T, cp *controlplane.ControlPlane) {
	cfg := cp.Config()
	cfg.BearerToken = "forged"
	f := follow(t, cfg, apiserver.SetConfig{})
	until.True(t, "refused", func() bool { return apierrors.IsUnauthorized(f.set.Err()) })
	if f.set.Synced() {
		t.Error("synced without a credential")
	}
	until.True(t, "a wait for the credential", func() bool { return f.set.Waiting() != "" })
}

// The rollback of a restored API server is noticed (docs/spec/dns.md 6.5), although it accepts watches from the last
// version: later writes have reached that again.
func testRolledBack(t *testing.T, cp *controlplane.ControlPlane) {
	create(t, cp, "gone")
	saved, err := cp.SaveEtcd(t.Context())
	must(t, err)
	remove(t, cp, "gone")
	create(t, cp, "never")
	cfg := cp.Config()
	var away atomic.Bool
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if away.Load() {
			return nil, syscall.ECONNREFUSED
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	f := follow(t, cfg, apiserver.SetConfig{})
	f.await("a", "never")
	var more []string
	for i := range 100 { // more than an API server writes as it starts
		more = append(more, fmt.Sprint("x", i))
	}
	create(t, cp, more...)
	until.True(t, "all", func() bool { return len(f.names()) == 2+len(more) })
	writer, err := apiserver.NewClient(cp.Config())
	must(t, err)
	defer writer.Close()
	newest := func() uint64 {
		list := &corev1.ServiceList{}
		must(t, writer.List(t.Context(), service("", ""), list, "shop", ""))
		return apiserver.VersionNumber(list.ResourceVersion)
	}
	seen := newest()
	away.Store(true)
	must(t, cp.RestoreEtcd(t.Context(), saved))
	create(t, cp, "after")
	for newest() <= seen {
		again := service("again", "")
		must(t, errors.Join(writer.Create(t.Context(), again), writer.Delete(t.Context(), again)))
	}
	away.Store(false)
	f.await("a", "after", "gone")
	until.True(t, "a call of RolledBack", func() bool { return f.rolledBack.Load() > 0 })
	until.True(t, "no error", func() bool { return f.set.Err() == nil })
	remove(t, cp, "after")
	remove(t, cp, "gone")
	f.await("a")
}

// Another cluster behind the same address changes nothing until the right one is back.
func testReplaced(t *testing.T, cp *controlplane.ControlPlane) {
	other := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{crd.ClusterProperties}})
	theirs, err := other.SaveEtcd(t.Context())
	must(t, err)
	ours, err := cp.SaveEtcd(t.Context())
	must(t, err)
	f := follow(t, cp.Config(), apiserver.SetConfig{})
	f.await("a")
	must(t, cp.RestoreEtcd(t.Context(), theirs))
	until.True(t, "replaced", f.set.Replaced)
	create(t, cp, "theirs")
	must(t, cp.RestoreEtcd(t.Context(), ours))
	until.True(t, "the right cluster", func() bool { return !f.set.Replaced() && f.set.Err() == nil })
	if got := f.names(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("services %v, want what the right cluster has", got)
	}
	create(t, cp, "b")
	f.await("a", "b")
}
