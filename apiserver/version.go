package apiserver

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// How old an answer of discovery may be.
const (
	answerAge  = time.Second // for watches: those of many namespaces do not ask each by itself
	requestAge = time.Minute // for other requests; a watch that the API server ends for another version asks anew
)

// versions knows which version of each resource the API server serves.
type versions struct {
	serves func(ctx context.Context, gv schema.GroupVersion, plural string) (bool, error)
	newest func(ctx context.Context, path []string) (uint64, error)

	mu   sync.Mutex
	last map[schema.GroupResource]*preferred
}

// preferred is the last answer for one resource.
type preferred struct {
	mu      sync.Mutex          // held while the API server is asked
	version schema.GroupVersion // the last that was served
	err     error
	at      time.Time
}

// entry returns the entry of a resource.
func (v *versions) entry(r Resource) *preferred {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := schema.GroupResource{Group: r.Group, Resource: r.Plural}
	if v.last[key] == nil {
		v.last[key] = new(preferred)
	}
	return v.last[key]
}

// best returns the first version of a resource that the API server has. A resource with one version is not looked up:
// a request for objects finds out. Where discovery is closed, rights in namespace are needed to know. A good answer
// may have the given age.
func (v *versions) best(ctx context.Context, r Resource, namespace string, age time.Duration) (schema.GroupVersion,
	error) {
	if len(r.Versions) == 1 {
		return schema.GroupVersion{Group: r.Group, Version: r.Versions[0]}, nil
	}
	p := v.entry(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := time.Since(p.at); since < answerAge || since < age && p.err == nil {
		return p.version, p.err
	}
	version, err := v.discover(ctx, r, namespace)
	// Without rights there is no answer, though there may be one in another namespace.
	if err == nil || ctx.Err() == nil && !apierrors.IsForbidden(err) {
		if p.err, p.at = err, time.Now(); err == nil {
			p.version = version
		}
	}
	return p.version, err
}

func (v *versions) discover(ctx context.Context, r Resource, namespace string) (schema.GroupVersion, error) {
	for _, version := range r.Versions {
		gv := schema.GroupVersion{Group: r.Group, Version: version}
		served, err := v.serves(ctx, gv, r.Plural)
		if apierrors.IsForbidden(err) {
			// Discovery is closed, so only a list of the objects shows whether they are served.
			_, err = v.newest(ctx, r.path(gv, namespace))
			served = err == nil
			if apierrors.IsNotFound(err) {
				err = nil
			}
		}
		if served || err != nil {
			return gv, err
		}
	}
	return schema.GroupVersion{}, errAbsent
}
