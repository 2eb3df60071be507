package cache

import (
	"encoding/json"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// An Evaluation is what a [Store] would make of one service, for a command that explains an answer: it follows nothing.
type Evaluation struct {
	Import     *index.Import // nil if it is rejected
	Rejections []Rejection   // of the import
	Slices     []EvaluatedSlice
	Service    *index.Service // nil if it owns no name
}

// An EvaluatedSlice is what counts of one EndpointSlice.
type EvaluatedSlice struct {
	Cluster    string // "" without one that counts
	Usable     int    // ready endpoints with an address that counts
	Rejections []Rejection
}

// Evaluate validates a ServiceImport, as the JSON of the API, and the slices of its service, and builds the service.
// Slices keep their order.
func Evaluate(imp []byte, slices []*discoveryv1.EndpointSlice, o index.Options) (Evaluation, error) {
	var obj customObject
	if err := json.Unmarshal(imp, &obj); err != nil {
		return Evaluation{}, fmt.Errorf("ServiceImport: %w", err)
	}
	e := Evaluation{Slices: make([]EvaluatedSlice, len(slices))}
	var it item
	it, e.Rejections = readImport(&obj)
	e.Import = it.imp
	var usable []*index.Slice
	for i, s := range slices {
		it, rejected := readSlice(s)
		e.Slices[i].Rejections = rejected
		if it.slice != nil {
			e.Slices[i].Cluster, e.Slices[i].Usable = it.slice.Cluster(), it.slice.Len()
			usable = append(usable, it.slice)
		}
	}
	if e.Import != nil {
		e.Service = index.Build(e.Import, usable, o)
	}
	return e, nil
}
