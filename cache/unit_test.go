package cache

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

func TestAdvance(t *testing.T) {
	tests := []struct {
		name       string
		serial     uint32
		now, moved float64
		want       uint32
	}{
		{name: "first change of a second", serial: 100, now: 105.9, want: 105},
		{name: "second change of a second waits", serial: 105, now: 105.95, moved: 105.9, want: 105},
		{name: "until the second is over", serial: 105, now: 106, moved: 105.9, want: 106},
		{name: "the serial is of this second, and from a file", serial: 105, now: 105.5, want: 105},
		{name: "the clock was ahead", serial: 105, now: 90, want: 106},
		{name: "at most once a second", serial: 106, now: 90.9, moved: 90, want: 106},
		{name: "until the clock has caught up", serial: 106, now: 91, moved: 90, want: 107},
		{name: "the clock went back", serial: 105, now: 90, moved: 105.9, want: 105},
	}
	at := func(seconds float64) time.Time { return time.UnixMilli(int64(seconds * 1000)) }
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := nextSerial(tt.serial, at(tt.now), at(tt.moved)); got != tt.want {
				t.Errorf("advance(%d, %v, %v) = %d, want %d", tt.serial, tt.now, tt.moved, got, tt.want)
			}
		})
	}
}

// Each change gets a serial, once a second, also while the clock is behind the serial of a snapshot
// (docs/spec/dns.md 5.3).
func TestSerialAfterTheClockWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ready(t, Config{}, 20)
		ahead := s.State().Serial + 3600
		s.publisher.restore(restored{serial: ahead})
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- s.publisher.run(ctx) }()
		for i := range uint32(5) {
			s.objects.remove(ServiceImport, fmt.Sprintf("ns-%d/svc-%d", i, i))
			time.Sleep(time.Second) // of the clock of the bubble
			synctest.Wait()
			if got := s.State().Serial; got != ahead+1+i {
				t.Errorf("serial %d after %d changes in as many seconds, want %d", got, 1+i, ahead+1+i)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A service that takes 25 ms to build and changes each millisecond costs a fifth of a core, and a change is served
// within 250 ms (docs/spec/dns.md 6.10).
func TestPauseAfterARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ready(t, Config{}, 20)
		builds := 0
		s.publisher.buildService = func(b *batch, j *job, old *index.Service) *index.Service {
			builds++
			time.Sleep(25 * time.Millisecond) // of the clock of the bubble
			return b.build(j, old)
		}
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- s.publisher.run(ctx) }()
		var last item
		for i := range 2000 {
			last = item{key: "ns-1/svc-1", imp: index.NewImport(index.ImportSpec{
				Namespace: "ns-1", Name: "svc-1", Type: index.ClusterSetIP, VIP: true,
				IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)})},
			})}
			s.objects.put(ServiceImport, last, written{})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		if builds < 8 || builds > 18 {
			t.Errorf("%d builds in 2 s, want 16", builds)
		}
		if got := s.State().Index.Service("svc-1.ns-1"); got == nil ||
			!index.Equal(got, index.Build(last.imp, nil, index.Options{ClusterNames: true})) &&
				got.Import != last.imp {
			t.Errorf("the last change is not served: %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// 3,000 changes of endpoints a second are served while all services are read: the last of each service in the end. How
// long they take, make faults compares with its bound.
func TestThousandsOfChanges(t *testing.T) {
	const services, changes = 100, 6000
	var took []time.Duration // appended to by the publisher alone
	s := ready(t, Config{Latency: func(_, sinceReceived time.Duration) { took = append(took, sinceReceived) }}, 3*services)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.publisher.run(ctx) }()
	var reader sync.WaitGroup
	reader.Go(func() {
		for ctx.Err() == nil {
			for _, service := range s.State().Index.All() {
				list := service.Addresses(index.V4)
				list.Len()
			}
			time.Sleep(time.Millisecond)
		}
	})
	last := make(map[string]netip.Addr)
	begin := time.Now()
	for i := range changes {
		n := 3 * (i % services) // the headless ones of testObjects
		key, name := fmt.Sprintf("ns-%d/svc-%d-0", n%100, n), fmt.Sprintf("svc-%d.ns-%d", n, n%100)
		last[name] = netip.AddrFrom4([4]byte{12, byte(i >> 16), byte(i >> 8), byte(i)})
		s.objects.put(EndpointSlice, item{key: key, service: name, slice: index.NewSlice(index.SliceSpec{
			Cluster: "c0", Endpoints: []index.Endpoint{{Host: "h", Addrs: []netip.Addr{last[name]}}},
		})}, time.Now())
		time.Sleep(time.Until(begin.Add(time.Duration(i) * 2 * time.Second / changes)))
	}
	for name, addr := range last {
		until.True(t, "the last change of "+name, func() bool { return strings.Contains(show(s.State()), addr.String()+",") })
	}
	cancel()
	reader.Wait()
	must(t, <-done)
	slices.Sort(took)
	if len(took) == 0 {
		t.Fatal("no change was observed")
	}
	outages.Took(t, "F22", took[len(took)*99/100], 250*time.Millisecond,
		fmt.Sprintf("p99 until %d changes were served, in %d publications", changes, s.Stats().Publishes))
}

func TestRejections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rejections
		port, name := Rejection{BadPort, ""}, Rejection{BadPortName, ""}
		for _, s := range []struct {
			name     string
			after    time.Duration
			rejected []Rejection
			added    int
		}{
			{"logged once", 0, []Rejection{port}, 1},
			{"not again", 0, []Rejection{port}, 0},
			{"not again after hours", 3 * time.Hour, []Rejection{port}, 0},
			{"a new reason", 0, []Rejection{port, name}, 1},
			{"mended", time.Minute, nil, 0},
			{"broken again: logged a minute ago", 0, []Rejection{port}, 0},
			{"mended again", 2 * time.Hour, nil, 0},
			{"broken again hours later", 2 * time.Hour, []Rejection{port}, 1},
		} {
			time.Sleep(s.after)
			if got := len(r.note(EndpointSlice, "a/b", s.rejected)); got != s.added {
				t.Errorf("%s: %d added, want %d", s.name, got, s.added)
			}
		}
		if got := r.counts[EndpointSlice][BadPort]; got != 3 {
			t.Errorf("counted %d, want 3: each time that it was broken", got)
		}
		logged := 0
		for range 1000 { // an object that is made, deleted, and lost from a list
			logged += len(r.note(EndpointSlice, "c/d", []Rejection{port}))
			r.forget(EndpointSlice, "c/d")
			logged += len(r.note(EndpointSlice, "c/d", []Rejection{port}))
			r.retain(EndpointSlice, "c", nil)
			time.Sleep(time.Minute)
		}
		if logged < 10 || logged > 17 {
			t.Errorf("logged %d times in 1,000 minutes, want about once an hour", logged)
		}
	})
}

