package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// A snapshot has the items of a state, not its index, so that restore uses the same code as a list.
type snapshot struct {
	Identity string        // of the configuration it was written with
	UID      string        // of the cluster, "" if not known
	AsOf     int64         // when the source was last heard of, in Unix seconds
	Serial   uint32        // of the state
	Behind   bool          // items are newer than Serial
	Items    [kinds][]item // each as a storedItem
}

// The head of the file. The number changes with every change of the format.
const snapshotMagic = "clusterset snapshot 6\n"

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

// time is when the source was last heard of.
func (sn *snapshot) time() time.Time { return time.Unix(sn.AsOf, 0) }

func (sn *snapshot) checkUse(identity, uid string, maxAge time.Duration, now time.Time) error {
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

// itemsOf returns what the snapshot has of a watch.
func (sn *snapshot) itemsOf(w Watch) (items []item) {
	for _, it := range sn.Items[w.Kind] {
		if w.Namespace == "" || strings.HasPrefix(it.key, w.Namespace+"/") {
			items = append(items, it)
		}
	}
	return items
}
