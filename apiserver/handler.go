package apiserver

import (
	"cmp"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// A Pointer is an [Object] that can be compared with nil.
type Pointer interface {
	comparable
	Object
}

// Handle calls changed for each event of an informer, with the object before and after it: before is nil for an object
// that was added, after for one that was deleted. initial means that the object was there before the handler. A panic
// costs the notification of one object.
func Handle[T Pointer](barrier *logging.Barrier, informer cache.SharedIndexInformer,
	changed func(before, after T, initial bool)) (cache.ResourceEventHandlerRegistration, error) {
	var none T
	notify := func(before, after T, initial bool) {
		object := cmp.Or(after, before)
		name := func() string { return keyOf(object) }
		barrier.Do(fmt.Sprintf("%T", object), name, func() { changed(before, after, initial) })
	}
	return informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(after any, initial bool) { notify(none, after.(T), initial) },
		UpdateFunc: func(before, after any) { notify(before.(T), after.(T), false) },
		DeleteFunc: func(before any) {
			if last, ok := before.(cache.DeletedFinalStateUnknown); ok {
				before = last.Obj
			}
			if object, ok := before.(T); ok {
				notify(object, none, false)
			}
		},
	})
}
