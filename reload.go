package clusterset

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coredns/caddy"
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/plugin"
)

// instances are the CoreDNS instances of this process that are not released yet, with their shared stores and
// controller.
//
// CoreDNS makes an instance each time it reads the Corefile: at the start, and at each reload while the instance before
// still answers. Each clusterset block of an instance has a reference to a store; blocks that see the same objects have
// the same one, within an instance and across a reload. So a reload that changes only how answers are made lists and
// watches nothing anew, and moves no serial. A store runs from the OnStartup of the first instance that refers to it
// until the release of the last one. The controller runs with the settings of the newest instance that has started.
//
// These are the callbacks of caddy in the order of time, top to bottom. "answers" marks the instance that has the
// sockets.
//
//	           old instance        new instance      stores and controller
//	start  │                       setup             each block acquires a store: one that runs, or a new one
//	       │                       OnStartup         new stores start, the controller starts, wait for the first sync
//	       │                       answers
//	reload │   OnRestart                             the next instance replaces this one
//	       │   answers             setup             each block acquires a store
//	       │   answers             OnStartup         new stores inherit from those they follow and start;
//	       │                                         the controller changes if its settings do; wait for the first sync
//	       │   OnShutdown          answers           release the old: stores without another reference stop
//	failed │   OnRestart
//	reload │   answers             setup             as above; the error comes here,
//	       │   answers             OnStartup         here, or when the sockets are opened
//	       │   OnRestartFailed     (garbage)         release the new: its stores stop, the controller changes back
//	end    │   OnShutdown                            nothing: queries arrive until the lameduck time of health is over
//	       │   OnFinalShutdown                       release: everything stops
//
// Three cases are special. caddy runs OnRestartFailed on the old instance alone; if that has no clusterset block, there
// is no callback, and the release waits until the new instance is garbage (see handle). caddy also runs OnRestartFailed
// when the restart did happen but a plugin of the old instance failed to shut down; then the old instance is to be
// released. And OnFirstStartup is of no use, since it runs before OnStartup and is followed by it.
//
// All methods lock; any goroutine may call them.
type instances struct {
	ctx context.Context // of all stores and controllers

	mu         sync.Mutex // guards the fields below and the variable ones of instance and sharedStore
	live       []*instance
	stores     []*sharedStore // that run
	controller *runningController
	restarting *instance // between its OnRestart and its release or OnRestartFailed: the next instance replaces it
}

// An instance is what one CoreDNS instance, one reading of the Corefile, has acquired.
//
//	created ──OnStartup──► started ──release──► released
//	   └─────────────────release───────────────────▲
type instance struct {
	ctx    context.Context // ends with the release
	cancel context.CancelFunc
	tasks  sync.WaitGroup // that end with ctx; the release waits for them

	refs         []*storeRef        // one for each block
	controller   *controller.Config // nil if no block has a broker
	initial      bool               // no instance answered before this one
	replaces     *instance          // answers until this one does; nil if unset or released
	started      time.Time          // zero before OnStartup; the wait for the first sync of all blocks begins here
	released     bool
	answersSince time.Time // when a block could answer first; used by othersWait alone
}

// A sharedStore is a store, and the rotation of its answers, which goes on across a reload.
type sharedStore struct {
	config   cache.Config
	store    *cache.Store
	rotation *plugin.Rotation
	run      *task // nil until it is started
}

// A runningController is the controller of this process. There is at most one, however many blocks have a broker: at a
// reload with other settings the next one starts when the one before has ended.
type runningController struct {
	config *controller.Config
	*task
}

// A storeRef is the reference of one block to a store.
type storeRef struct {
	*sharedStore
	notified  uint32 // the serial that secondaries know from the instance before
	inherited bool   // the instance before refers to the same store
	strict    bool   // the block is not ready before its store has all lists
}

// ready reports whether the block may be sent queries (docs/spec/dns.md 6.3).
func (ref *storeRef) ready() bool {
	if ref.strict {
		return ref.store.State().Knows("", true)
	}
	return ref.store.Waiting() == ""
}

// A handle is the one pointer from caddy's storage to an instance. caddy lets go of it together with its own instance:
// the garbage collector then releases ours, if no callback did.
type handle struct{ inst *instance }

type handleKey struct{}

func (p *instances) create() *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	inst := &instance{initial: p.restarting == nil, replaces: p.restarting}
	inst.ctx, inst.cancel = context.WithCancel(p.ctx)
	p.live = append(p.live, inst)
	return inst
}

