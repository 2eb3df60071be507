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
	"time"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// A snapshot is what a file keeps of a state: the compact values, not the index, so that it is read over the same way
// as any list.
type snapshot struct {
	identity string    // of the configuration it was written with
	asOf     time.Time // when the source was last heard of
	serial   uint32
	items    [kinds][]item
}

// The head of the file. The number changes with every change of the format.
const snapshotMagic = "clusterset snapshot 1\n"

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
	vip := uint64(0)
	if spec.VIP {
		vip = 1
	}
	w.number(vip)
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
	sn.serial = uint32(r.number(math.MaxUint32))
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
		Namespace: r.text(), Name: r.text(), Type: index.Type(r.number(math.MaxUint8)), VIP: r.number(1) == 1,
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

// items lists all that is kept of a kind.
func (o *objects) items(kind Kind) []item {
	o.mu.Lock()
	defer o.mu.Unlock()
	var items []item
	switch kind {
	case ServiceImport:
		items = make([]item, 0, len(o.imports))
		for _, imp := range o.imports {
			items = append(items, item{key: imp.Namespace() + "/" + imp.Name(), imp: imp})
		}
	case EndpointSlice:
		items = make([]item, 0, len(o.slices))
		for key, held := range o.slices {
			items = append(items, item{key: key, slice: held.slice, service: held.service})
		}
	case Namespace:
		for name := range o.namespaces {
			items = append(items, item{key: name, value: name})
		}
	case ClusterProperty:
		for name, value := range o.properties {
			items = append(items, item{key: name, value: value})
		}
	}
	return items
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

// seed puts a snapshot where lists go, unless one of them is there already. Later lists change what differs.
func (s *Store) seed(sn *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	s.seeds <- seed{s.objects.drain(), sn.serial}
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
	k := keeper{store: s}
	for ctx.Err() == nil {
		k.keep()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	k.keep()
	return nil
}

// A keeper knows what the file holds.
type keeper struct {
	store *Store
	state *State
	asOf  time.Time
	told  string // the last error
}

// keep writes the state if the file has another one. The same state is written anew from time to time, so that the file
// does not look older than it is.
func (k *keeper) keep() {
	s := k.store
	state, asOf := s.State(), s.LastContact()
	if state.Stale || state == k.state && asOf.Sub(k.asOf) < s.cfg.SnapshotMaxAge/8 {
		return
	}
	err := s.writeSnapshot(state, asOf)
	if err == nil {
		k.state, k.asOf, k.told = state, asOf, ""
	} else if text := short(err); text != k.told {
		k.told = text
		s.cfg.Log.Errorf("%s: snapshot: %s", s.cfg.Name, text)
	}
}

func (s *Store) writeSnapshot(state *State, contact time.Time) error {
	sn := snapshot{identity: s.cfg.identity(), asOf: contact, serial: state.Serial}
	for kind := range kinds {
		sn.items[kind] = s.objects.items(kind)
	}
	return writeFile(s.cfg.Snapshot, sn.encode())
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