// Memory is bounded; objects that are no longer rejected give way.
func TestRejectionsAreBounded(t *testing.T) {
	var r rejections
	port := []Rejection{{BadPort, ""}}
	r.note(EndpointSlice, "a/b", port)
	r.note(EndpointSlice, "c/d", port)
	r.retain(EndpointSlice, "a", nil)
	if r.known[EndpointSlice]["c/d"].current == 0 || r.known[EndpointSlice]["a/b"].current != 0 || r.n != 2 || r.over != 1 {
		t.Errorf("retain in scope a left %v, %d known, %d over", r.known[EndpointSlice], r.n, r.over)
	}
	for i := range 2 * maxKnown {
		r.note(ServiceImport, fmt.Sprint(i), port)
	}
	if len(r.known[EndpointSlice]) != 1 || r.n != maxKnown || r.over != 0 ||
		r.counts[ServiceImport][BadPort] != 2*maxKnown {
		t.Errorf("%v, %d known, %d over, %d counted, want %d, 0, %d", r.known[EndpointSlice], r.n, r.over,
			r.counts[ServiceImport][BadPort],
			maxKnown, 2*maxKnown)
	}
}

func TestWriteTime(t *testing.T) {
	second := func(n int64) metav1.Time { return metav1.Unix(n, 0) }
	obj := &discoveryv1.EndpointSlice{}
	if got := writeTime(obj); !got.IsZero() {
		t.Errorf("of nothing: %v", got)
	}
	obj.CreationTimestamp = second(10)
	if got := writeTime(obj).Unix(); got != 10 {
		t.Errorf("of a new object: %v", got)
	}
	obj.ManagedFields = []metav1.ManagedFieldsEntry{{Time: ptr(second(30))}, {Time: ptr(second(20))}, {}}
	if got := writeTime(obj).Unix(); got != 30 {
		t.Errorf("of a changed object: %v", got)
	}
	obj.Annotations = map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": "1970-01-01T00:00:25.5Z"}
	if got := writeTime(obj).UnixMilli(); got != 25_500 {
		t.Errorf("with a trigger: %v", got)
	}
}

