package apiserver

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// A landmark is the newest event of a watch. A restored etcd has lost the end of its history. Later writes may have reached the
// same versions again, so that watches would go on without an error. So after each interruption the set looks for the landmark of each
// resource: a server that has it has the whole history before it, too.
//
// Bookmarks and the versions of lists are newer than the landmark. Only lower versions show a restore to a moment between.
type landmark struct {
	namespace, name string
	uid             types.UID
	version         uint64
	written         string // the times of managedFields; "" if they are not known
	deleted         bool
}

// newLandmark makes one of an event.
func newLandmark(o metav1.Object, deleted bool) *landmark {
	l := &landmark{
		namespace: o.GetNamespace(), name: o.GetName(), uid: o.GetUID(), version: VersionNumber(o.GetResourceVersion()), deleted: deleted,
	}
	for _, f := range o.GetManagedFields() {
		if f.Time.IsZero() {
			l.written = ""
			break
		}
		l.written += f.Time.UTC().Format(time.RFC3339) + " "
	}
	return l
}

// mark makes an event the landmark of the watch if it is the newest.
func (w *listWatch) mark(p *watchProxy, event watch.EventType, o metav1.Object) {
	if _, undecodable := o.(*Undecodable); undecodable || event == watch.Bookmark {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proxy == p && !w.rolledBack && (w.landmark == nil || w.landmark.version < VersionNumber(o.GetResourceVersion())) {
		w.landmark = newLandmark(o, event == watch.Deleted)
	}
}

// A history is what the watches of one resource saw before a request was sent: what they see later may be newer than the response. A
// version counts all writes to the etcd that the resource is in.
type history struct {
	watches  []*listWatch
	asks     *listWatch // in its namespace; it has the landmark, or else is open if one is
	landmark *landmark  // nil without an event
	version  uint64     // the newest
}

// histories returns those of the resources of which a version is known.
func (s *Set) histories() map[schema.GroupResource]*history {
	all := make(map[schema.GroupResource]*history)
	for _, w := range s.watches {
		version, l, open := w.seenSoFar()
		if version == 0 {
			continue
		}
		key := schema.GroupResource{Group: w.resource.Group, Resource: w.resource.Plural}
		h := all[key]
		if h == nil {
			h = &history{asks: w}
			all[key] = h
		}
		h.watches, h.version = append(h.watches, w), max(h.version, version)
		switch {
		case l != nil && (h.landmark == nil || h.landmark.version < l.version):
			h.landmark, h.asks = l, w
		case h.landmark == nil && open:
			h.asks = w
		}
	}
	return all
}

// verify makes watches list anew unless the server has the history that they saw. It asks for all resources at once: one that is slow holds
// up no other.
func (s *Set) verify(ctx context.Context) error {
	var asking sync.WaitGroup
	histories := s.histories()
	lost := make(chan error, len(histories))
	failed := make(chan error, len(histories))
	for _, h := range histories {
		asking.Go(func() {
			err := h.verify(ctx)
			switch class := Classify(err); {
			case class == RolledBack:
				lost <- err
			case class == Unauthorized, unanswered(err):
				failed <- err
			case class == Expired: // unknown
				s.rollBack(h.watches, nil)
			case err != nil && class != Absent: // it may be overloaded, or started a moment ago and not know yet who may do what
				s.doubt.Store(true)
			}
		})
	}
	asking.Wait()
	select {
	case why := <-lost: // other resources may have lost as much
		s.rollBack(s.watches, why)
		s.cfg.RolledBack()
	default:
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// verify returns nil if the server has the history, an error of class Expired if nobody can tell.
func (h *history) verify(ctx context.Context) error {
	kind := h.asks.id.Kind
	now, newest, err := h.read(ctx, 0)
	switch l := h.landmark; {
	case err != nil:
		return err
	case newest > 0 && newest < h.version:
		return fmt.Errorf("%w: version %d of %s, was %d", errRolledBack, newest, kind, h.version)
	case l == nil || !l.deleted && l.same(now): // it was not written since
		return nil
	}
	kept, err := h.had(ctx)
	if err == nil && !kept {
		return fmt.Errorf("%w: without version %d of %s", errRolledBack, h.landmark.version, kind)
	}
	return err
}

// had reports whether the server had the landmark at its version.
func (h *history) had(ctx context.Context) (bool, error) {
	l := h.landmark
	is, _, err := h.read(ctx, l.version)
	if !l.deleted || err != nil || is != nil {
		return err == nil && !l.deleted && l.same(is), err
	}
	before, _, err := h.read(ctx, l.version-1)
	return before != nil && before.UID == l.uid, err
}

// same reports whether an object that was read is the landmark. After a restore another write may have got its version.
func (l *landmark) same(is *foundObject) bool {
	return is != nil && is.UID == l.uid && VersionNumber(is.ResourceVersion) == l.version && (l.written == "" || is.written() == l.written)
}

// A foundObject holds the metadata that was read. Its times are text: they may be outside the range of JSON times, see [metadata].
type foundObject struct {
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
	ManagedFields   []struct {
		Time string `json:"time"`
	} `json:"managedFields"`
}

func (o *foundObject) written() (times string) {
	for _, f := range o.ManagedFields {
		times += f.Time + " "
	}
	return times
}

// read returns the object of the landmark, or nil, and the newest version of the resource: at a version, or for version 0 as new as etcd.
// It lists, since watches need that right, too.
func (h *history) read(ctx context.Context, version uint64) (*foundObject, uint64, error) {
	w, namespace := h.asks, h.asks.options.Namespace
	params := map[string]string{"labelSelector": w.options.Labels, "fieldSelector": w.options.Fields, "limit": "1"}
	if l := h.landmark; l != nil {
		namespace = l.namespace
		params["fieldSelector"] = strings.Trim(w.options.Fields+",metadata.name="+l.name, ",")
	}
	if version > 0 {
		params["resourceVersion"] = strconv.FormatUint(version, 10)
		params["resourceVersionMatch"] = string(metav1.ResourceVersionMatchExact)
	}
	var list struct {
		metadata
		Items []struct {
			Metadata foundObject `json:"metadata"`
		} `json:"items"`
	}
	err := w.set.ask(ctx, func(ctx context.Context) error {
		gv, err := w.set.bestVersion(ctx, w.resource, namespace)
		if err != nil {
			return err
		}
		return w.set.cfg.Client.read(ctx, &list, request{params: params, accept: acceptMetadata, path: w.resource.path(gv, namespace), unlimited: true})
	})
	if err != nil || h.landmark == nil || len(list.Items) == 0 {
		return nil, VersionNumber(list.Metadata.ResourceVersion), err
	}
	return &list.Items[0].Metadata, VersionNumber(list.Metadata.ResourceVersion), nil
}
