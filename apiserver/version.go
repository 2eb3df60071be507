package apiserver

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// answerAge is how old an answer of discovery may be that watches share, so that those of many namespaces do not ask each by
// itself.
const answerAge = time.Second

// versions knows which version of each resource the API server serves.
type versions struct {
	mu   sync.Mutex
	last map[schema.GroupResource]*preferred
}

// preferred is the last answer for one resource.
type preferred struct {
	mu      sync.Mutex // held while the API server is asked
	version schema.GroupVersion
	err     error
	at      time.Time
}

// of returns the entry of a resource.
func (v *versions) of(r Resource) *preferred {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := schema.GroupResource{Group: r.Group, Resource: r.Plural}
	if v.last == nil {
		v.last = map[schema.GroupResource]*preferred{}
	}
	if v.last[key] == nil {
		v.last[key] = new(preferred)
	}
	return v.last[key]
}

// bestVersion returns the first version of a resource that the API server has. A resource with one version is not looked up:
// a request for objects finds out. Where discovery is closed, rights in namespace are needed to know.
func (s *Set) bestVersion(ctx context.Context, r Resource, namespace string) (schema.GroupVersion, error) {
	if len(r.Versions) == 1 {
		return schema.GroupVersion{Group: r.Group, Version: r.Versions[0]}, nil
	}
	p := s.versions.of(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.at) < answerAge {
		return p.version, p.err
	}
	version, err := s.discover(ctx, r, namespace)
	// Without rights there is no answer, though there may be one in another namespace.
	if ctx.Err() == nil && !apierrors.IsForbidden(err) {
		p.version, p.err, p.at = version, err, time.Now()
	}
	return version, err
}

func (s *Set) discover(ctx context.Context, r Resource, namespace string) (schema.GroupVersion, error) {
	for _, version := range r.Versions {
		gv := schema.GroupVersion{Group: r.Group, Version: version}
		served, err := s.cfg.Client.serves(ctx, gv, r.Plural)
		if apierrors.IsForbidden(err) {
			// Discovery is closed, which says nothing about the objects: a list of them shows whether they are served.
			_, err = s.cfg.Client.newest(ctx, r.path(gv, namespace))
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

// newest asks for the newest version of what a watch follows.
func (s *Set) newest(ctx context.Context, w *listWatch) (uint64, error) {
	gv, err := s.bestVersion(ctx, w.resource, w.options.Namespace)
	if err != nil {
		return 0, err
	}
	return s.cfg.Client.newest(ctx, w.resource.path(gv, w.options.Namespace))
}
