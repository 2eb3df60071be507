package cache

import (
	"bytes"
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

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// manifests are the objects of some files at one moment.
type manifests struct {
	objects [kinds][]metav1.Object
	zone    map[string][2]string // zone and region by Node
	origin  map[string]string    // file by kind and key
	stamp   map[string]stamp
}

// A stamp tells whether a file has changed without reading it.
type stamp struct {
	info    os.FileInfo
	settled bool // so old when it was read that a later write has another time
}

// readManifests reads files, and those files in folders (not in folders below them) whose names end in .yaml, .yml or
// .json. Names with a leading dot are passed over: a mounted ConfigMap has such.
func readManifests(paths []string) (*manifests, error) {
	stamps, err := lookAt(paths)
	if err != nil {
		return nil, err
	}
	m := &manifests{origin: map[string]string{}, zone: map[string][2]string{}, stamp: stamps}
	var errs []error
	for _, file := range slices.Sorted(maps.Keys(stamps)) {
		b, err := os.ReadFile(file)
		if err == nil {
			err = m.readFile(file, b)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("manifests: %w", err))
		}
	}
	return m, errors.Join(errs...)
}

// lookAt finds the files.
func lookAt(paths []string) (map[string]stamp, error) {
	stamps := map[string]stamp{}
	look := func(file string) error {
		info, err := os.Stat(file)
		if err != nil {
			return fmt.Errorf("manifests: %w", err)
		}
		if !info.IsDir() {
			stamps[file] = stamp{info, time.Since(info.ModTime()) > 2*time.Second}
		}
		return nil
	}
	for _, path := range paths {
		path = filepath.Clean(path)
		entries, err := os.ReadDir(path)
		if err != nil { // not a folder
			if err := look(path); err != nil {
				return nil, err
			}
			continue
		}
		for _, e := range entries {
			if !isManifest(e.Name()) {
				continue
			}
			if err := look(filepath.Join(path, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return stamps, nil
}

func isManifest(name string) bool {
	ext := filepath.Ext(name)
	return !strings.HasPrefix(name, ".") && (ext == ".yaml" || ext == ".yml" || ext == ".json")
}

// changed reports whether the files may hold something else now.
func (m *manifests) changed(now map[string]stamp) bool {
	return !maps.EqualFunc(m.stamp, now, func(a, b stamp) bool {
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
	if head.Kind == "Node" && gv.Group == "" {
		return m.readNode(doc)
	}
	for kind, r := range resources {
		if head.Kind == Kind(kind).String() && gv.Group == r.group && slices.Contains(r.versions, gv.Version) {
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

func (m *manifests) readNode(doc []byte) error {
	var node metav1.PartialObjectMetadata
	if err := json.Unmarshal(doc, &node); err != nil {
		return fmt.Errorf("want a Node: %w", err)
	}
	m.zone[node.Name] = [2]string{node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelTopologyRegion]}
	return nil
}

// add keeps an object, once.
func (m *manifests) add(kind Kind, file string, doc []byte) error {
	var obj metav1.Object
	switch kind {
	case ServiceImport, ClusterProperty:
		obj = &customObject{}
	case EndpointSlice:
		obj = &discoveryv1.EndpointSlice{}
	default:
		obj = &corev1.Namespace{}
	}
	if err := json.Unmarshal(doc, obj); err != nil {
		return fmt.Errorf("want a %s: %w", kind, err)
	}
	if obj.GetName() == "" {
		return fmt.Errorf("want a %s with a name", kind)
	}
	if resources[kind].namespaced && obj.GetNamespace() == "" {
		setNamespace(obj, metav1.NamespaceDefault)
	}
	id := kind.String() + " " + keyOf(obj)
	if other, ok := m.origin[id]; ok {
		return fmt.Errorf("%s is given twice, also in %s", id, other)
	}
	m.origin[id] = file
	m.objects[kind] = append(m.objects[kind], obj)
	return nil
}

func setNamespace(obj metav1.Object, namespace string) {
	switch obj := obj.(type) {
	case *customObject:
		obj.Namespace = namespace
	case *discoveryv1.EndpointSlice:
		obj.Namespace = namespace
	}
}

// pollInterval is how often files are looked at. Nothing else works for all that a folder may be mounted from.
const pollInterval = time.Second

// followFiles serves what the files say until ctx ends. Files that are broken change nothing.
func (s *Store) followFiles(ctx context.Context) error {
	s.apply(s.files)
	told := ""
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, err := lookAt(s.cfg.Manifests)
		if err == nil && !s.files.changed(now) {
			s.touchAll()
			if told != "" {
				s.cfg.Log.Infof("%s: sound again", s.cfg.Name)
				told = ""
			}
			continue
		}
		var next *manifests
		if err == nil {
			next, err = readManifests(s.cfg.Manifests)
		}
		if err != nil {
			if text := short(err); text != told {
				told = text
				s.cfg.Log.Errorf("%s: the last state stays: %s", s.cfg.Name, text)
			}
			continue
		}
		s.files = next
		s.apply(next)
	}
}

func (s *Store) touchAll() {
	for _, f := range s.feeds {
		f.touch()
	}
}

// apply replaces all that is kept by what m says, at once.
func (s *Store) apply(m *manifests) {
	s.mu.Lock()
	for _, f := range s.feeds {
		f.pending = true
	}
	s.mu.Unlock()
	if at, ok := m.zone[s.cfg.TopologyNode]; ok {
		s.objects.stand(at[0], at[1])
	}
	for _, f := range s.feeds {
		var list []any
		for _, obj := range m.objects[f.kind] {
			if (f.scope == "" || strings.EqualFold(obj.GetNamespace(), f.scope)) && f.selector.Matches(labels.Set(obj.GetLabels())) {
				list = append(list, obj)
			}
		}
		_ = f.Replace(list, "") // It never fails.
	}
}