// acquire adds a reference to the store for config to inst: a store that runs, one that another block of inst has
// acquired, or a new one, which start will run. An error means that config is not usable.
func (p *instances) acquire(inst *instance, config cache.Config) (*storeRef, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	candidates := slices.Clone(p.stores)
	for _, ref := range inst.refs {
		candidates = append(candidates, ref.sharedStore)
		if config.Snapshot != "" && ref.config.Snapshot == config.Snapshot && !ref.config.SameObjects(&config) {
			return nil, fmt.Errorf("snapshot %q: want a file of its own, another block writes other objects of %s to it",
				config.Snapshot, ref.config.Name)
		}
	}
	for _, s := range candidates {
		// A store is frozen while another cluster answers in place of its own: a reload accepts the new cluster.
		if s.config.Same(&config) && !s.store.Stats().Frozen {
			ref := &storeRef{sharedStore: s, inherited: inst.replaces.refersTo(s)}
			inst.refs = append(inst.refs, ref)
			return ref, nil
		}
	}
	store, err := cache.New(config)
	if err != nil {
		return nil, err
	}
	s := &sharedStore{config: config, store: store, rotation: plugin.NewRotation()}
	if from := p.predecessor(s); from != nil {
		s.rotation = from.rotation
	}
	ref := &storeRef{sharedStore: s}
	inst.refs = append(inst.refs, ref)
	return ref, nil
}

// predecessor returns a running store that sees the same objects as s, so that s can inherit them, or nil.
func (p *instances) predecessor(s *sharedStore) *sharedStore {
	for _, from := range p.stores {
		if from != s && s.config.SameObjects(&from.config) {
			return from
		}
	}
	return nil
}

func (inst *instance) refersTo(s *sharedStore) bool {
	return inst != nil && slices.ContainsFunc(inst.refs, func(ref *storeRef) bool { return ref.sharedStore == s })
}

// setController sets the controller settings of inst. It returns an error if another block has set different ones.
func (inst *instance) setController(config *controller.Config) error {
	if inst.controller != nil {
		if name := inst.controller.Difference(config); name != "" {
			return fmt.Errorf("%s differs from that of another block: want the same, one controller runs in a process", name)
		}
	}
	inst.controller = config
	return nil
}

// start starts all stores of inst that do not run, so that its blocks wait for them at the same time, and the
// controller. OnStartup runs for each block; only the first call counts.
func (p *instances) start(inst *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if inst.released || !inst.started.IsZero() {
		return
	}
	inst.started = time.Now()
	for _, ref := range inst.refs {
		ref.notified = ref.store.State().Serial
		if from := p.predecessor(ref.sharedStore); from != nil && ref.run == nil {
			ref.notified = from.store.State().Serial
			ref.store.Inherit(from.store)
		}
	}
	for _, ref := range inst.refs {
		if ref.run == nil {
			p.stores = append(p.stores, ref.sharedStore)
			ref.run = startTask(p.ctx, ref.config.Name, ref.store.Run)
		}
	}
	p.reconcileController()
}

// reconcileController makes the running controller match the settings of the newest started instance: it starts one,
// ends one, replaces one with other settings or that has ended by itself, or leaves it alone. It returns the ended one,
// with a done channel that closes later, or nil. The caller holds p.mu.
func (p *instances) reconcileController() (old *task) {
	config, running := p.controllerConfig(), p.controller
	if running != nil && running.hasEnded() {
		running, p.controller = nil, nil
	}
	if running != nil {
		if config != nil && running.config.Same(config) {
			return nil
		}
		running.cancel()
		old, p.controller = running.task, nil
	}
	if config != nil {
		next := startTask(p.ctx, "controller", func(ctx context.Context) error {
			if old != nil {
				<-old.done
			}
			return controller.Run(ctx, *config)
		})
		p.controller = &runningController{config, next}
	}
	return old
}

// controllerConfig returns the settings of the newest started instance; nil if it has no controller.
func (p *instances) controllerConfig() *controller.Config {
	for _, inst := range slices.Backward(p.live) {
		if !inst.started.IsZero() {
			return inst.controller
		}
	}
	return nil
}

// startTask runs task, which has to end when inst is released: the release waits for it.
func (p *instances) startTask(inst *instance, task func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !inst.released {
		inst.tasks.Go(task)
	}
}

// release gives up what inst has acquired. It returns when all that runs for no other instance has ended. To release an
// instance again does nothing.
func (p *instances) release(inst *instance) {
	p.mu.Lock()
	inst.released = true
	inst.cancel()
	p.live = slices.DeleteFunc(p.live, func(other *instance) bool { return other == inst })
	for _, other := range p.live {
		if other.replaces == inst {
			other.replaces = nil
		}
	}
	if p.restarting == inst {
		p.restarting = nil
	}
	var ending []*task
	p.stores = slices.DeleteFunc(p.stores, func(s *sharedStore) bool {
		if slices.ContainsFunc(p.live, func(other *instance) bool { return other.refersTo(s) }) {
			return false
		}
		ending = append(ending, s.run)
		return true
	})
	if old := p.reconcileController(); old != nil {
		ending = append(ending, old)
	}
	p.mu.Unlock()
	for _, t := range ending {
		t.cancel()
	}
	inst.tasks.Wait()
	patience, stop := context.WithTimeout(context.WithoutCancel(p.ctx), endPatience)
	defer stop()
	for _, t := range ending {
		select {
		case <-t.done:
		case <-patience.Done():
			plugin.Log.Warningf("%s did not end within %s; going on without it", t.name, endPatience)
		}
	}
}

