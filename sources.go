package clusterset

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coredns/caddy"
	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/plugin"
)

// A registry knows which sources run and who needs them. Server blocks, and the Corefile before and after a reload, share
// a source if they see the same objects.
type registry struct {
	ctx context.Context // of all that runs

	mu       sync.Mutex // guards all that is not constant in holdings and sources, too
	holdings []*holding // those that are not released
	running  []*source
	active   *control // the controller of the process, nil if there is none
	// restarting is the holding whose instance is being replaced: what is held anew meanwhile replaces it.
	restarting *holding
}

// A source is a store with what must outlive a reload together with it.
type source struct {
	config cache.Config
	store  *cache.Store
	turns  *plugin.Turns
	cancel context.CancelFunc // set while it runs
	done   chan struct{}
}

// A holding is what one instance of the server, one reading of the Corefile, needs.
type holding struct {
	ctx    context.Context // ends with the holding
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	wanted []*wanted
	// controller is what the controller is to do; nil if no block names a broker.
	controller *controller.Config
	initial    bool      // nothing answered before
	replaces   *holding  // that of the instance which answers until this one does; nil if none does
	started    time.Time // since when the blocks of the instance wait, all together
	released   bool
}

// A wanted source is what one block is answered from.
type wanted struct {
	*source
	// told is the serial that secondaries know, or would, from the instance before.
	told uint32
	// inherited means that the instance before is answered from the same source.
	inherited bool
}

type holdingKey struct{}

// A token is what an instance of the server keeps, and nobody else does: it lives as long as its instance.
type token struct{ held *holding }

// holdingOf returns the holding of the instance that c sets up.
func holdingOf(c *caddy.Controller) *holding {
	if t, ok := c.Get(holdingKey{}).(*token); ok {
		return t.held
	}
	held := sources.hold()
	t := &token{held}
	c.Set(holdingKey{}, t)
	follow(c, held)
	// Nobody is told that a restart has failed if the old instance has no clusterset block: then the new one just becomes
	// garbage.
	runtime.AddCleanup(t, func(held *holding) { go sources.release(held) }, held)
	return held
}

func (r *registry) hold() *holding {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := &holding{initial: r.restarting == nil, replaces: r.restarting}
	held.ctx, held.cancel = context.WithCancel(r.ctx)
	r.holdings = append(r.holdings, held)
	return held
}

// find returns the source that serves config: one that runs, one that another block of held has found, or a new one. It
// does not end before held is released.
func (r *registry) find(held *holding, config cache.Config) (*wanted, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := slices.Clone(r.running)
	for _, w := range held.wanted {
		known = append(known, w.source)
		if clash(w.config, config) {
			return nil, fmt.Errorf("snapshot %q: want a file of its own, another block writes there what it sees of %s",
				config.Snapshot, w.config.Name)
		}
	}
	for _, src := range known {
		// A reload lets go of a state that is held because another cluster answers.
		if src.config.Same(&config) && !src.store.Stats().Held {
			w := &wanted{source: src, inherited: held.replaces.wants(src)}
			held.wanted = append(held.wanted, w)
			return w, nil
		}
	}
	store, err := cache.New(config)
	if err != nil {
		return nil, err
	}
	w := &wanted{source: &source{config: config, store: store, turns: new(plugin.Turns)}}
	if from := r.ancestor(w.source); from != nil {
		w.turns = from.turns
	}
	held.wanted = append(held.wanted, w)
	return w, nil
}

// ancestor returns a source that runs and sees the same objects as src: what it has src can have at once.
func (r *registry) ancestor(src *source) *source {
	for _, from := range r.running {
		if from != src && src.config.SameObjects(&from.config) {
			return from
		}
	}
	return nil
}

// clash tells whether two configurations put different objects into one snapshot file.
func clash(a, b cache.Config) bool {
	return a.Snapshot != "" && a.Snapshot == b.Snapshot && !a.SameObjects(&b)
}

func (held *holding) wants(src *source) bool {
	return held != nil && slices.ContainsFunc(held.wanted, func(w *wanted) bool { return w.source == src })
}

// start starts the sources of all blocks of held that do not run, so that the blocks wait at the same time.
func (r *registry) start(held *holding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if held.released || !held.started.IsZero() {
		return
	}
	held.started = time.Now()
	for _, w := range held.wanted {
		w.told = w.store.State().Serial
		if from := r.ancestor(w.source); from != nil && !slices.Contains(r.running, w.source) {
			w.told = from.store.State().Serial
			w.store.Inherit(from.store)
		}
	}
	for _, w := range held.wanted {
		if !slices.Contains(r.running, w.source) {
			r.running = append(r.running, w.source)
			w.start(r.ctx)
		}
	}
	r.settle()
}

func (src *source) start(ctx context.Context) {
	// The store tells what matters by itself. client-go would tell of every attempt.
	ctx, src.cancel = context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	src.done = make(chan struct{})
	go func() {
		defer close(src.done)
		if err := src.store.Run(ctx); err != nil {
			plugin.Log.Errorf("%s: stopped: %s", src.config.Name, err)
		}
	}()
}

// run runs task, which has to end with held.ctx. The release of held waits for it.
func (r *registry) run(held *holding, task func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !held.released {
		held.tasks.Go(task)
	}
}

