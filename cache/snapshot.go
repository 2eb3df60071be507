package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// A snapshot is what a file keeps of a state: the compact values, not the index, so that it is read over the same way
// as any list.
type snapshot struct {
	identity string    // of the configuration it was written with
	asOf     time.Time // when the source was last heard of
	serial   uint32
	owed     bool // items are newer than what was served with serial
	items    [kinds][]item
}

// The head of the file. The number changes with every change of the format.
const snapshotMagic = "clusterset snapshot 2\n"

// Times that matter to the file.
const (
	snapshotPause = 30 * time.Second // at least this between two writes
	snapshotWait  = time.Second      // without any sign of life from the API server the file is read after this
)

// encode returns the file: head, content, SHA-256 of both.
func (sn *snapshot) encode() []byte {
	w := writer{b: []byte(snapshotMagic)}
	w.text(sn.identity)
	w.number(uint64(sn.asOf.Unix()))
	w.number(uint64(sn.serial))
	w.flag(sn.owed)
	for kind := range kinds {
		w.number(uint64(len(sn.items[kind])))
		for i := range sn.items[kind] {
			it := &sn.items[kind][i]
			w.text(it.key)
			switch kind {
			case ServiceImport:
				w.importSpec(it.imp.Spec())
			case EndpointSlice:
				w.text(it.service)
				w.sliceSpec(it.slice.Spec())
			default:
				w.text(it.value)
			}
		}
	}
	sum := sha256.Sum256(w.b)
	return append(w.b, sum[:]...)
}

// A writer appends values to a file.
type writer struct{ b []byte }

func (w *writer) number(n uint64) { w.b = binary.AppendUvarint(w.b, n) }

func (w *writer) flag(b bool) {
	if b {
		w.number(1)
	} else {
		w.number(0)
	}
}

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *writer) addrs(list []netip.Addr) {
	w.number(uint64(len(list)))
	for _, a := range list {
		w.text(string(a.AsSlice()))
	}
}

func (w *writer) ports(ps index.Ports) {
	var list []index.Port
	for p := range ps.All() {
		list = append(list, p)
	}
	w.number(uint64(len(list)))
	for _, p := range list {
		w.text(p.Name)
		w.number(uint64(p.Proto))
		w.number(uint64(p.Number))
	}
}

func (w *writer) importSpec(spec index.ImportSpec) {
	w.text(spec.Namespace)
	w.text(spec.Name)
	w.number(uint64(spec.Type))
	w.flag(spec.VIP)
	w.addrs(spec.IPs)
	w.ports(spec.Ports)
}

func (w *writer) sliceSpec(spec index.SliceSpec) {
	w.text(spec.Cluster)
	w.text(spec.Zone)
	w.text(spec.Region)
	w.number(uint64(spec.Family))
	w.ports(spec.Ports)
	w.number(uint64(len(spec.Endpoints)))
	for _, ep := range spec.Endpoints {
		w.text(ep.Host)
		w.addrs(ep.Addrs)
	}
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
	r := reader{b: content[len(snapshotMagic):]}
	sn := &snapshot{identity: r.text(), asOf: time.Unix(int64(r.number(math.MaxInt64)), 0)}
	sn.serial, sn.owed = uint32(r.number(math.MaxUint32)), r.flag()
	for kind := range kinds {
		for range r.count() {
			it := item{key: r.text()}
			switch kind {
			case ServiceImport:
				it.imp = index.NewImport(r.importSpec())
			case EndpointSlice:
				it.service = r.text()
				it.slice = index.NewSlice(r.sliceSpec())
			default:
				it.value = r.text()
			}
			if r.broken {
				return nil, errors.New("broken in spite of its checksum")
			}
			sn.items[kind] = append(sn.items[kind], it)
		}
	}
	if r.broken {
		return nil, errors.New("broken in spite of its checksum")
	}
	return sn, nil
}

// A reader takes values from a file. After the first that is not there, all are zero.
type reader struct {
	b      []byte
	broken bool
}

func (r *reader) number(most uint64) uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > most {
		r.b, r.broken = nil, true
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) flag() bool { return r.number(1) == 1 }

// count is the length of a list, each entry of which takes an octet at least.
func (r *reader) count() uint64 { return r.number(uint64(len(r.b))) }