// testObjects makes n imports, every third Headless, with two slices of ten endpoints each.
func testObjects(n int) (imports, slices []item) {
	for i := range n {
		namespace, name := fmt.Sprintf("ns-%d", i%100), fmt.Sprintf("svc-%d", i)
		spec := index.ImportSpec{Namespace: namespace, Name: name, Type: index.ClusterSetIP, VIP: true,
			IPs:   []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})},
			Ports: index.NewPorts([]index.Port{{Name: "http", Proto: index.TCP, Number: 80}})}
		if i%3 == 0 {
			spec.Type, spec.VIP, spec.IPs = index.Headless, false, nil
		}
		imports = append(imports, item{key: namespace + "/" + name, imp: index.NewImport(spec)})
		for c := range 2 {
			s := index.SliceSpec{Cluster: fmt.Sprintf("c%d", c), Zone: "z", Ports: spec.Ports}
			for e := range 10 {
				s.Endpoints = append(s.Endpoints, index.Endpoint{
					Host:  fmt.Sprintf("h-%d", e),
					Addrs: []netip.Addr{netip.AddrFrom4([4]byte{11 + byte(c), byte(i >> 8), byte(i), byte(e)})},
				})
			}
			slices = append(slices, item{
				key: fmt.Sprintf("%s/%s-%d", namespace, name, c), service: name + "." + namespace, slice: index.NewSlice(s),
			})
		}
	}
	return imports, slices
}

func testSnapshot() *snapshot {
	sn := &snapshot{Identity: "test", UID: "u", AsOf: 1_700_000_000, Serial: 1_700_000_001}
	sn.Items[ServiceImport], sn.Items[EndpointSlice] = testObjects(50)
	sn.Items[ClusterProperty] = []item{{key: propertyCluster, value: "east"}}
	return sn
}

func TestSnapshotReadsWhatItWrote(t *testing.T) {
	want := testSnapshot()
	got, err := decodeSnapshot(encoded(t, want))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSnapshotRefusesWhatIsBroken(t *testing.T) {
	whole := encoded(t, testSnapshot())
	for _, i := range []int{0, len(snapshotMagic) - 2, len(snapshotMagic) + 1, len(whole) / 2, len(whole) - 1} {
		b := bytes.Clone(whole)
		b[i]++
		if _, err := decodeSnapshot(b); err == nil {
			t.Errorf("octet %d changed: no error", i)
		}
	}
	for _, n := range []int{0, 10, len(snapshotMagic), len(whole) / 2, len(whole) - 1} {
		if _, err := decodeSnapshot(whole[:n]); err == nil {
			t.Errorf("cut to %d octets: no error", n)
		}
	}
}

func encoded(t *testing.T, sn *snapshot) []byte {
	t.Helper()
	b, err := sn.encode()
	must(t, err)
	return b
}

func TestSnapshotFits(t *testing.T) {
	sn := testSnapshot()
	now := sn.time().Add(time.Hour)
	if err := sn.checkUse("test", "u", time.Hour, now); err != nil {
		t.Error(err)
	}
	if err := sn.checkUse("test", "u", time.Hour-1, now); err == nil {
		t.Error("too old: no error")
	}
	if err := sn.checkUse("other", "u", time.Hour, now); err == nil {
		t.Error("of another configuration: no error")
	}
	if err := sn.checkUse("test", "v", time.Hour, now); err == nil {
		t.Error("of another cluster: no error")
	}
	if err := sn.checkUse("test", "", time.Hour, now); err != nil {
		t.Errorf("without a known cluster: %v", err)
	}
}

func TestWriteFileLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "snapshot")
	for _, content := range []string{"a", "b"} {
		if err := writeFile(name, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(name); string(got) != content {
			t.Errorf("got %q, want %q", got, content)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("got %v, want one file", entries)
	}
	// A crash leaves one file, which the next write replaces.
	write(t, filepath.Join(dir, ".snapshot.next"), "half of")
	if err := writeFile(name, []byte("c")); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("got %v, want one file", entries)
	}
	// On a full disk the old content stays. Where there is no such device, it cannot be created either.
	if err := os.Symlink("/dev/full", filepath.Join(dir, ".snapshot.next")); err != nil {
		t.Fatal(err)
	}
	err := writeFile(name, []byte("d"))
	if content, _ := os.ReadFile(name); string(content) != "c" || err == nil {
		t.Errorf("full disk: %v, and the file has %q, want an error and %q", err, content, "c")
	}
	// The same error has the same text each time, so that it is logged once.
	none := filepath.Join(dir, "none", "snapshot")
	first, second := writeFile(none, nil), writeFile(none, nil)
	if first == nil || second == nil || first.Error() != second.Error() {
		t.Errorf("folder that is not there: %v, then %v, want the same error", first, second)
	}
}

