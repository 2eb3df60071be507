package exporter

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/controller/export"
)

// baselines hold the exports as they were at the start, until the broker is read. An unchanged export keeps its Ready
// (docs/spec/controller.md 6.2). The zero value is empty. The methods may be called by several goroutines, each for
// another service.
type baselines struct{ exports sync.Map }

// changed compares an export with its baseline. The first call for an export with ready, a true Ready, sets the
// baseline.
func (b *baselines) changed(svc types.NamespacedName, r export.Result, ready bool) bool {
	if r.Record == nil {
		b.forget(svc)
		return false
	}
	// Whether exports say something about clusterset IPs depends on the Member, which may be read before the rest of the
	// broker.
	local := export.Result{Record: r.Record.DeepCopy(), Slices: r.Local}
	local.Record.Spec.VIP = nil
	first, seen := b.exports.Load(svc)
	if !seen && ready {
		b.exports.Store(svc, local)
	}
	if !seen {
		return false
	}
	before := first.(export.Result)
	return !sameRecord(local.Record, before.Record) || !slices.EqualFunc(local.Slices, before.Slices, sameSlice)
}

// forget removes the baseline of an export.
func (b *baselines) forget(svc types.NamespacedName) { b.exports.Delete(svc) }
