package apiserver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// A steppedInformer delivers what the test has it deliver. Its store is one of client-go.
type steppedInformer struct {
	cache.SharedIndexInformer // panics where the overlay uses a method that is not here
	store                     cache.Indexer
	handler                   cache.ResourceEventHandler
}

const byTier = "tier"

func newSteppedInformer() *steppedInformer {
	return &steppedInformer{store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
		byTier: func(obj any) ([]string, error) { return []string{obj.(*corev1.Service).Labels[byTier]}, nil },
	})}
}

func (i *steppedInformer) GetStore() cache.Store     { return i.store }
func (i *steppedInformer) GetIndexer() cache.Indexer { return i.store }

func (i *steppedInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration,
	error) {
	i.handler = h
	return nil, nil
}

// deliver makes an object known, or its deletion. The store changes first, as in every informer.
func (i *steppedInformer) deliver(s *corev1.Service, deleted bool) (event func()) {
	was, known, _ := i.store.Get(s)
	switch {
	case deleted && known:
		_ = i.store.Delete(s)
		return func() { i.handler.OnDelete(s) }
	case deleted:
		return func() {}
	}
	_ = i.store.Update(s)
	if !known {
		return func() { i.handler.OnAdd(s, false) }
	}
	return func() { i.handler.OnUpdate(was, s) }
}

// A plainOverlay is what an Overlay has to agree with: each read goes through all objects and all writes.
type plainOverlay struct {
	informer *steppedInformer
	writes   map[string]write[*corev1.Service]
	ended    deletions
}

func (o *plainOverlay) wrote(s *corev1.Service) {
	if o.ended.contains(s.UID, time.Now()) {
		return
	}
	if w, written := o.writes[keyOf(s)]; !written || !w.outdates(s) {
		o.writes[keyOf(s)] = write[*corev1.Service]{obj: s, at: time.Now()}
	}
}

func (o *plainOverlay) removed(s *corev1.Service) {
	o.writes[keyOf(s)] = write[*corev1.Service]{obj: s, gone: true, at: time.Now()}
}

func (o *plainOverlay) event(s *corev1.Service, deleted bool) {
	if !deleted {
		o.ended.forget(s.UID)
		o.list(func(*corev1.Service) bool { return true }) // forgets what the store has caught up with
		return
	}
	o.ended.add(s.UID, time.Now())
	if w, written := o.writes[keyOf(s)]; written && (w.gone ||
		VersionNumber(s.ResourceVersion) > VersionNumber(w.obj.ResourceVersion)) {
		delete(o.writes, keyOf(s))
	}
}

func (o *plainOverlay) list(match func(*corev1.Service) bool) (objects []*corev1.Service) {
	all := map[string]*corev1.Service{}
	for _, item := range o.informer.store.List() {
		all[keyOf(item.(*corev1.Service))] = item.(*corev1.Service)
	}
	for key, w := range o.writes {
		stored := all[key]
		switch {
		case time.Since(w.at) > overlayAge, w.gone && (stored == nil || w.obj.UID != "" && stored.UID != w.obj.UID),
			!w.gone && stored != nil && VersionNumber(stored.ResourceVersion) >= VersionNumber(w.obj.ResourceVersion):
			delete(o.writes, key)
		case w.gone:
			delete(all, key)
		default:
			all[key] = w.obj
		}
	}
	for _, s := range all {
		if match(s) {
			objects = append(objects, s)
		}
	}
	slices.SortFunc(objects, cmpKeys)
	return objects
}

