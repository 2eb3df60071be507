package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/cache/index"
)

// A snapshot is what a file keeps of a state: the items, not the index, so that restore uses the same code as a list.
type snapshot struct {
	Identity string        // of the configuration it was written with
	UID      string        // of the cluster, "" if not known
	AsOf     int64         // when the source was last heard of, in Unix seconds
	Serial   uint32        // of the state
	Behind   bool          // items are newer than what was served with Serial
	Items    [kinds][]item // each as a storedItem
}

// The head of the file. The number changes with every change of the format.
const snapshotMagic = "clusterset snapshot 6\n"

// Times that matter to the file.
const (
	snapshotPause = 30 * time.Second // at least this between two writes
	// Without any sign of life from the API server the file is read after this, so that the first answer comes within a second of the start.
	snapshotWait = 500 * time.Millisecond
	// The file is read if a list takes longer.
	listWait = 2 * time.Second
)

// encode returns the file: head, JSON, SHA-256 of both.
func (sn *snapshot) encode() ([]byte, error) {
	content, err := json.Marshal(sn)
	if err != nil {
		return nil, err
	}
	b := append([]byte(snapshotMagic), content...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

// decodeSnapshot is the reverse of encode.
func decodeSnapshot(b []byte) (*snapshot, error) {
	if !bytes.HasPrefix(b, []byte(snapshotMagic)) {
		return nil, errors.New("not a snapshot of this version")
	}
	if len(b) < len(snapshotMagic)+sha256.Size {
		return nil, errors.New("cut short")
	}
	content, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if want := sha256.Sum256(content); !bytes.Equal(sum, want[:]) {
		return nil, errors.New("checksum does not match")
	}
	sn := new(snapshot)
	if err := json.Unmarshal(content[len(snapshotMagic):], sn); err != nil {
		return nil, fmt.Errorf("broken in spite of its checksum: %w", err)
	}
	return sn, nil
}

// A storedItem is an item in a file.
type storedItem struct {
	Key     string
	Import  *index.ImportSpec `json:",omitempty"`
	Service string            `json:",omitempty"`
	Slice   *index.SliceSpec  `json:",omitempty"`
	Value   string            `json:",omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (it item) MarshalJSON() ([]byte, error) {
	stored := storedItem{Key: it.key, Service: it.service, Value: it.value}
	if it.imp != nil {
		spec := it.imp.Spec()
		stored.Import = &spec
	}
	if it.slice != nil {
		spec := it.slice.Spec()
		stored.Slice = &spec
	}
	return json.Marshal(stored)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (it *item) UnmarshalJSON(b []byte) error {
	var stored storedItem
	if err := json.Unmarshal(b, &stored); err != nil {
		return err
	}
	*it = item{key: stored.Key, service: stored.Service, value: stored.Value}
	if stored.Import != nil {
		it.imp = index.NewImport(*stored.Import)
	}
	if stored.Slice != nil {
		it.slice = index.NewSlice(*stored.Slice)
	}
	return nil
}

// loadSnapshot reads the file once the API server, or a watch that answers need, is found to fail, or the server says nothing at
// all, before the first sync. Why does not matter: out of reach, a rejected credential, a missing right or CRD. The age counts
// when the file is read: what is served then is served for as long as it takes.
func (s *Store) loadSnapshot(ctx context.Context) error {
	timer, last := time.NewTimer(snapshotWait), time.NewTimer(listWait)
	defer timer.Stop()
	defer last.Stop()
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			return nil
		case <-s.synced:
			if s.State().Complete() && !s.lacksUnneeded() {
				return nil
			}
			waiting = false
		case <-s.failing:
			waiting = false
		case <-timer.C:
			waiting = s.set.Err() == nil // nothing was heard, or nothing good
		case <-last.C:
			waiting = false
		}
	}
	if sn := s.readSnapshot(); sn != nil {
		s.restore(sn)
		s.giveUpUnneeded()
	} else {
		s.noSnapshot.Store(true)
	}
	return nil
}

// lacksUnneeded reports whether a list that answers can do without did not come, although the kind is installed.
func (s *Store) lacksUnneeded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.watches, func(w *watchStore) bool { return !w.needed() && (w.progress == awaited || w.progress == stuck) })
}

// readSnapshot returns the snapshot in the file, nil if it is not there or may not be used.
func (s *Store) readSnapshot() *snapshot {
	b, err := os.ReadFile(s.cfg.Snapshot)
	if errors.Is(err, fs.ErrNotExist) {
		s.cfg.Log.Infof("%s: no snapshot %s yet", s.cfg.Name, s.cfg.Snapshot)
		return nil
	}
	var sn *snapshot
	if err == nil {
		sn, err = decodeSnapshot(b)
	}
	if err == nil {
		err = sn.fits(s.cfg.identity(), s.uid(), s.cfg.SnapshotMaxAge, time.Now())
	}
	if err != nil {
		s.cfg.Log.Warningf("%s: snapshot %s is not used: %s", s.cfg.Name, s.cfg.Snapshot, logging.Line(err))
		return nil
	}
	return sn
}

// time is when the source was last heard of.
func (sn *snapshot) time() time.Time { return time.Unix(sn.AsOf, 0) }

func (sn *snapshot) fits(identity, uid string, maxAge time.Duration, now time.Time) error {
	if sn.Identity != identity {
		return fmt.Errorf("it is of another source or filter: %s", sn.Identity)
	}
	if sn.UID != "" && uid != "" && sn.UID != uid {
		return fmt.Errorf("it is of the cluster %s: want %s", sn.UID, uid)
	}
	if age := now.Sub(sn.time()); age > maxAge {
		return fmt.Errorf("%s old: want at most %s", age.Round(time.Second), maxAge)
	}
	return nil
}

// restore puts a snapshot where lists go that did not come: all of it if no list came. Later lists change what differs. The cluster
// that the snapshot is of is the right one from then on (docs/spec/dns.md 6.5).
func (s *Store) restore(sn *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	whole := !s.State().Ready
	var restoring []*watchStore
	for _, w := range s.watches {
		switch {
		case w.progress.has():
			whole = false
		case w.needed() || w.progress != absent:
			restoring = append(restoring, w)
		}
	}
	if len(restoring) == 0 {
		return
	}
	if s.set != nil && s.uid() == "" {
		s.set.ExpectUID(types.UID(sn.UID))
	}
	for _, w := range restoring {
		s.objects.replace(w.kind, w.namespace, sn.of(w))
		w.happened(loaded)
	}
	if !slices.ContainsFunc(restoring, (*watchStore).needed) {
		s.cfg.Log.Infof("%s: using the cluster ID in the snapshot of %s until ClusterProperties are listed", s.cfg.Name, sn.time().UTC().Format(time.RFC3339))
		return
	}
	s.cfg.Log.Warningf("%s: serving the snapshot of %s until the API server sends the lists", s.cfg.Name,
		sn.time().UTC().Format(time.RFC3339))
	if whole {
		coverage, _ := s.coverageLocked(nil)
		s.restored <- restored{s.objects.drain(), sn.Serial, sn.Behind, coverage}
	}
}

// of returns what the snapshot has of a watch.
func (sn *snapshot) of(w *watchStore) (items []item) {
	for _, it := range sn.Items[w.kind] {
		if w.namespace == "" || strings.HasPrefix(it.key, w.namespace+"/") {
			items = append(items, it)
		}
	}
	return items
}

// writeSnapshots writes the file when the state changed, not too often, and when ctx ends.
func (s *Store) writeSnapshots(ctx context.Context) error {
	select {
	case <-ctx.Done(): // A state that came in the last moment is written all the same.
	case <-s.synced:
	}
	w := snapshotWriter{store: s, file: filepath.Clean(s.cfg.Snapshot)}
	wait.UntilWithContext(ctx, func(context.Context) { w.write() }, snapshotPause)
	w.write()
	w.release()
	return nil
}

// claims are the writers that have claimed a file, of all in this process. At a reload with other filters two Stores write
// to the same file; the old instance, which ends last, must not write last.
var claims = struct {
	sync.Mutex
	of map[string]*snapshotWriter
}{of: map[string]*snapshotWriter{}}

// A snapshotWriter writes the states of one Store to a file, as long as no newer writer has claimed that.
type snapshotWriter struct {
	store   *Store
	file    string
	claimed bool // it had the file once
	state   *State
	asOf    time.Time
	logged  logging.OnChange[string] // the last error
}

// write writes the state if the file has another one and is not claimed by a newer writer. The same state is written anew
// from time to time, so that the file does not look older than it is.
func (w *snapshotWriter) write() {
	s := w.store
	if !w.isDue() {
		return
	}
	// One lock for each file: a disk may hang.
	lock := lockOf(w.file)
	lock.Lock()
	defer lock.Unlock()
	sn, state := s.capture()
	if sn == nil || !state.whole() || !w.isDue() {
		return
	}
	content, err := sn.encode()
	if err == nil {
		err = writeFile(w.file, content)
	}
	if err == nil {
		w.state, w.asOf = state, sn.time()
	}
	if w.logged.Changed(logging.Text(err)) && err != nil {
		s.cfg.Log.Errorf("%s: snapshot: %s", s.cfg.Name, logging.Line(err))
	}
}

// isDue reports whether the file is to be written now. It claims the file.
func (w *snapshotWriter) isDue() bool {
	claims.Lock()
	defer claims.Unlock()
	state := w.store.State()
	return state.whole() && w.claim() && (state != w.state || w.store.asOf().Sub(w.asOf) >= w.store.cfg.SnapshotMaxAge/8)
}

// lockOf returns the lock of a file.
func lockOf(file string) *sync.Mutex {
	lock, _ := locks.LoadOrStore(file, new(sync.Mutex))
	return lock.(*sync.Mutex)
}

// locks are those of files, by name. Whoever writes a file holds its lock.
var locks sync.Map

// whole reports whether a state is one that a file may keep: of complete lists, all of the right cluster.
func (st *State) whole() bool { return st.Ready && st.coverage == nil && !st.Frozen }

// claim claims the file if no writer has it, or if this one is newer than the one that has it, and reports whether it has
// the file now.
func (w *snapshotWriter) claim() bool {
	owner := claims.of[w.file]
	switch {
	case owner == w:
	case owner != nil && w.claimed:
		return false
	default:
		claims.of[w.file] = w
		w.claimed, w.state = true, nil // Whatever is in the file, it is not known.
	}
	return true
}

// release gives the file up.
func (w *snapshotWriter) release() {
	claims.Lock()
	defer claims.Unlock()
	if claims.of[w.file] == w {
		delete(claims.of, w.file)
	}
}

// capture takes what a file keeps, and the state that goes with it, all of one moment. It returns nil while what is kept
// may not be shown.
func (s *Store) capture() (*snapshot, *State) {
	p := &s.publisher
	p.mu.Lock()
	defer p.mu.Unlock()
	k := s.collect()
	if !k.consistent {
		return nil, nil
	}
	state := s.State()
	return &snapshot{
		Identity: s.cfg.identity(), UID: s.uid(), AsOf: s.asOf().Unix(), Serial: state.Serial, Behind: p.behind || k.dirty, Items: k.items,
	}, state
}

// uid is that of the cluster that is followed, "" if it is not known.
func (s *Store) uid() string {
	if s.set == nil {
		return ""
	}
	return string(s.set.UID())
}

// asOf is the time up to which the whole state is known to be true, by the clock as it is now.
func (s *Store) asOf() time.Time { return time.Now().Add(-s.Silence("", true)) }

// writeFile replaces the file at once: after a crash either the old or the new content is there. The new one is written to a
// file whose name is always the same, so that a crash leaves one at most.
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
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
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
