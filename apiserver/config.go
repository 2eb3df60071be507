package apiserver

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// A SetConfig has the API server that a [Set] follows, and its callbacks. Its functions must not block, and those that
// are called under a lock must not call the set.
type SetConfig struct {
	Client *Client
	Name   string    // in log lines, such as "broker"
	UID    types.UID // of kube-system; "" takes the UID of the first check
	// Interval is the time between two server checks when nothing requests one. It is 30 s if 0.
	Interval time.Duration
	Log      logging.Logger // nil drops every line
	// Barrier is around the Transform and the Indexers of watches; nil counts and logs no panic. An object on which they
	// panic stays as it came, and is in no index.
	Barrier *logging.Barrier
	// RolledBack is called after the server went back to an older state, when its watches begin to follow it there.
	RolledBack func()
	// Checked, if set, is called when the result of the server check changes: with its error, nil if it passed.
	Checked func(err error)
	// Adopt is called when another cluster answers. If it returns true, that cluster is followed from then on. Without it
	// nothing is read until the right cluster is back.
	Adopt func() bool
}

// WatchOptions select the objects of a kind, and the part of them that is kept.
type WatchOptions struct {
	Namespace string // "" for all
	Labels    string // selectors; "" for everything
	Fields    string
	// Transform and Indexers configure the informer. Without Transform, managedFields are dropped.
	Transform cache.TransformFunc
	Indexers  cache.Indexers
	// Undecodable is called for each version of an object that does not decode. The informer does not have the object
	// then.
	Undecodable func(*Undecodable)
	// Changed is called with the health of the watch after each change of its state or class, in order and under a lock.
	Changed func(Health)
	// Contact, if not nil, is marked whenever Health.LastContact moves: its holder reads the time without a lock.
	Contact *Contact
}

// A ListReader is a store for [Set.AddStore] that reads lists itself, so that they are not decoded as a whole.
type ListReader interface {
	// ReadList reads a list from the body of a response. It returns a list for [meta.ExtractListWithAlloc], with the
	// resource version of the list. Half a list is an error.
	ReadList(body io.Reader) (runtime.Object, error)
}

// withBarrier returns o with a barrier around its functions.
func withBarrier(b *logging.Barrier, kind string, o WatchOptions) WatchOptions {
	transform, indexers := o.Transform, o.Indexers
	name := func(obj any) func() string {
		return func() string {
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			return cmp.Or(key, fmt.Sprint(err))
		}
	}
	o.Transform = func(obj any) (result any, err error) {
		if !b.Do(kind, name(obj), func() { result, err = transform(obj) }) {
			return obj, nil
		}
		return result, err
	}
	o.Indexers = make(cache.Indexers, len(indexers))
	for index, keys := range indexers {
		o.Indexers[index] = func(obj any) (result []string, err error) {
			b.Do(kind, name(obj), func() { result, err = keys(obj) })
			return result, err
		}
	}
	return o
}

// dropManagedFields forgets which manager owns which field: that is most of an object, and no handler reads it.
func dropManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}