// A new Store looks at all that the one before has shown, also at an import without a name that may be gone meanwhile:
// its note would say for ever why the name does not exist.
func TestAllIsDirty(t *testing.T) {
	edit := new(index.Index).Edit()
	edit.SetNameless("db.shop", index.NewImport(index.ImportSpec{Namespace: "shop", Name: "db", Type: index.Headless}))
	edit.Put(index.Build(index.NewImport(index.ImportSpec{Namespace: "shop", Name: "web", Type: index.ClusterSetIP}), nil,
		index.Options{}))
	o := newObjects(index.Options{}, false)
	o.markAllDirty(edit.Index())
	var keys []string
	for _, j := range o.drain().jobs {
		keys = append(keys, j.key)
	}
	if slices.Sort(keys); !slices.Equal(keys, []string{"db.shop", "web.shop"}) {
		t.Errorf("dirty: %q, want the service and the import without a name", keys)
	}
}

// Whatever the order of changes, the kept state is that of a fresh list of the same objects, and a relist of it makes
// nothing dirty.
func TestObjectsAgreeWithAList(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	imports, list := testObjects(30)
	o := newObjects(index.Options{}, false)
	now := map[Kind]map[string]item{ServiceImport: {}, EndpointSlice: {}}
	for range 5000 {
		kind, it := ServiceImport, imports[rnd.IntN(len(imports))]
		if rnd.IntN(3) > 0 {
			kind, it = EndpointSlice, list[rnd.IntN(len(list))]
			it.service = imports[rnd.IntN(len(imports))].imp.Key() // relabelled
		}
		if rnd.IntN(3) == 0 {
			o.remove(kind, it.key)
			delete(now[kind], it.key)
			continue
		}
		o.put(kind, it, written{})
		now[kind][it.key] = it
	}
	fresh := newObjects(index.Options{}, false)
	for kind, items := range now {
		var all []item
		for _, it := range items {
			all = append(all, it)
		}
		fresh.replace(kind, "", all)
	}
	if got, want := built(o, imports), built(fresh, imports); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if !reflect.DeepEqual(o.endpoints, fresh.endpoints) {
		t.Errorf("endpoints %v, want %v", o.endpoints, fresh.endpoints)
	}
	o.drain()
	for kind, items := range now {
		var all []item
		for _, it := range items {
			if it.imp != nil {
				it.imp = index.NewImport(it.imp.Spec()) // an equal one
			}
			all = append(all, it)
		}
		o.replace(kind, "", all)
	}
	if b := o.drain(); len(b.jobs) != 0 {
		t.Errorf("a relist without a change: %d services dirty", len(b.jobs))
	}
}

// built shows all services that come out of o.
func built(o *objects, imports []item) string {
	for _, it := range imports {
		o.markDirty(it.imp.Key(), written{})
	}
	b := o.drain()
	edit := new(index.Index).Edit()
	for i := range b.jobs {
		if s := b.build(&b.jobs[i], nil); s != nil {
			edit.Put(s)
		}
	}
	return show(&State{Index: edit.Index()})
}

func TestReplaceKeepsOtherNamespaces(t *testing.T) {
	imports, list := testObjects(10)
	o := newObjects(index.Options{}, false)
	o.replace(ServiceImport, "", imports)
	o.replace(EndpointSlice, "", list)
	o.drain()
	o.replace(ServiceImport, "ns-3", nil)
	o.replace(EndpointSlice, "ns-3", nil)
	b := o.drain()
	if len(b.jobs) != 1 || b.jobs[0].key != "svc-3.ns-3" {
		t.Errorf("dirty %v, want svc-3.ns-3", b.jobs)
	}
	if len(o.imports) != 9 || len(o.slices) != 18 {
		t.Errorf("%d imports, %d slices left, want 9, 18", len(o.imports), len(o.slices))
	}
}