// endPatience is how long a reload, or the end of the process, waits for stores and controllers. A plugin of a
// kubeconfig or a disk may hang.
const endPatience = 10 * time.Second

// restart is OnRestart.
func (p *instances) restart(inst *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restarting = inst
}

// shutdown is OnShutdown: it releases an instance that was replaced, and at the end of the process nothing.
func (p *instances) shutdown(inst *instance) {
	p.mu.Lock()
	replaced := p.restarting == inst
	p.mu.Unlock()
	if replaced {
		p.release(inst)
	}
}

// restartFailed is OnRestartFailed: it releases the instances that would have replaced inst, or inst if caddy has
// stopped it already.
func (p *instances) restartFailed(inst *instance) {
	// Only this goroutine changes the list, unless the process is about to end.
	if !slices.ContainsFunc(caddy.Instances(), inst.belongsTo) {
		p.release(inst)
		return
	}
	p.mu.Lock()
	var discarded []*instance
	for _, other := range p.live {
		if other.replaces == inst {
			discarded = append(discarded, other)
		}
	}
	if p.restarting == inst {
		p.restarting = nil
	}
	p.mu.Unlock()
	for _, other := range discarded {
		p.release(other)
	}
}

// belongsTo reports whether inst is that of i.
func (inst *instance) belongsTo(i *caddy.Instance) bool {
	i.StorageMu.RLock()
	defer i.StorageMu.RUnlock()
	h, ok := i.Storage[handleKey{}].(*handle)
	return ok && h.inst == inst
}

// byName returns the running stores by the names of their sources. Several stores of one source have different filters,
// or exist only during a reload; all but the first get a number.
func (p *instances) byName() map[string]*cache.Store {
	p.mu.Lock()
	defer p.mu.Unlock()
	stores := make(map[string]*cache.Store, len(p.stores))
	for _, s := range p.stores {
		name := s.config.Name
		for n := 2; stores[name] != nil; n++ {
			name = fmt.Sprintf("%s (%d)", s.config.Name, n)
		}
		stores[name] = s.store
	}
	return stores
}

// synced reports whether all blocks are ready. The blocks that count are those of the instance that answers: during a
// reload, of the one that inst replaces.
func (p *instances) synced(inst *instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for inst.replaces != nil {
		inst = inst.replaces
	}
	return !slices.ContainsFunc(inst.refs, func(ref *storeRef) bool { return !ref.ready() })
}

// waitForSync blocks the start of inst until the store of ref is synced. At the first start it also returns if the
// store has nothing to wait for, such as a CRD that is not installed, or if the API server does not answer: other zones
// are served meanwhile. At a reload the instance before answers meanwhile. It returns at the latest timeout after inst
// started, in all blocks. At the first start a block with a slow API server holds up the others for otherPatience.
func (inst *instance) waitForSync(ref *storeRef, timeout time.Duration) {
	if ref.inherited {
		return
	}
	deadline := time.NewTimer(time.Until(inst.started.Add(timeout)))
	defer deadline.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-ref.store.Synced():
			return
		case <-inst.ctx.Done():
			return
		case <-deadline.C:
			if !ref.store.State().Ready { // The first sync may come in the last moment.
				plugin.Log.Warningf("starting after %s without the first sync of %s: %s", timeout, ref.config.Name,
					ref.store.Waiting())
			}
			return
		case <-poll.C:
			if inst.initial && (ref.store.Waiting() == "" || ref.store.Unreachable() || inst.othersWait()) {
				return
			}
		}
	}
}

// otherPatience is how long a block that could answer waits for one that cannot.
const otherPatience = time.Second

// othersWait reports whether any block could answer for otherPatience.
func (inst *instance) othersWait() bool {
	ready := slices.ContainsFunc(inst.refs, func(ref *storeRef) bool { return ref.store.State().Ready })
	if !ready {
		return false
	}
	if inst.answersSince.IsZero() {
		inst.answersSince = time.Now()
	}
	return time.Since(inst.answersSince) >= otherPatience
}

// A task is a store or a controller while it runs in a goroutine of its own.
type task struct {
	name   string
	cancel context.CancelFunc // asks it to end
	done   chan struct{}      // closed when it has ended
}

// startTask runs f until it returns; f has to return when its context ends. An error is logged under name.
func startTask(ctx context.Context, name string, f func(context.Context) error) *task {
	// Stores and controllers log changes of state themselves. client-go would log each attempt.
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	t := &task{name: name, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		defer cancel()
		if err := f(ctx); err != nil {
			plugin.Log.Errorf("%s: stopped: %s", name, err)
		}
	}()
	return t
}

// hasEnded reports whether the task has ended.
func (t *task) hasEnded() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}
