package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
)

const (
	snapshotPause    = 30 * time.Second // between two writes of the file, at least
	snapshotPatience = 5 * time.Second  // after which a write is logged that has not ended: a disk may hang
)

// claims holds a claim for each file, by name. At a reload with other filters two Stores write to the same file; the
// old instance, which ends last, must not write last.
var claims sync.Map

// A claim decides which writer of this process may write a file.
type claim struct {
	disk sync.Mutex // held by whoever writes the file: a disk may hang

	mu    sync.Mutex // guards what follows
	owner *snapshotWriter
}

// claimOf returns the claim of a file.
func claimOf(file string) *claim {
	c, _ := claims.LoadOrStore(file, new(claim))
	return c.(*claim)
}

// A snapshotWriter writes the states of one store to its file, as long as no newer writer has claimed that.
type snapshotWriter struct {
	cfg       *Config
	claim     *claim         // of the file
	set       *apiserver.Set // nil with manifests, which have no snapshot
	watches   *watches
	published *published
	publisher *publisher

	owned  bool   // it had the file once
	state  *State // as in the file; nil if unknown
	asOf   time.Time
	logged logging.OnChange[string] // the last error
}

// run writes the file when the state changed, not too often, and when ctx ends.
func (w *snapshotWriter) run(ctx context.Context) error {
	select {
	case <-ctx.Done(): // A state that came in the last moment is written all the same.
	case <-w.published.synced:
	}
	wait.UntilWithContext(ctx, func(context.Context) { w.write() }, snapshotPause)
	w.write()
	w.release()
	return nil
}

// write writes the state if the file has another one and is not claimed by a newer writer. The same state is written
// anew from time to time, so that the file does not look older than it is.
func (w *snapshotWriter) write() {
	if !w.isDue() {
		return
	}
	slow := time.AfterFunc(snapshotPatience, func() {
		w.cfg.Log.Warningf("%s: snapshot %s: the disk takes longer than %s", w.cfg.Name, w.cfg.Snapshot, snapshotPatience)
	})
	defer slow.Stop()
	w.claim.disk.Lock()
	defer w.claim.disk.Unlock()
	sn, state := w.capture()
	if sn == nil || !isWhole(state) || !w.isDue() {
		return
	}
	content, err := sn.encode()
	if err == nil {
		err = writeFile(w.cfg.Snapshot, content)
	}
	if err == nil {
		w.state, w.asOf = state, sn.time()
	}
	if w.logged.Changed(logging.Text(err)) && err != nil {
		w.cfg.Log.Errorf("%s: snapshot: %s", w.cfg.Name, logging.Line(err))
	}
}

// isDue reports whether the file is to be written now. It claims the file.
func (w *snapshotWriter) isDue() bool {
	w.claim.mu.Lock()
	defer w.claim.mu.Unlock()
	state := w.published.State()
	return isWhole(state) && w.ownsFile() && (state != w.state || w.lastContact().Sub(w.asOf) >= w.cfg.SnapshotMaxAge/8)
}

// isWhole reports whether a file may keep a state: its lists are complete and of the right cluster.
func isWhole(st *State) bool { return st.Knows("", true) && !st.Stale("", true) }

// lastContact is the time up to which the whole state is known to be true, by the clock as it is now.
func (w *snapshotWriter) lastContact() time.Time { return time.Now().Add(-w.watches.Silence("", true)) }

// ownsFile reports whether the file is this writer's. A writer claims the file if no writer has it, or if an older one
// has it. The caller holds claim.mu.
func (w *snapshotWriter) ownsFile() bool {
	switch owner := w.claim.owner; {
	case owner == w:
		return true
	case owner != nil && w.owned:
		return false
	}
	w.claim.owner, w.owned, w.state = w, true, nil // Whatever is in the file, it is not known.
	return true
}

// release gives the file up.
func (w *snapshotWriter) release() {
	w.claim.mu.Lock()
	defer w.claim.mu.Unlock()
	if w.claim.owner == w {
		w.claim.owner = nil
	}
}

// capture takes the content of a file, and the state that goes with it, all of one moment. It returns nil while the
// content may not be shown.
func (w *snapshotWriter) capture() (*snapshot, *State) {
	p := w.publisher
	p.mu.Lock()
	defer p.mu.Unlock()
	k := w.watches.collect()
	if !k.consistent {
		return nil, nil
	}
	state := w.published.State()
	sn := &snapshot{Identity: w.cfg.identity(), AsOf: w.lastContact().Unix(), Serial: state.Serial, Behind: p.behind ||
		k.dirty, Items: k.items}
	if w.set != nil {
		sn.UID = string(w.set.UID())
	}
	return sn, state
}

// writeFile replaces the file at once: after a crash either the old or the new content is there. The temporary file
// always has the same name, so that a crash leaves one at most.
func writeFile(name string, content []byte) (err error) {
	next := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".next")
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(next)
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, name)
	}
	if err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	return folder.Sync()
}