func cmpKeys(a, b *corev1.Service) int {
	switch x, y := keyOf(a), keyOf(b); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// An overlayLaw has an API server with a watch that lags behind. This process and others write to it.
type overlayLaw struct {
	*testing.T
	rand     *rand.Rand
	informer *steppedInformer
	overlay  *Overlay[*corev1.Service]
	plain    *plainOverlay

	version int
	server  map[string]*corev1.Service
	watch   []watched         // what the informer has yet to deliver
	answers []*corev1.Service // to our writes, which have yet to arrive
	trace   []string
}

type watched struct {
	service *corev1.Service
	deleted bool
}

var (
	lawNames = []string{"a", "b", "c"}
	lawTiers = []string{"gold", "silver"}
)

func newOverlayLaw(t *testing.T, seed uint64) *overlayLaw {
	i := newSteppedInformer()
	return &overlayLaw{
		T: t, rand: rand.New(rand.NewPCG(seed, 0)), informer: i, overlay: NewOverlay[*corev1.Service](i),
		plain: &plainOverlay{informer: i, writes: map[string]write[*corev1.Service]{}}, server: map[string]*corev1.Service{},
	}
}

func pick[T any](l *overlayLaw, from []T) T { return from[l.rand.IntN(len(from))] }

func (l *overlayLaw) say(format string, args ...any) {
	l.trace = append(l.trace, fmt.Sprintf(format, args...))
}

// step lets one thing happen.
func (l *overlayLaw) step() {
	switch n := l.rand.IntN(100); {
	case n < 30:
		s := l.write()
		l.answers = append(l.answers, s)
		l.say("write %s", text(s))
	case n < 40:
		l.say("another one writes %s", text(l.write()))
	case n < 50:
		l.remove(true)
	case n < 54:
		l.remove(false)
	case n < 75 && len(l.answers) > 0:
		l.answer(l.rand.IntN(len(l.answers)))
	case n < 95 && len(l.watch) > 0:
		l.deliver()
	case n == 95:
		time.Sleep(overlayAge/2 + time.Second)
		l.say("half a minute passes")
	case n == 96:
		l.overlay.Reset()
		clear(l.plain.writes)
		l.plain.ended = deletions{}
		l.say("reset")
	}
}

func text(s *corev1.Service) string {
	return fmt.Sprintf("%s/%s/%s=%s", s.Name, s.UID, s.ResourceVersion, s.Labels[byTier])
}

// write creates or changes an object.
func (l *overlayLaw) write() *corev1.Service {
	l.version++
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: pick(l, lawNames), Labels: map[string]string{byTier: pick(l, lawTiers)},
		ResourceVersion: strconv.Itoa(l.version), UID: types.UID(fmt.Sprint("uid-", l.version)),
	}}
	if was := l.server[s.Name]; was != nil {
		s.UID = was.UID
	}
	l.server[s.Name] = s
	l.watch = append(l.watch, watched{s, false})
	return s
}

// remove deletes an object.
func (l *overlayLaw) remove(ours bool) {
	was := l.server[pick(l, lawNames)]
	if was == nil {
		return
	}
	l.version++
	last := was.DeepCopy()
	last.ResourceVersion = strconv.Itoa(l.version)
	delete(l.server, was.Name)
	l.watch = append(l.watch, watched{last, true})
	if ours {
		noted := was.DeepCopy()
		if l.rand.IntN(2) == 0 {
			noted.UID = ""
		}
		l.overlay.Deleted(noted)
		l.plain.removed(noted)
	}
	l.say("delete %s, by us %t", text(last), ours)
}

// answer has the answer to one of our writes arrive.
func (l *overlayLaw) answer(i int) {
	s := l.answers[i]
	l.answers = slices.Delete(l.answers, i, i+1)
	l.overlay.Wrote(s)
	l.plain.wrote(s)
	l.say("answer %s", text(s))
}

// deliver has the informer deliver the next event. A reader may read between the store and the event.
func (l *overlayLaw) deliver() {
	next := l.watch[0]
	l.watch = l.watch[1:]
	event := l.informer.deliver(next.service, next.deleted)
	l.say("deliver %s, deleted %t", text(next.service), next.deleted)
	if l.rand.IntN(3) == 0 {
		l.check()
	}
	event()
	l.plain.event(next.service, next.deleted)
}