func TestTouchKeepsTheOldestWrite(t *testing.T) {
	o := newObjects(index.Options{}, false)
	at := func(n int64) written { return time.Unix(n, 0) }
	for _, w := range []written{{}, at(5), {}, at(3), at(4)} {
		o.markDirty("a.b", w)
	}
	if got := o.dirty["a.b"].written; got.Unix() != 3 {
		t.Errorf("got %v, want 3", got)
	}
}

func TestSubscribeGetsTheNewest(t *testing.T) {
	s, err := New(Config{Manifests: []string{t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	serials, cancel := s.Subscribe()
	s.notify(1)
	s.notify(2)
	if got := <-serials; got != 2 {
		t.Errorf("got %d, want 2", got)
	}
	cancel()
	cancel()
	s.notify(3)
	if _, ok := <-serials; ok {
		t.Error("open after cancel")
	}
}

func TestNewRefuses(t *testing.T) {
	for _, cfg := range []Config{{}, {Manifests: []string{filepath.Join(t.TempDir(), "none")}}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("New(%+v): no error", cfg)
		}
	}
}

func TestKindAndReasonNames(t *testing.T) {
	var all []string
	for k := range kinds {
		all = append(all, k.String())
	}
	for r := range reasons {
		all = append(all, r.String())
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != int(kinds)+int(reasons) || strings.Contains(strings.Join(all, " "), "  ") {
		t.Errorf("names %v are not distinct", all)
	}
}

// ready makes a Store of manifests that has n services, without Run.
func ready(t *testing.T, cfg Config, n int) *Store {
	t.Helper()
	cfg.Manifests = []string{t.TempDir()}
	cfg.Index.ClusterNames = true
	s, err := New(cfg)
	must(t, err)
	imports, list := testObjects(n)
	s.objects.replace(ServiceImport, "", imports)
	s.objects.replace(EndpointSlice, "", list)
	for _, w := range s.all {
		w.progress = listed
	}
	s.markContacts()
	s.publisher.round()
	if !s.State().Ready {
		t.Fatal("not ready")
	}
	return s
}

// A start waits for the first state to be published, not only for the lists that it is built from.
func TestWaitingIncludesThePublisher(t *testing.T) {
	s, err := New(Config{Name: "files", Manifests: []string{t.TempDir()}})
	must(t, err)
	if got := s.Waiting(); !strings.HasPrefix(got, "waiting for the list of") {
		t.Errorf("waiting %q before a list", got)
	}
	s.files.apply(s.files.latest)
	if got := s.Waiting(); got != "building the first state from files" {
		t.Errorf("waiting %q between the lists and the first state", got)
	}
	s.publisher.round()
	if got := s.Waiting(); got != "" || !s.State().Ready {
		t.Errorf("waiting %q, ready %t after the first round", got, s.State().Ready)
	}
}

// docs/spec/dns.md 6.2: the gaps of a state, and its items, are of one moment. A list that comes later is not covered
// by them.
func TestRoundTakesOneMoment(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "objects.yaml")
	write(t, manifest, shopDB)
	s, err := New(Config{Manifests: []string{manifest}})
	must(t, err)
	var late *watchStore
	for _, w := range s.stores {
		if w.Kind == EndpointSlice {
			late = w
		}
	}
	s.files.apply(s.files.latest)
	all := s.objects.items()[EndpointSlice]
	s.objects.replace(EndpointSlice, "", nil)
	late.progress = stuck // it may not be read
	s.publisher.round()
	knows := func(when string, want bool) {
		t.Helper()
		if st := s.State(); !st.Ready || st.Knows("shop", true) != want || st.Knows("shop", false) != true {
			t.Errorf("%s: ready %t, endpoints known %t: want %t", when, st.Ready, st.Knows("shop", true), want)
		}
	}
	knows("without the list of slices", false)
	before, ok := s.takeChanges(s.State().coverage)
	if !ok {
		t.Fatal("nothing may be shown")
	}
	list := make([]any, len(all))
	for i := range all {
		list[i] = &all[i]
	}
	must(t, late.Replace(list, ""))
	s.publisher.publish(before)
	knows("by what was taken before the list", false)
	s.publisher.round()
	knows("by what was taken after the list", true)
	if got := show(s.State()); !strings.Contains(got, "10.1.0.7") {
		t.Errorf("got %s, want the endpoint", got)
	}
}

// Synced is about the first state that may be served, not about the first one at all.
func TestSyncedIsClosedOnce(t *testing.T) {
	s, err := New(Config{Manifests: []string{t.TempDir()}})
	must(t, err)
	s.publisher.frozen.Store(true)
	s.publisher.round()
	select {
	case <-s.Synced():
		t.Error("synced before there was a state")
	default:
	}
	s.publisher.restore(restored{serial: 7})
	<-s.Synced()
	s.publisher.round()
	if st := s.State(); !st.Ready || st.Serial != 7 || s.Stats().Publishes != 1 {
		t.Errorf("got %+v, %d publishes", st, s.Stats().Publishes)
	}
}

// A file holds what may be shown, or the file before stays.
func TestSnapshotIsOfWholeLists(t *testing.T) {
	file := filepath.Join(t.TempDir(), "snapshot")
	s := ready(t, Config{Name: "a", Snapshot: file}, 20)
	w := s.snapshotWriter()
	defer w.release()
	w.write()
	before := readSnapshot(t, file)
	if len(before.Items[ServiceImport]) != 20 || len(before.Items[EndpointSlice]) != 40 {
		t.Fatalf("got %d imports, %d slices", len(before.Items[ServiceImport]), len(before.Items[EndpointSlice]))
	}
	for _, w := range s.all {
		w.progress = outdated
	}
	s.objects.replace(ServiceImport, "", nil)
	w.state = nil // so that it wants to write
	w.write()
	if after := readSnapshot(t, file); !reflect.DeepEqual(after, before) {
		t.Errorf("written in the middle of a relist: %d imports, %d slices", len(after.Items[ServiceImport]),
			len(after.Items[EndpointSlice]))
	}
	for _, w := range s.all {
		w.progress = listed
	}
	w.write()
	if after := readSnapshot(t, file); len(after.Items[ServiceImport]) != 0 {
		t.Errorf("%d imports after the relist, want 0", len(after.Items[ServiceImport]))
	}
}

// A program that ends just after its first state has something to start from.
func TestSnapshotOfALastMoment(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // Each time, the end and the state are both there to be chosen.
		file := filepath.Join(t.TempDir(), "snapshot")
		must(t, ready(t, Config{Name: "a", Snapshot: file}, 1).snapshotWriter().run(ended))
		if sn := readSnapshot(t, file); len(sn.Items[ServiceImport]) != 1 {
			t.Fatalf("got %d imports, want 1", len(sn.Items[ServiceImport]))
		}
	}
	file := filepath.Join(t.TempDir(), "snapshot")
	s, err := New(Config{Manifests: []string{t.TempDir()}, Snapshot: file})
	must(t, err)
	must(t, s.snapshotWriter().run(ended))
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a file of no state: %v", err)
	}
}

