package exporter

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
)

// fieldsPeriod is how long a field counts as unknown to the broker before it is tried again: an administrator may update the CRD.
const fieldsPeriod = 10 * time.Minute

// fields remembers which fields of an export record the broker does not know, since its CRD is older than this controller: they are
// left out, and the rest is exported (docs/spec/controller.md 3.6). The methods may be called by several goroutines.
type fields struct {
	broker *broker.Broker

	mu      sync.Mutex
	unknown map[string]time.Time // paths such as "ports.appProtocol", by when they are tried again
}

// without returns r without the fields that are unknown to the broker. It says so in r.Dropped.
func (f *fields) without(r export.Result) export.Result {
	paths := f.paths(time.Now())
	if r.Record == nil || len(paths) == 0 {
		return r
	}
	spec := jsonOf(r.Record.Spec)
	for _, path := range paths {
		if removeField(spec, strings.Split(path, ".")) {
			r.Dropped = append(r.Dropped,
				fmt.Sprintf("Field %q is not exported: the broker does not know it; update it with clusterset broker init.", path))
		}
	}
	slices.Sort(r.Dropped)
	record := r.Record.DeepCopy()
	record.Spec = specOf(spec)
	r.Record = record
	return r
}

// paths returns the fields that count as unknown, sorted.
func (f *fields) paths(now time.Time) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.unknown, func(_ string, until time.Time) bool { return !now.Before(until) })
	return slices.Sorted(maps.Keys(f.unknown))
}

// learn asks the broker which fields of a record it does not know, if that is what a write failed for. It reports whether there are
// such fields, so that another attempt can succeed.
func (f *fields) learn(ctx context.Context, failure error, record *v1alpha1.ExportedService) (bool, error) {
	if record == nil || !apiserver.IsUnknownField(failure) {
		return false, nil
	}
	kept, err := f.broker.KeptRecord(ctx, record)
	if err != nil {
		return false, err
	}
	missing := missingFields(jsonOf(record.Spec), jsonOf(kept.Spec))
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range missing {
		f.unknown[path] = time.Now().Add(fieldsPeriod)
	}
	return len(missing) > 0, nil
}

// jsonOf returns a spec as its JSON says it.
func jsonOf(spec v1alpha1.ExportedServiceSpec) any {
	text, err := json.Marshal(spec)
	if err != nil {
		panic("exporter: a valid record is no JSON: " + err.Error())
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		panic("exporter: a record is no JSON: " + err.Error())
	}
	return value
}

func specOf(value any) (spec v1alpha1.ExportedServiceSpec) {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		panic("exporter: a record without some of its fields is not valid: " + err.Error())
	}
	return spec
}

// missingFields returns the paths of the fields that want has and got has not, at the highest level. Items of lists are compared in
// their order, and add nothing to a path.
func missingFields(want, got any) []string {
	var paths []string
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for key, value := range w {
			is, ok := g[key]
			if !ok {
				paths = append(paths, key)
				continue
			}
			for _, below := range missingFields(value, is) {
				paths = append(paths, key+"."+below)
			}
		}
	case []any:
		g, _ := got.([]any)
		for i := range min(len(w), len(g)) {
			paths = append(paths, missingFields(w[i], g[i])...)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// removeField removes the field at path from value, in every item of a list. It reports whether it was there.
func removeField(value any, path []string) (removed bool) {
	switch v := value.(type) {
	case map[string]any:
		below, ok := v[path[0]]
		if ok && len(path) > 1 {
			return removeField(below, path[1:])
		}
		delete(v, path[0])
		return ok
	case []any:
		for _, item := range v {
			removed = removeField(item, path) || removed
		}
	}
	return removed
}