// release ends all that held has started and nobody else needs. It returns when that is over.
func (r *registry) release(held *holding) {
	r.mu.Lock()
	held.released = true
	held.cancel()
	r.holdings = slices.DeleteFunc(r.holdings, func(other *holding) bool { return other == held })
	for _, other := range r.holdings {
		if other.replaces == held {
			other.replaces = nil
		}
	}
	if r.restarting == held {
		r.restarting = nil
	}
	var unused []*source
	r.running = slices.DeleteFunc(r.running, func(src *source) bool {
		if r.needed(src) {
			return false
		}
		unused = append(unused, src)
		return true
	})
	controlled := r.settle()
	r.mu.Unlock()
	for _, src := range unused {
		src.cancel()
	}
	held.tasks.Wait()
	for _, src := range unused {
		<-src.done
	}
	<-controlled
}

func (r *registry) needed(src *source) bool {
	return slices.ContainsFunc(r.holdings, func(held *holding) bool { return held.wants(src) })
}

// restart notes that the instance of held is about to be replaced.
func (r *registry) restart(held *holding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restarting = held
}

// replaced tells whether the instance of held is being replaced.
func (r *registry) replaced(held *holding) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.restarting == held
}

// restartFailed releases what would have replaced held, or held if it was replaced nevertheless: caddy calls a restart
// failed, too, if a plugin of the old instance, which is stopped by then, fails to shut down.
func (r *registry) restartFailed(held *holding) {
	// Only this goroutine changes the list, unless the process is about to end.
	if !slices.ContainsFunc(caddy.Instances(), held.isOf) {
		r.release(held)
		return
	}
	r.mu.Lock()
	var discarded []*holding
	for _, other := range r.holdings {
		if other.replaces == held {
			discarded = append(discarded, other)
		}
	}
	if r.restarting == held {
		r.restarting = nil
	}
	r.mu.Unlock()
	for _, other := range discarded {
		r.release(other)
	}
}

// isOf tells whether held is what i holds.
func (held *holding) isOf(i *caddy.Instance) bool {
	i.StorageMu.RLock()
	defer i.StorageMu.RUnlock()
	t, ok := i.Storage[holdingKey{}].(*token)
	return ok && t.held == held
}

// stores are those that run, with the names of their sources. Several of one name see different objects of it, or are
// there while a reload goes on: they are numbered.
func (r *registry) stores() map[string]*cache.Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	stores := make(map[string]*cache.Store, len(r.running))
	for _, src := range r.running {
		name := src.config.Name
		for n := 2; stores[name] != nil; n++ {
			name = fmt.Sprintf("%s (%d)", src.config.Name, n)
		}
		stores[name] = src.store
	}
	return stores
}

// synced tells whether no block waits for a list that can come. While the instance before held answers, its blocks count.
func (r *registry) synced(held *holding) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for held.replaces != nil {
		held = held.replaces
	}
	return !slices.ContainsFunc(held.wanted, func(w *wanted) bool { return w.store.Waiting() != "" })
}

// await waits until the instance may take over: at the first start until w can answer or has nothing to wait for, later
// until it can answer, because until then the instance before does. The blocks of an instance wait together: at most
// until timeout after the first of them began.
func (held *holding) await(w *wanted, timeout time.Duration) {
	if w.inherited {
		return
	}
	deadline := time.NewTimer(time.Until(held.started.Add(timeout)))
	defer deadline.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-w.store.Synced():
			return
		case <-held.ctx.Done():
			return
		case <-deadline.C:
			plugin.Log.Warningf("starting after %s without the first sync of %s: %s", timeout, w.config.Name, w.store.Waiting())
			return
		case <-look.C:
			if held.initial && w.store.Waiting() == "" {
				return
			}
		}
	}
}

// branchLen is the length of ".svc".
const branchLen = 4

// storeConfig says where the objects of a block come from and which of them count.
func storeConfig(config plugin.Config) (cache.Config, error) {
	spec := cache.Config{
		Manifests: config.Manifests, Name: "manifests " + strings.Join(config.Manifests, " "),
		Namespaces: config.Namespaces, NamespaceLabels: config.NamespaceLabels, Labels: config.Labels,
		NoEndpoints: config.NoEndpoints,
		Index: index.Options{
			ClusterNames: config.ClusterNames, Zone: config.Topology.Zone, Region: config.Topology.Region,
			MaxName: plugin.MaxName(config.Zones) - branchLen,
		},
		TopologyNode: config.Topology.Node,
		Snapshot:     config.Snapshot, SnapshotMaxAge: config.SnapshotMaxAge,
		CheckInterval: min(30*time.Second, config.StaleAfter/2),
		Log:           plugin.Log, Latency: plugin.ObserveLatency,
	}
	if config.Manifests != nil {
		return spec, nil
	}
	var err error
	spec.REST, spec.Name, err = access(config)
	return spec, err
}

// access reads how to reach the API server, and says it in words.
func access(config plugin.Config) (*rest.Config, string, error) {
	var cfg *rest.Config
	var err error
	name := "in-cluster"
	if config.Kubeconfig == "" {
		if cfg, err = rest.InClusterConfig(); err != nil {
			return nil, "", fmt.Errorf("neither in a cluster (%w) nor with an API server: want kubeconfig FILE, or manifests PATH", err)
		}
	} else {
		name = strings.TrimSpace("kubeconfig " + config.Kubeconfig + " " + config.Context)
		if _, err := os.Stat(config.Kubeconfig); err != nil {
			return nil, "", fmt.Errorf("kubeconfig: %w", err)
		}
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: config.Kubeconfig}
		overrides := &clientcmd.ConfigOverrides{CurrentContext: config.Context}
		if cfg, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig(); err != nil {
			return nil, "", fmt.Errorf("kubeconfig %q: %w", config.Kubeconfig, err)
		}
	}
	cfg.QPS, cfg.Burst = config.QPS, config.Burst
	cfg.UserAgent = plugin.Name
	return cfg, name, nil
}
