package exporter

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/controller/export"
)

// found are the exports that this instance found on the broker by their Ready, while it does not know the broker itself. Ready stays until they change
// (docs/spec/controller.md 6.2). The zero value is empty. The methods may be called by several goroutines, each for another service.
type found struct{ exports sync.Map }

// changed reports whether an export is another one than when it was found. ready is whether its Ready is true.
func (f *found) changed(svc types.NamespacedName, r export.Result, ready bool) bool {
	if r.Record == nil {
		f.forget(svc)
		return false
	}
	// What follows from the broker does not count: it may arrive while the rest is not known.
	local := export.Result{Record: r.Record.DeepCopy(), Slices: r.Local}
	local.Record.Spec.VIP = nil
	first, seen := f.exports.Load(svc)
	if !seen && ready {
		f.exports.Store(svc, local)
	}
	return seen && !sameExport(local, first.(export.Result).Record, first.(export.Result).Slices)
}

// forget ends what is known of an export.
func (f *found) forget(svc types.NamespacedName) { f.exports.Delete(svc) }
