package cache

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/test/harness/golden"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
)

// Malformed objects, half of them with octets that were changed at random, cost only themselves: each is decoded or
// not, and read or rejected with a reason. In `make faults` there are ten million.
func TestMalformedObjects(t *testing.T) {
	count := 20_000
	if outages.Long() {
		count = 10_000_000
	}
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	all := make([]malformed, workers)
	for i := range all {
		wg.Go(func() { all[i].run(t, rand.New(rand.NewPCG(17, uint64(i))), count/workers) })
	}
	wg.Wait()
	var sum malformed
	for _, m := range all {
		sum.objects, sum.undecoded, sum.rejected, sum.read = sum.objects+m.objects, sum.undecoded+m.undecoded,
			sum.rejected+m.rejected, sum.read+m.read
	}
	if sum.undecoded == 0 || sum.rejected == 0 || sum.read == 0 {
		t.Errorf("%+v, want some of each", sum)
	}
	outages.Measured(t, "F17", "%d generated objects: %d not decoded, %d with something rejected, no panic", sum.objects,
		sum.undecoded, sum.rejected)
}

// malformed are how many objects were tried, could not be decoded, had something rejected, and were read in whole or in
// part.
type malformed struct{ objects, undecoded, rejected, read int }

// run tries so many objects.
func (m *malformed) run(t *testing.T, r *rand.Rand, count int) {
	const perGeneration = 50_000 // as generating takes longer than trying
	var small, large []document
	for ; m.objects < count && !t.Failed(); m.objects++ {
		if m.objects%perGeneration == 0 {
			small, large = generated(t, r)
		}
		documents := small
		if r.IntN(1000) == 0 { // a large one takes as long as a hundred others
			documents = large
		}
		m.try(t, documents[r.IntN(len(documents))].changed(r))
	}
}

// A document is the JSON of one object.
type document struct {
	kind string
	json []byte
}

// generated returns the malformed objects of some services, and some with a hundred ports or a thousand endpoints.
func generated(t *testing.T, r *rand.Rand) (small, large []document) {
	const limit = 1000
	var lines, long []string
	for len(long) < 5 {
		for _, line := range golden.Malformed(r, 50) {
			if len(line) < limit {
				lines = append(lines, line)
			} else {
				long = append(long, line)
			}
		}
	}
	return documents(t, lines), documents(t, long[:5])
}

// documents returns the objects of some lines.
func documents(t *testing.T, lines []string) (all []document) {
	manifest, err := golden.Expand(lines)
	if err != nil {
		t.Error(err)
	}
	for _, text := range bytes.Split(manifest, []byte("\n---\n")) {
		var d document
		if d.json, err = utilyaml.ToJSON(text); err != nil {
			t.Error(err)
		}
		var head struct{ Kind string }
		if err := json.Unmarshal(d.json, &head); err != nil {
			t.Error(err)
		}
		d.kind = head.Kind
		all = append(all, d)
	}
	return all
}

// changed returns the document, every other time with some octets changed.
func (d document) changed(r *rand.Rand) document {
	if r.IntN(2) == 0 {
		return d
	}
	d.json = append([]byte(nil), d.json...)
	for range 1 + r.IntN(4) {
		at := r.IntN(len(d.json))
		switch r.IntN(3) {
		case 0:
			d.json[at] = byte(r.Uint32())
		case 1:
			d.json[at] = `"{}[],:.-019eE\uA`[r.IntN(17)]
		default: // a part of it again, somewhere else
			from := r.IntN(len(d.json))
			copy(d.json[at:], d.json[from:min(len(d.json), from+r.IntN(20))])
		}
	}
	return d
}

// try decodes and reads one object, and builds the names of a service with it.
func (m *malformed) try(t *testing.T, d document) {
	var it item
	var rejected []Rejection
	if d.kind == ServiceImport.String() {
		var obj customObject
		if json.Unmarshal(d.json, &obj) != nil {
			m.undecoded++
			return
		}
		it, rejected = readImport(&obj)
	} else {
		var obj discoveryv1.EndpointSlice
		if json.Unmarshal(d.json, &obj) != nil {
			m.undecoded++
			return
		}
		it, rejected = readSlice(&obj)
		if _, named := obj.Labels[labelService]; !named {
			return
		}
	}
	if len(rejected) > 0 {
		m.rejected++
	}
	if err := m.build(it, rejected); err != nil {
		t.Errorf("%v: %s", err, d.json)
	}
}

// build builds the names of a service that has the object. Its error is that of what was read.
func (m *malformed) build(it item, rejected []Rejection) error {
	switch {
	case it.imp != nil:
		if !broker.IsLabel(it.imp.Name()) || !broker.IsLabel(it.imp.Namespace()) {
			return fmt.Errorf("an import with the key %q", it.imp.Key())
		}
		index.Build(it.imp, nil, index.Options{ClusterNames: true})
	case it.slice != nil:
		imp := index.NewImport(index.ImportSpec{Namespace: "shop", Name: "web", Type: index.Headless})
		index.Build(imp, []*index.Slice{it.slice}, index.Options{ClusterNames: true})
	case len(rejected) == 0:
		return errors.New("rejected without a reason")
	default:
		return nil
	}
	m.read++
	return nil
}