// A serial never stands for other content than what was served with it.
func TestSnapshotOwesTheSerial(t *testing.T) {
	s := ready(t, Config{}, 20)
	p := s.publisher
	past := time.Now().Add(-time.Hour)
	p.now = func() time.Time { return past }
	behind := func() bool { sn, _ := s.snapshotWriter().capture(); return sn.Behind }
	if p.behind = false; behind() {
		t.Error("behind though nothing has changed")
	}
	s.objects.remove(ServiceImport, "ns-3/svc-3")
	if !behind() {
		t.Error("not behind before the change is published")
	}
	if p.round(); !behind() {
		t.Error("not behind before the serial has moved")
	}
	sn, _ := s.snapshotWriter().capture()
	if got, err := decodeSnapshot(encoded(t, sn)); err != nil || !got.Behind {
		t.Fatalf("got %v, %v, want an behind one", got, err)
	}
	sn.Serial -= 100
	other, err := New(Config{Manifests: []string{t.TempDir()}})
	must(t, err)
	other.restorer.restore(sn)
	other.publisher.restore(<-other.restored)
	if got := other.State().Serial; got <= sn.Serial {
		t.Errorf("serial %d, want above %d", got, sn.Serial)
	}
}

// At a reload two Stores have the same file for a while, and the old one ends last.
func TestSnapshotIsOfTheNewestStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "snapshot")
	a, b := ready(t, Config{Name: "a", Snapshot: file}, 20), ready(t, Config{Name: "b", Snapshot: file}, 10)
	old, young := a.snapshotWriter(), b.snapshotWriter()
	change := func(s *Store) {
		all := s.State().Index.All()
		key := all[0].Namespace() + "/" + all[0].Name()
		s.objects.remove(ServiceImport, key)
		s.publisher.round()
	}
	want := func(when, source string, n int) {
		t.Helper()
		sn := readSnapshot(t, file)
		if !strings.Contains(sn.Identity, `source="`+source+`"`) || len(sn.Items[ServiceImport]) != n {
			t.Errorf("%s: %s with %d imports, want %s with %d", when, sn.Identity, len(sn.Items[ServiceImport]), source, n)
		}
	}
	old.write()
	want("at first", "a", 20)
	young.write()
	want("after the reload", "b", 10)
	change(a)
	old.write()
	want("while both are there", "b", 10)
	change(b)
	young.write()
	want("after a change", "b", 9)
	old.write()
	old.release()
	want("when the old one has ended", "b", 9)

	// The other way round: the reload fails.
	old = a.snapshotWriter()
	old.write()
	young = b.snapshotWriter()
	young.write()
	want("after a reload that fails", "b", 9)
	young.release()
	old.write()
	want("when the new one has ended", "a", 19)
	old.release()
}

