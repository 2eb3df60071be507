package cache

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// manifests are the objects of some files at one moment.
type manifests struct {
	objects [kinds][]metav1.Object
	origin  map[string]string // file by kind and key
}

// A stamp shows whether a file has changed without reading it.
type stamp struct {
	info    os.FileInfo
	settled bool // a later write has another time: the file was old when it was read, or is from the future
}

// readManifests reads files, and the files of folders (not of their subfolders) with names that end in .yaml, .yml or
// .json. It skips names with a leading dot, which a mounted ConfigMap has.
func readManifests(paths []string) (*manifests, stamps, error) {
	at, err := statFiles(paths)
	if err != nil {
		return nil, nil, err
	}
	m, err := at.read()
	return m, at, err
}

// stamps are those of all files.
type stamps map[string]stamp

// read reads the files. A file that cannot be read is not settled: it may become readable without a change.
func (at stamps) read() (*manifests, error) {
	files := slices.Sorted(maps.Keys(at))
	contents := make([][]byte, len(files))
	var errs []error
	for i, file := range files {
		var err error
		if contents[i], err = os.ReadFile(file); err != nil {
			at[file] = stamp{info: at[file].info}
			errs = append(errs, fmt.Errorf("manifests: %w", err))
		}
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	m := &manifests{origin: map[string]string{}}
	for i, file := range files {
		if err := m.readFile(file, contents[i]); err != nil {
			errs = append(errs, fmt.Errorf("manifests: %w", err))
		}
	}
	return m, errors.Join(errs...)
}

// statFiles finds the files.
func statFiles(paths []string) (stamps, error) {
	at := stamps{}
	add := func(file string) error {
		info, err := os.Stat(file)
		if err != nil {
			return fmt.Errorf("manifests: %w", err)
		}
		if !info.IsDir() {
			age := time.Since(info.ModTime())
			at[file] = stamp{info, age > 2*time.Second || age < 0}
		}
		return nil
	}
	for _, path := range paths {
		path = filepath.Clean(path)
		entries, err := os.ReadDir(path)
		if err != nil { // not a folder
			if err := add(path); err != nil {
				return nil, err
			}
			continue
		}
		for _, e := range entries {
			if !isManifest(e.Name()) {
				continue
			}
			if err := add(filepath.Join(path, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return at, nil
}

func isManifest(name string) bool {
	ext := filepath.Ext(name)
	return !strings.HasPrefix(name, ".") && (ext == ".yaml" || ext == ".yml" || ext == ".json")
}

// changed reports whether the content of the files may differ now.
func (at stamps) changed(current stamps) bool {
	return !maps.EqualFunc(at, current, func(a, b stamp) bool {
		return a.settled && os.SameFile(a.info, b.info) && a.info.Size() == b.info.Size() &&
			a.info.ModTime().Equal(b.info.ModTime())
	})
}

func (m *manifests) readFile(file string, b []byte) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(b), 4096)
	for i := 1; ; i++ {
		var doc json.RawMessage
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = m.readObject(file, doc)
		}
		if err != nil {
			return fmt.Errorf("%s: document %d: %w", file, i, err)
		}
	}
}

func (m *manifests) readObject(file string, doc []byte) error {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if doc = bytes.TrimSpace(doc); len(doc) == 0 || string(doc) == "null" {
		return nil // a document of comments
	}
	if err := json.Unmarshal(doc, &head); err != nil {
		return fmt.Errorf("want an object: %w", err)
	}
	if head.Kind == "" || head.APIVersion == "" {
		return errors.New("want an object with apiVersion and kind")
	}
	gv, err := schema.ParseGroupVersion(head.APIVersion)
	if err != nil {
		return err
	}
	if kind, ok := strings.CutSuffix(head.Kind, "List"); ok && head.Items != nil {
		for _, it := range head.Items {
			if err := m.readObject(file, inList(it, head.APIVersion, kind)); err != nil {
				return err
			}
		}
		return nil
	}
	for kind, r := range resources {
		if head.Kind == Kind(kind).String() && gv.Group == r.Group && slices.Contains(r.Versions, gv.Version) {
			return m.add(Kind(kind), file, doc)
		}
	}
	return nil
}

// inList gives an item of a typed list the kind that it may leave out there.
func inList(doc []byte, apiVersion, kind string) []byte {
	var fields map[string]json.RawMessage
	if kind == "" || json.Unmarshal(doc, &fields) != nil || fields == nil || fields["kind"] != nil {
		return doc
	}
	for name, value := range map[string]string{"apiVersion": apiVersion, "kind": kind} {
		fields[name], _ = json.Marshal(value)
	}
	doc, _ = json.Marshal(fields)
	return doc
}

// add keeps an object, once.
func (m *manifests) add(kind Kind, file string, doc []byte) error {
	obj := resources[kind].Example.DeepCopyObject().(metav1.Object)
	if err := json.Unmarshal(doc, obj); err != nil {
		return fmt.Errorf("want a %s: %w", kind, err)
	}
	if obj.GetName() == "" {
		return fmt.Errorf("want a %s with a name", kind)
	}
	if resources[kind].Namespaced && obj.GetNamespace() == "" {
		obj.SetNamespace(metav1.NamespaceDefault)
	}
	id := kind.String() + " " + keyOf(obj)
	if other, ok := m.origin[id]; ok {
		return fmt.Errorf("%s is given twice, also in %s", id, other)
	}
	m.origin[id] = file
	m.objects[kind] = append(m.objects[kind], obj)
	return nil
}

// pollInterval is how often files are checked. Polling alone works for all that a folder may be mounted from.
const pollInterval = time.Second

// A fileWatch finds out when manifests change. Only run calls check.
type fileWatch struct {
	cfg     *Config
	watches *watches
	stores  []*watchStore // of all watches

	latest *manifests               // of the files that were read last
	seen   stamps                   // of these
	broken error                    // the fault in these
	logged logging.OnChange[string] // the current fault
}

// run follows the files until ctx ends. Broken files change nothing.
func (w *fileWatch) run(ctx context.Context) error {
	w.apply(w.latest)
	_ = wait.PollUntilContextCancel(ctx, pollInterval, false, func(context.Context) (bool, error) {
		w.check()
		return false, nil
	}) // It ends with ctx.
	return nil
}

// check reads the files if they have changed, broken or not, since they were read last.
func (w *fileWatch) check() {
	current, err := statFiles(w.cfg.Manifests)
	if err == nil && w.seen.changed(current) {
		w.latest, w.broken = current.read()
		w.seen = current
		if w.broken == nil {
			w.apply(w.latest)
		}
	}
	err = cmp.Or(err, w.broken)
	if err == nil {
		w.watches.markContacts()
	}
	switch changed := w.logged.Changed(logging.Text(err)); {
	case !changed:
	case err == nil:
		w.cfg.Log.Infof("%s: valid again", w.cfg.Name)
	default:
		w.cfg.Log.Errorf("%s: the last state stays: %s", w.cfg.Name, logging.Line(err))
	}
}

// apply replaces all items by those of m, at once.
func (w *fileWatch) apply(m *manifests) {
	w.watches.handleEvent(rolledBack)
	w.watches.markContacts()
	for _, store := range w.stores {
		var list []any
		for _, obj := range m.objects[store.Kind] {
			inside := store.Namespace == "" || strings.EqualFold(obj.GetNamespace(), store.Namespace)
			if inside && store.selector.Matches(labels.Set(obj.GetLabels())) {
				list = append(list, obj)
			}
		}
		_ = store.Replace(list, "") // It never fails.
	}
}
