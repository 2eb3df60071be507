package cache

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// snapshotWait is when the file is read without any sign of life from the API server: the first answer comes within a
// second of the start.
const snapshotWait = 500 * time.Millisecond

// A restorer reads the snapshot file at the start, where lists do not come.
type restorer struct {
	cfg       *Config
	set       *apiserver.Set // nil with manifests, which have no snapshot
	watches   *watches
	published *published
	useless   atomic.Bool // the file was read, and is of no use
}

// run reads the file once the API server, or a watch that answers need, fails or hangs before the first sync, for any
// reason: out of reach, a rejected credential, a missing right or CRD. The age counts when the file is read; from then
// on it is served without a limit.
func (r *restorer) run(ctx context.Context) error {
	timer, last := time.NewTimer(snapshotWait), time.NewTimer(listWait)
	defer timer.Stop()
	defer last.Stop()
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			return nil
		case <-r.published.synced:
			if r.published.State().Knows("", true) && !r.watches.lacksUnneeded() {
				return nil
			}
			waiting = false
		case <-r.watches.failing:
			waiting = false
		case <-timer.C:
			waiting = r.set.Err() == nil // nothing was heard, or nothing good
		case <-last.C:
			waiting = false
		}
	}
	if sn := r.read(); sn != nil {
		r.restore(sn)
		r.watches.giveUp()
	} else {
		r.useless.Store(true)
	}
	return nil
}

// read returns the snapshot in the file, nil if it is not there or may not be used.
func (r *restorer) read() *snapshot {
	b, err := os.ReadFile(r.cfg.Snapshot)
	if errors.Is(err, fs.ErrNotExist) {
		r.cfg.Log.Infof("%s: no snapshot %s yet", r.cfg.Name, r.cfg.Snapshot)
		return nil
	}
	var sn *snapshot
	if err == nil {
		sn, err = decodeSnapshot(b)
	}
	if err == nil {
		err = sn.checkUse(r.cfg.identity(), string(r.set.UID()), r.cfg.SnapshotMaxAge, time.Now())
	}
	if err != nil {
		r.cfg.Log.Warningf("%s: snapshot %s is not used: %s", r.cfg.Name, r.cfg.Snapshot, logging.Line(err))
		return nil
	}
	return sn
}

// restore uses a snapshot in place of the lists that did not come. Later lists replace it. The cluster
// that the snapshot is of is the right one from then on (docs/spec/dns.md 6.5).
func (r *restorer) restore(sn *snapshot) {
	ws := r.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	whole := !r.published.State().Ready
	var restoring []*watch
	for _, w := range ws.all {
		switch {
		case w.progress.hasObjects():
			whole = false
		case w.needed() || w.progress != absent:
			restoring = append(restoring, w)
		}
	}
	if len(restoring) == 0 {
		return
	}
	if r.set != nil && r.set.UID() == "" {
		r.set.ExpectUID(types.UID(sn.UID))
	}
	for _, w := range restoring {
		ws.objects.replace(w.Kind, w.Namespace, sn.itemsOf(w.Watch))
		w.handleEvent(loaded)
	}
	written := sn.time().UTC().Format(time.RFC3339)
	if !slices.ContainsFunc(restoring, (*watch).needed) {
		r.cfg.Log.Infof("%s: using the cluster ID in the snapshot of %s until ClusterProperties are listed", r.cfg.Name, written)
		return
	}
	r.cfg.Log.Warningf("%s: serving the snapshot of %s until the API server sends the lists", r.cfg.Name, written)
	if whole {
		coverage, _ := ws.coverage(nil)
		ws.restored <- restored{ws.objects.drain(), sn.Serial, sn.Behind, coverage}
	}
}