func readSnapshot(t *testing.T, file string) *snapshot {
	t.Helper()
	b, err := os.ReadFile(file)
	must(t, err)
	sn, err := decodeSnapshot(b)
	must(t, err)
	return sn
}

func TestConfigSameObjects(t *testing.T) {
	base := func() *Config {
		return &Config{Name: "a", REST: &rest.Config{Host: "h", BearerToken: "t"}, Namespaces: []string{"b", "a"}}
	}
	tests := []struct {
		name   string
		change func(*Config)
		want   bool
	}{
		{"nothing", func(*Config) {}, true},
		{"how services are built", func(c *Config) { c.Index.ClusterNames = true }, true},
		{"node", func(c *Config) { c.TopologyNode = "n" }, true},
		{"snapshot", func(c *Config) { c.Snapshot, c.SnapshotMaxAge = "f", time.Hour }, true},
		{"checks", func(c *Config) { c.CheckInterval = time.Second }, true},
		{"rate", func(c *Config) { c.REST.QPS, c.REST.Burst = 1, 2 }, true},
		{"order", func(c *Config) { c.Namespaces = []string{"a", "b"} }, true},
		{"log", func(c *Config) { c.Log = logging.Discard }, true},
		{"name", func(c *Config) { c.Name = "b" }, false},
		{"filter", func(c *Config) { c.Namespaces = nil }, false},
		{"slices", func(c *Config) { c.NoEndpoints = true }, false},
		{"denied networks", func(c *Config) { c.Deny = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }, false},
		{"kubeconfig", func(c *Config) { c.Kubeconfig = "k" }, false},
		{"server", func(c *Config) { c.REST.Host = "i" }, false},
		{"rights", func(c *Config) { c.REST.BearerToken = "u" }, false},
		{"source", func(c *Config) { c.REST, c.Manifests = nil, []string{"x"} }, false},
	}
	for _, tt := range tests {
		other := base()
		tt.change(other)
		if got := base().SameObjects(other); got != tt.want {
			t.Errorf("%s: SameObjects = %t, want %t", tt.name, got, tt.want)
		}
		if same := slices.Contains([]string{"nothing", "order", "log"}, tt.name); base().Same(other) != same {
			t.Errorf("%s: Same = %t, want %t", tt.name, !same, same)
		}
	}
}

// An API server may move: the kubeconfig is followed, and the UID of the cluster tells it from another one.
func TestConfigOfAServerThatMoved(t *testing.T) {
	a := &Config{Name: "kubeconfig k", Kubeconfig: "k", REST: &rest.Config{Host: "h"}}
	b := &Config{Name: "kubeconfig k", Kubeconfig: "k", REST: &rest.Config{Host: "i"}}
	if a.identity() != b.identity() || !a.SameObjects(b) {
		t.Errorf("identities %s and %s, the same objects %t, want that the address does not count", a.identity(),
			b.identity(), a.SameObjects(b))
	}
}

