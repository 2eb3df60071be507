package cache

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/cache/index"
)

// A watch is one kind, in one namespace or in all, and how far its list has come.
type watch struct {
	Watch
	selector labels.Selector
	// contact is marked by the API server's answers, or as long as manifests are valid.
	contact  apiserver.Contact
	gone     apiserver.Withheld // imports or properties that are still served; it has its own lock
	progress progress           // guarded by watches.mu
}

// handleEvent takes an event. The caller holds watches.mu.
func (w *watch) handleEvent(e event) { w.progress = w.progress.next(e, w.needed()) }

// needed reports whether there is no state without this list. Without properties only the name of this cluster is
// unknown.
func (w *watch) needed() bool { return w.Kind != ClusterProperty }

func (w *watch) id() apiserver.WatchID {
	return apiserver.WatchID{Kind: w.Kind.String(), Namespace: w.Namespace}
}

// watches are all watches of a source. They decide from the progress of each which answers may be given, and when the
// publisher may take what changed. Items of lists and of snapshots come into objects under mu, so that progress and
// items are of one moment.
type watches struct {
	cfg       *Config
	objects   *objects
	published *published
	all       []*watch
	needs     map[string][]*watch // by namespace, "" for the whole zone: see Silence
	// failing holds a token once the API server, or a watch that answers need, was found to fail.
	failing  chan struct{}
	restored chan restored // at most one: the snapshot

	mu       sync.Mutex // guards what follows, and the progress of each watch
	givingUp bool       // see giveUp
	resets   int        // how often lists were lost, so that all are awaited anew
}

func newWatches(cfg *Config, objects *objects, published *published) *watches {
	ws := &watches{
		cfg: cfg, objects: objects, published: published, needs: map[string][]*watch{}, failing: make(chan struct{}, 1),
		restored: make(chan restored, 1),
	}
	exported, err := labels.NewRequirement(labelService, "exists", nil)
	if err != nil {
		panic("cache: the label of a service name is not a label")
	}
	imports := cmp.Or(cfg.Labels, labels.Everything())
	namespaces := cfg.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		ws.add(ServiceImport, namespace, imports)
		if !cfg.NoEndpoints {
			ws.add(EndpointSlice, namespace, labels.NewSelector().Add(*exported))
		}
	}
	if cfg.NamespaceLabels != nil {
		ws.add(Namespace, "", cfg.NamespaceLabels)
	}
	ws.add(ClusterProperty, "", labels.Everything())
	return ws
}

// add adds a watch, also to those that answers in its namespace and in the zone need.
func (ws *watches) add(kind Kind, namespace string, selector labels.Selector) {
	w := &watch{Watch: Watch{kind, namespace}, selector: selector}
	w.gone.For, w.gone.Few = ws.cfg.withholdFor, kind == ClusterProperty
	ws.all = append(ws.all, w)
	if w.needed() && namespace != "" {
		ws.needs[namespace] = append(ws.needs[namespace], w)
	}
	if w.needed() {
		ws.needs[""] = append(ws.needs[""], w)
	}
}

// Waiting returns the list that the first state waits for. It is "" once the state is there, or cannot come: a CRD or a
// right is missing.
func (ws *watches) Waiting() string {
	if ws.published.State().Ready {
		return ""
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.all {
		if w.progress.pending() {
			return "waiting for the list of " + w.id().String() + " from " + ws.cfg.Name
		}
	}
	if ws.consistent() { // The publisher has it in hand.
		return "building the first state from " + ws.cfg.Name
	}
	return ""
}

// Silence is how long ago the last contact of a watch was, of those that answers in a namespace need, or ("") any
// answer in the zone: the longest time counts. An answer that does not depend on EndpointSlices needs no slices. It is
// the greatest duration as long as one of the watches had no contact. It costs an atomic load for each watch.
func (ws *watches) Silence(namespace string, slices bool) time.Duration {
	needed, ok := ws.needs[namespace]
	if !ok {
		needed = ws.needs[""]
	}
	var oldest *apiserver.Contact
	for _, w := range needed {
		if (slices || w.Kind != EndpointSlice) && (oldest == nil || w.contact.Before(oldest)) {
			oldest = &w.contact
		}
	}
	return oldest.Age() // there is always a watch of ServiceImports
}

// Silent names the watch with the oldest contact of all that answers need.
func (ws *watches) Silent() string {
	return slices.MaxFunc(ws.needs[""], func(a, b *watch) int {
		return cmp.Compare(a.contact.Age(), b.contact.Age())
	}).id().String()
}

// markContacts marks the contact of all watches.
func (ws *watches) markContacts() {
	for _, w := range ws.all {
		w.contact.Mark()
	}
}

// handleEvent takes an event for all watches; if progresses are given, only for watches in one of them.
func (ws *watches) handleEvent(e event, in ...progress) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.all {
		if in == nil || slices.Contains(in, w.progress) {
			w.handleEvent(e)
		}
	}
}

// changed takes the health of a watch after each change.
func (ws *watches) takeHealth(w *watch, h apiserver.Health) {
	failing := h.State == apiserver.Failing
	stuck := failing && (h.Class == apiserver.Absent || h.Class == apiserver.Forbidden)
	ws.mu.Lock()
	before := w.progress
	switch {
	case failing && h.Class == apiserver.Absent:
		w.handleEvent(missing)
	case failing && h.Class == apiserver.RolledBack:
		w.handleEvent(rolledBack)
		ws.resets++
	case stuck, failing && !w.needed():
		w.handleEvent(hopeless)
	case h.State == apiserver.Listing:
		w.handleEvent(requested)
	}
	after := w.progress
	ws.mu.Unlock()
	if before == fromSnapshot && !after.hasObjects() {
		ws.objects.replace(w.Kind, w.Namespace, nil)
	}
	if failing && w.needed() && (h.Class == apiserver.Unreachable || stuck) {
		signal(ws.failing)
	}
	if after != before {
		ws.giveUp()
		ws.objects.signal()
	}
}