// check compares all reads. The reads come in another order each time, as each may forget writes.
func (l *overlayLaw) check() {
	l.Helper()
	reads := []func(){func() {
		l.same("list", l.overlay.List(),
			l.plain.list(func(*corev1.Service) bool { return true }))
	}}
	for _, tier := range lawTiers {
		reads = append(reads, func() {
			l.same(tier, l.overlay.ByIndex(byTier, tier), l.plain.list(func(
				s *corev1.Service) bool {
				return s.Labels[byTier] == tier
			}))
		})
	}
	for _, name := range lawNames {
		reads = append(reads, func() {
			var got []*corev1.Service
			if s := l.overlay.Get("shop/" + name); s != nil {
				got = append(got, s)
			}
			l.same(name, got, l.plain.list(func(s *corev1.Service) bool { return s.Name == name }))
		})
	}
	for _, i := range l.rand.Perm(len(reads)) {
		reads[i]()
	}
}

func (l *overlayLaw) same(what string, got, want []*corev1.Service) {
	l.Helper()
	texts := func(all []*corev1.Service) (names []string) {
		for _, s := range all {
			names = append(names, text(s))
		}
		return names
	}
	if !slices.Equal(texts(got), texts(want)) {
		l.Fatalf("%s: got %v, want %v, after\n%q", what, texts(got), texts(want), l.trace)
	}
}

// An Overlay agrees with one that goes through all writes at each read, whatever the order of writes, answers and
// events.
func TestOverlayLaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(500) {
			l := newOverlayLaw(t, seed)
			for range 60 {
				l.step()
				l.check()
			}
		}
	})
}

// Writes that the watch never delivers are forgotten, also without a read of them.
func TestOverlayForgetsUnseenWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newOverlayLaw(t, 0)
		l.overlay.Wrote(l.write())
		time.Sleep(overlayAge + time.Second)
		later := l.write()
		l.overlay.Wrote(later)
		if got := l.overlay.writes.ListKeys(); !slices.Equal(got, []string{keyOf(later)}) {
			t.Errorf("writes of %v are remembered, want that of %s alone", got, keyOf(later))
		}
	})
}

// A write is forgotten when the watch has delivered it, also without a read of it. Until then it is not seen.
func TestOverlayForgetsDeliveredWrites(t *testing.T) {
	l := newOverlayLaw(t, 0)
	for range 2 { // the first is delivered as a new object
		before := time.Now()
		l.overlay.Wrote(l.write())
		if now := time.Now(); !l.overlay.Seen(before) || l.overlay.Seen(now) {
			t.Errorf("before the watch delivers a write: seen are those before it %t, and it %t; want true, false",
				l.overlay.Seen(before), l.overlay.Seen(now))
		}
		for len(l.watch) > 0 {
			l.deliver()
		}
		if !l.overlay.Seen(time.Now()) {
			t.Error("a write that the watch has delivered is not seen")
		}
		if got := l.overlay.writes.ListKeys(); len(got) > 0 {
			t.Errorf("writes of %v are remembered, want none", got)
		}
	}
}

// BenchmarkOverlayByIndex reads one of 5,000 services, all of which were written and not delivered yet: they fail over
// together.
func BenchmarkOverlayByIndex(b *testing.B) {
	const n = 5000
	i := newSteppedInformer()
	o := NewOverlay[*corev1.Service](i)
	for k := range n {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprint("svc-", k), ResourceVersion: "1",
			Labels: map[string]string{byTier: fmt.Sprint(k)},
		}}
		i.deliver(s, false)
		s = s.DeepCopy()
		s.ResourceVersion = "2"
		o.Wrote(s)
	}
	b.ReportAllocs()
	for k := 0; b.Loop(); k++ {
		if got := o.ByIndex(byTier, fmt.Sprint(k%n)); len(got) != 1 || got[0].ResourceVersion != "2" {
			b.Fatalf("got %v, want one service of version 2", got)
		}
	}
}