// A panic on one object, or on one service, costs its new state, not its served state or that of others
// (docs/spec/dns.md 1.2).
func TestPanics(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "objects.yaml")
	text := shopWeb + "---" + shopDB + "---" + bankPay
	write(t, manifest, text)
	log := &journal{t: t}
	s, err := New(Config{Name: "files", Manifests: []string{manifest}, Log: log, Index: index.Options{ClusterNames: true}})
	must(t, err)
	s.files.apply(s.files.latest)
	s.publisher.round()
	before := show(s.State())

	change := func(text string) {
		t.Helper()
		write(t, manifest, text)
		m, _, err := readManifests([]string{manifest})
		must(t, err)
		s.files.apply(m)
		s.publisher.round()
	}
	counted := func(kind Kind) uint64 { return s.Stats().Rejected[Rejected{kind, Panicked}] }
	changed := strings.NewReplacer("10.9.0.1", "10.9.0.7", "10.1.0.7", "10.1.0.8", "10.9.0.2", "10.9.0.3").Replace(text)
	panics := true
	for _, w := range s.stores {
		w.validate = func(kind Kind, obj any, _ ...netip.Prefix) (item, []Rejection) {
			if name := keyOf(obj.(metav1.Object)); panics && (name == "shop/web" || name == "shop/db-east") {
				panic("hostile " + name)
			}
			return validateObject(kind, obj)
		}
	}
	change(changed)
	want := strings.Replace(before, "10.9.0.2", "10.9.0.3", 1)
	if got := show(s.State()); got != want {
		t.Errorf("after a panic on two objects: got %s, want %s", got, want)
	}
	change(changed) // logged once
	if log.count("panic: hostile") != 2 || counted(ServiceImport) != 1 || counted(EndpointSlice) != 1 {
		t.Errorf("%d log lines, counted %d imports and %d slices", log.count("panic: hostile"), counted(ServiceImport),
			counted(EndpointSlice))
	}
	panics = false
	s.publisher.buildService = func(b *batch, j *job, old *index.Service) *index.Service {
		if j.key == "db.shop" {
			panic("cannot build")
		}
		return b.build(j, old)
	}
	change(changed)
	want = strings.Replace(want, "10.9.0.1", "10.9.0.7", 1)
	if got := show(s.State()); got != want {
		t.Errorf("after a panic on one service: got %s, want %s", got, want)
	}
	if log.count("service db.shop: panic") != 1 || counted(ServiceImport) != 2 {
		t.Errorf("%d log lines, counted %d", log.count("service db.shop: panic"), counted(ServiceImport))
	}
	outages.Measured(t, "F31", "panics on 2 objects and 1 service, each of which kept its old value")
}

// docs/spec/explain.md 4: the log line of a rejection ends with the code of its cause, if it has one.
func TestRejectionsNameCodes(t *testing.T) {
	log := &logtest.Recorder{}
	accept := func(kind Kind, obj any) {
		w := watchStore{watch: &watch{Watch: Watch{Kind: kind}}, cfg: &Config{Log: log}, rejections: new(rejections),
			validate: validateObject}
		w.accept(obj)
	}
	labels := map[string]string{labelService: "db", labelCluster: "east"}
	fqdn := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", Labels: labels},
		AddressType: discoveryv1.AddressTypeFQDN}
	loopback := &customObject{customMeta: customMeta{Namespace: "shop", Name: "b"}, Spec: []byte(`{"type":"ClusterSetIP","ips":["127.0.0.1"]}`)}
	port := &customObject{customMeta: customMeta{Namespace: "shop", Name: "c"}, Spec: []byte(`{"type":"Headless","ports":[{"port":0}]}`)}
	accept(EndpointSlice, fqdn)
	accept(ServiceImport, loopback)
	accept(ServiceImport, port)
	for _, want := range []string{
		`EndpointSlice shop/a: address type "FQDN": want IPv4 or IPv6 [slice-address-type]`, " [import-addresses]", `ServiceImport shop/c: port "0": want 1 to 65535`,
	} {
		if log.Count(want) != 1 {
			t.Errorf("not logged: %s", want)
		}
	}
	if log.Count("[") != 2 {
		t.Error("want codes for the slice and the address alone")
	}
}