// hadList reports whether a list of the watch was complete before.
func (ws *watches) hadList(w *watch) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return w.progress >= listed
}

// takeList takes the items of a complete list.
func (ws *watches) takeList(w *watch, items []item) {
	ws.mu.Lock() // a snapshot that is read meanwhile must not replace the list
	ws.objects.replace(w.Kind, w.Namespace, items)
	w.handleEvent(complete)
	ws.mu.Unlock()
	ws.giveUp()
	ws.objects.signal()
}

const (
	// unneededWait is how long the first state waits for the kinds that answers can do without, once all others are there.
	unneededWait = time.Second
	// listWait is how long a list that does not come holds up others, or the snapshot that stands for it.
	listWait = 2 * time.Second
)

// giveUp ends the wait for lists that hold up others: the first state waits no longer than [unneededWait] once it has
// all that answers need, or will not get it, and lists after a rollback or a reload wait for each other no longer than
// [listWait] once the first of them came.
func (ws *watches) giveUp() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	unneeded, old, came := false, false, false
	for _, w := range ws.all {
		if w.progress == awaited && w.needed() {
			return
		}
		unneeded = unneeded || w.progress == awaited
		old = old || w.progress == outdated
		came = came || w.progress == listed && w.needed()
	}
	wait := unneededWait
	if old {
		wait = listWait
	}
	if !unneeded && (!old || !came) || ws.givingUp || ws.cfg.REST == nil {
		return
	}
	ws.givingUp = true
	resets := ws.resets
	time.AfterFunc(wait, func() {
		defer ws.giveUp()
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if ws.givingUp = false; resets != ws.resets {
			return
		}
		for _, w := range ws.all {
			if w.progress == outdated || !w.needed() && w.progress == awaited {
				w.handleEvent(hopeless)
			}
		}
		ws.objects.signal()
	})
}

// lacksUnneeded reports whether a list that answers can do without did not come, although the kind is installed.
func (ws *watches) lacksUnneeded() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.ContainsFunc(ws.all, func(w *watch) bool {
		return !w.needed() && (w.progress == awaited || w.progress == stuck)
	})
}

// consistent reports whether the items may be shown: there are some to answer from, and no list is under way that has
// to be waited for. The caller holds ws.mu.
func (ws *watches) consistent() bool {
	ready, manifests := ws.published.State().Ready, ws.cfg.REST == nil
	for _, w := range ws.all {
		// Before the first state, each list is waited for. With manifests all lists come at once.
		if w.progress == outdated && (w.needed() || manifests) || w.progress == awaited && !ready {
			return false
		}
	}
	_, some := ws.coverage(nil)
	return some
}

// coverage returns the coverage of this moment, and whether anything can be answered. last is returned if it is the
// same. The caller holds ws.mu.
func (ws *watches) coverage(last *coverage) (*coverage, bool) {
	var c coverage
	imports, selected := false, true
	for _, w := range ws.all {
		switch {
		case w.Kind == ServiceImport && w.progress.hasObjects():
			imports = true
		case w.Kind == Namespace && !w.progress.hasObjects():
			selected = false
		}
		switch {
		case !w.needed() || w.progress >= listed:
		case w.progress == fromSnapshot:
			c.restored = append(c.restored, w.Watch)
		default:
			c.missing = append(c.missing, w.Watch)
		}
	}
	some := imports && selected
	switch {
	case c.missing == nil && c.restored == nil:
		return nil, some
	case last != nil && slices.Equal(c.missing, last.missing) && slices.Equal(c.restored, last.restored):
		return last, some
	}
	return &c, some
}

// A restored is a state from a snapshot.
type restored struct {
	batch    batch
	serial   uint32
	behind   bool
	coverage *coverage
}

// A taken has the input of a round, all of one moment.
type roundInput struct {
	batch    batch
	coverage *coverage
	restored *restored // a snapshot that was read before; nil without one
}

// takeChanges takes all changes, if they may be shown, and the gaps: a list that comes a moment later is not covered by
// the items from before. last is the coverage of the present state.
func (ws *watches) takeChanges(last *coverage) (t roundInput, ok bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if !ws.consistent() {
		return roundInput{}, false
	}
	select {
	case r := <-ws.restored:
		t.restored = &r
	default:
	}
	t.coverage, _ = ws.coverage(last)
	t.batch = ws.objects.drain()
	return t, true
}

// An objectSet has all items of one moment.
type objectSet struct {
	items      [kinds][]item
	options    index.Options
	dirty      bool // some of it is not published yet
	consistent bool // all of it may be shown: the lists are complete, or it is the published state
}

// collect copies all items. The caller holds publisher.mu, so that no state is being made meanwhile.
func (ws *watches) collect() objectSet {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	o := ws.objects
	o.mu.Lock()
	defer o.mu.Unlock()
	k := objectSet{items: o.items(), options: o.options, dirty: o.hasChanges()}
	k.consistent = !k.dirty || ws.consistent()
	return k
}

// continueFrom continues each watch where the same watch of from is. The lists are still to come.
func (ws *watches) continueFrom(from *watches) {
	from.mu.Lock()
	defer from.mu.Unlock()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.all {
		before := from.all[slices.IndexFunc(from.all, func(b *watch) bool { return b.Watch == w.Watch })]
		w.contact.Inherit(&before.contact)
		switch before.progress {
		case listed, outdated:
			w.progress = outdated
		case fromSnapshot:
			w.progress = fromSnapshot
		}
	}
}
