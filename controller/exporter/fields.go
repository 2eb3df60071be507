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

	discoveryv1 "k8s.io/api/discovery/v1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// fieldsPeriod is how long a field counts as unknown to the broker before its CRD is read, or the field tried, again: an administrator may update
// the CRD.
const fieldsPeriod = 10 * time.Minute

// fieldsTimeout bounds a reading of the CRD while others wait for it.
const fieldsTimeout = 5 * time.Second

// fields remembers which fields of an export record the broker does not know, since its CRD is older than this controller, and whether its
// policies deny labels of slices: they are left out, and the rest is exported (docs/spec/controller.md 3.6). The methods may be called by several goroutines.
//
//	a list of the records of the broker, or a field is due ──► read the CRD ──► unknown, known
//	a write fails for a field that the CRD seemed to have, or the CRD cannot be read ──► learn ──► unknown
type fields struct {
	broker *broker.Broker

	mu       sync.Mutex
	unknown  map[string]time.Time // paths such as "ports.appProtocol", by when they are due
	topology time.Time            // when the labels of slices are tried again that the broker denies; zero if it does not
}

// read takes from the CRD which fields the broker knows, so that neither a record nor the import of this cluster has others for a moment. Where it
// cannot be read, as an administrator may have made the rights on the broker, those that are due count as known: the next write tries them.
func (f *fields) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, fieldsTimeout)
	defer cancel()
	lacks, err := f.broker.RecordLacks(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(f.unknown, func(_ string, due time.Time) bool { return err == nil || !now.Before(due) })
	for _, path := range lacks {
		f.unknown[path] = now.Add(fieldsPeriod)
	}
}

// refresh reads the CRD if a field is due, and has labels tried again that are. It is for when the broker can be written: during an outage
// exports stay as they were sent.
func (f *fields) refresh(ctx context.Context, now time.Time) {
	f.mu.Lock()
	if !now.Before(f.topology) {
		f.topology = time.Time{}
	}
	f.mu.Unlock()
	if f.due(now) {
		f.read(ctx)
	}
}

func (f *fields) due(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, due := range f.unknown {
		if !now.Before(due) {
			return true
		}
	}
	return false
}

// essential is the field that no record is written without: the export would reach clusters that it is not meant for.
const essential = "toClusters"

// without returns r without the fields that are unknown to the broker. It says so in r.Dropped, or in r.Failed if the record must not be
// written without one of them.
func (f *fields) without(r export.Result) export.Result {
	if r.Record != nil && f.lackAny() {
		if f.denyTopology() {
			r = withoutTopology(r)
		}
		r = withoutPaths(r, f.paths())
		slices.Sort(r.Dropped)
	}
	return r
}

// withoutPaths returns r without the fields at these paths.
func withoutPaths(r export.Result, paths []string) export.Result {
	spec := jsonOf(r.Record.Spec)
	for _, path := range paths {
		parts := strings.Split(path, ".")
		switch {
		case parts[0] == essential && len(r.Record.Spec.ToClusters) > 0:
			r.Failed = fmt.Sprintf("Nothing is exported: the broker does not know field %q, without which the export would reach all clusters; "+
				"update it with clusterset broker init.", path)
		case removeField(spec, parts):
			r.Dropped = append(r.Dropped, notExported(path))
		}
	}
	record := r.Record.DeepCopy()
	record.Spec = specOf(spec)
	r.Record = record
	return r
}

// secondVIP is the field of the clusterset IP from the second VIP CIDR of a member. While the broker does not know it none is allocated: each attempt
// to write it would fail.
const secondVIP = "vip.second"

// notExported says that a field is left out, and what to do.
func notExported(path string) string {
	return fmt.Sprintf("Field %q is not exported: the broker does not know it; update it with clusterset broker init.", path)
}

// lack reports whether the broker does not know a field.
func (f *fields) lack(path string) bool { return slices.Contains(f.paths(), path) }

// denyTopology reports whether the broker does not allow [apibroker.LabelForZone] and [apibroker.LabelForRegion]: the policies of 0.1.0 deny slices
// that have them.
func (f *fields) denyTopology() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.topology.IsZero()
}

// lackAny reports whether there is anything that exports are written without.
func (f *fields) lackAny() bool { return f.denyTopology() || len(f.paths()) > 0 }

// paths returns the fields that count as unknown, sorted.
func (f *fields) paths() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.unknown))
}

// withoutTopology returns r with the labels in its slices for the broker left out.
func withoutTopology(r export.Result) export.Result {
	var labelled bool
	all := make([]*discoveryv1.EndpointSlice, len(r.Slices))
	for i, s := range r.Slices {
		if all[i] = s; hasTopology(s) {
			all[i], labelled = unlabelled(s), true
		}
	}
	if labelled {
		r.Slices = all
		r.Dropped = append(r.Dropped, fmt.Sprintf("Labels %s and %s of slices are not exported: the broker does not allow them; "+
			"update it with clusterset broker init.", apibroker.LabelForZone, apibroker.LabelForRegion))
	}
	return r
}

func hasTopology(s *discoveryv1.EndpointSlice) bool { return len(apibroker.TopologyOf(s.Labels)) > 0 }

func unlabelled(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s = s.DeepCopy()
	delete(s.Labels, apibroker.LabelForZone)
	delete(s.Labels, apibroker.LabelForRegion)
	return s
}

// learn finds out what of an export the broker does not know, if that is what a write failed for: fields of the record, or labels of slices.
// It reports whether there is something, so that another attempt can succeed.
func (f *fields) learn(ctx context.Context, failure error, r export.Result) (bool, error) {
	if r.Record == nil || failure == nil {
		return false, nil
	}
	var missing []string
	if apiserver.IsUnknownField(failure) {
		kept, err := f.broker.TryRecord(ctx, r.Record)
		if err != nil {
			return false, err
		}
		missing = missingFields(jsonOf(r.Record.Spec), jsonOf(kept.Spec))
	}
	at := slices.IndexFunc(r.Slices, hasTopology)
	denied := at >= 0 && member.Rejection(failure) != "" && f.takesUnlabelled(ctx, r.Slices[at])
	until := time.Now().Add(fieldsPeriod)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range missing {
		f.unknown[path] = until
	}
	if denied {
		f.topology = until
	}
	return denied || len(missing) > 0, nil
}

// takesUnlabelled reports whether the broker takes a slice only without its labels. Nothing is written.
func (f *fields) takesUnlabelled(ctx context.Context, s *discoveryv1.EndpointSlice) bool {
	return member.Rejection(f.broker.TrySlice(ctx, s)) != "" && f.broker.TrySlice(ctx, unlabelled(s)) == nil
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
