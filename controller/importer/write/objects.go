package write

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/desired"
)

// objects are those of one imported service that exist, as last read or written. They are shared with the caches:
// nothing changes one of them.
type objects struct {
	desired.Objects
	at map[string]int // the index of each slice, by its name
}

// newObjects returns the objects that o has. The list of slices belongs to them from then on.
func newObjects(o desired.Objects) *objects {
	os := &objects{Objects: o}
	os.setSlices(o.Slices)
	return os
}

// setSlices records that these slices exist and no others.
func (os *objects) setSlices(all []*discoveryv1.EndpointSlice) {
	os.Slices, os.at = all, make(map[string]int, len(all))
	for i, e := range all {
		os.at[e.Name] = i
	}
}

// slice returns the slice of that name, nil if it does not exist.
func (os *objects) slice(name string) *discoveryv1.EndpointSlice {
	at, exists := os.at[name]
	if !exists {
		return nil
	}
	return os.Slices[at]
}

// imported returns the slice of that name if an importer has made it, else nil: the endpoints of any other slice are
// not imported.
func (os *objects) imported(name string) *discoveryv1.EndpointSlice {
	e := os.slice(name)
	if e == nil || !desired.IsImported(e) {
		return nil
	}
	return e
}

// existing returns the object with the kind and name of o, nil if it does not exist.
func (os *objects) existing(o apiserver.Object) apiserver.Object {
	switch o := o.(type) {
	case *mcsv1beta1.ServiceImport:
		if os.Import != nil {
			return os.Import
		}
	case *corev1.Service:
		if os.Service != nil {
			return os.Service
		}
	case *discoveryv1.EndpointSlice:
		if e := os.slice(o.Name); e != nil {
			return e
		}
	}
	return nil
}

// set records that o exists.
func (os *objects) set(o apiserver.Object) {
	switch o := o.(type) {
	case *mcsv1beta1.ServiceImport:
		os.Import = o
	case *corev1.Service:
		os.Service = o
	case *discoveryv1.EndpointSlice:
		if at, exists := os.at[o.Name]; exists {
			os.Slices[at] = o
			return
		}
		os.at[o.Name] = len(os.Slices)
		os.Slices = append(os.Slices, o)
	}
}

// remove records that no object with the kind and name of o exists.
func (os *objects) remove(o apiserver.Object) {
	switch o := o.(type) {
	case *mcsv1beta1.ServiceImport:
		os.Import = nil
	case *corev1.Service:
		os.Service = nil
	case *discoveryv1.EndpointSlice:
		at, exists := os.at[o.Name]
		if !exists {
			return
		}
		last := len(os.Slices) - 1
		moved := os.Slices[last]
		os.Slices[at], os.at[moved.Name] = moved, at
		os.Slices = os.Slices[:last]
		delete(os.at, o.Name)
	}
}

// without returns slices without those that others have the names of. It changes all.
func without(all, others []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	names := namesIn(others)
	return slices.DeleteFunc(all, func(e *discoveryv1.EndpointSlice) bool { return names[e.Name] })
}

// namesIn returns the names of slices.
func namesIn(all []*discoveryv1.EndpointSlice) map[string]bool {
	names := make(map[string]bool, len(all))
	for _, e := range all {
		names[e.Name] = true
	}
	return names
}