func (r *reader) text() string {
	n := r.count()
	if n > uint64(len(r.b)) {
		r.b, r.broken = nil, true
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) addrs() []netip.Addr {
	var list []netip.Addr
	for range r.count() {
		a, ok := netip.AddrFromSlice([]byte(r.text()))
		if !ok {
			r.b, r.broken = nil, true
			return nil
		}
		list = append(list, a)
	}
	return list
}

func (r *reader) ports() index.Ports {
	var list []index.Port
	for range r.count() {
		list = append(list, index.Port{
			Name: r.text(), Proto: index.Proto(r.number(math.MaxUint8)), Number: uint16(r.number(math.MaxUint16)),
		})
	}
	return index.NewPorts(list)
}

func (r *reader) importSpec() index.ImportSpec {
	return index.ImportSpec{
		Namespace: r.text(), Name: r.text(), Type: index.Type(r.number(math.MaxUint8)), VIP: r.flag(),
		IPs: r.addrs(), Ports: r.ports(),
	}
}

func (r *reader) sliceSpec() index.SliceSpec {
	spec := index.SliceSpec{
		Cluster: r.text(), Zone: r.text(), Region: r.text(), Family: index.Family(r.number(1)), Ports: r.ports(),
	}
	for range r.count() {
		spec.Endpoints = append(spec.Endpoints, index.Endpoint{Host: r.text(), Addrs: r.addrs()})
	}
	return spec
}

// loadSnapshot reads the file once the API server is found out of reach, or says nothing at all, before the first sync.
// The age counts when the file is read: what is served then is served for as long as it takes.
func (s *Store) loadSnapshot(ctx context.Context) error {
	timer := time.NewTimer(snapshotWait)
	defer timer.Stop()
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			return nil
		case <-s.synced:
			return nil
		case <-s.lost:
			waiting = false
		case <-timer.C:
			waiting = s.contact.Load() != 0
		}
	}
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
		err = sn.fits(s.cfg.identity(), s.cfg.SnapshotMaxAge, time.Now())
	}
	if err != nil {
		s.cfg.Log.Warningf("%s: snapshot %s is not used: %s", s.cfg.Name, s.cfg.Snapshot, short(err))
		return nil
	}
	s.seed(sn)
	return nil
}

func (sn *snapshot) fits(identity string, maxAge time.Duration, now time.Time) error {
	if sn.identity != identity {
		return fmt.Errorf("it is of another source or filter: %s", sn.identity)
	}
	if age := now.Sub(sn.asOf); age > maxAge {
		return fmt.Errorf("%s old: want at most %s", age.Round(time.Second), maxAge)
	}
	return nil
}

// seed puts a snapshot where lists go, unless one of them, or a state that was inherited, is there already. Later lists
// change what differs.
func (s *Store) seed(sn *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.State().Ready {
		return
	}
	for _, f := range s.feeds {
		if f.synced {
			return
		}
	}
	for kind := range kinds {
		s.objects.replace(kind, "", sn.items[kind])
	}
	s.cfg.Log.Warningf("%s: serving the snapshot of %s until the API server answers", s.cfg.Name,
		sn.asOf.UTC().Format(time.RFC3339))
	s.seeds <- seed{s.objects.drain(), sn.serial, sn.owed}
}

// keepSnapshot writes the file when the state changed, not too often, and when ctx ends.
func (s *Store) keepSnapshot(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.synced:
	}
	ticker := time.NewTicker(snapshotPause)
	defer ticker.Stop()
	k := keeper{store: s, file: filepath.Clean(s.cfg.Snapshot)}
	for ctx.Err() == nil {
		k.keep()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	k.keep()
	k.leave()
	return nil
}

// owners are the keepers that write to a file, of all in this process. At a reload with other filters two Stores have
// the same one; that of the old instance, which ends last, must not have the last word.
var owners = struct {
	sync.Mutex
	of map[string]*keeper
}{of: map[string]*keeper{}}

// A keeper knows what the file holds.
type keeper struct {
	store *Store
	file  string
	owned bool // the file was its own once
	state *State
	asOf  time.Time
	told  string // the last error
}

// keep writes the state if the file has another one and is the keeper's own. The same state is written anew from time to
// time, so that the file does not look older than it is.
func (k *keeper) keep() {
	s := k.store
	owners.Lock()
	defer owners.Unlock()
	state := s.State()
	if state.Stale || !k.own() || state == k.state && s.LastContact().Sub(k.asOf) < s.cfg.SnapshotMaxAge/8 {
		return
	}
	sn, state := s.capture()
	if sn == nil || state.Stale {
		return
	}
	err := writeFile(k.file, sn.encode())
	if err == nil {
		k.state, k.asOf, k.told = state, sn.asOf, ""
	} else if text := short(err); text != k.told {
		k.told = text
		s.cfg.Log.Errorf("%s: snapshot: %s", s.cfg.Name, text)
	}
}

// own makes the file the keeper's own if nobody has it, or if the keeper is newer than who has it.
func (k *keeper) own() bool {
	owner := owners.of[k.file]
	switch {
	case owner == k:
	case owner != nil && k.owned:
		return false
	default:
		owners.of[k.file] = k
		k.owned, k.state = true, nil // Whatever is in the file, it is not known.
	}
	return true
}

// leave gives the file up.
func (k *keeper) leave() {
	owners.Lock()
	defer owners.Unlock()
	if owners.of[k.file] == k {
		delete(owners.of, k.file)
	}
}

// capture takes what a file keeps, and the state that goes with it, all of one moment. It returns nil while what is kept
// may not be shown.
func (s *Store) capture() (*snapshot, *State) {
	p := &s.publisher
	p.mu.Lock()
	defer p.mu.Unlock()
	k := s.gather()
	if !k.sound {
		return nil, nil
	}
	state := s.State()
	return &snapshot{
		identity: s.cfg.identity(), asOf: s.LastContact(), serial: state.Serial, owed: p.owed || k.dirty, items: k.items,
	}, state
}

// writeFile replaces the file at once: after a crash either the old or the new content is there.
func writeFile(name string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
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
		err = os.Rename(f.Name(), name)
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
