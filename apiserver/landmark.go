package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// A landmark is the newest event of the watches of a set. A restored etcd has lost the end of its history. Later writes may have
// reached the same versions again, so that watches would go on without an error. So after each interruption the set reads the landmark
// at its version: a server that has it has the whole history before it, too.
//
// Bookmarks and the versions of lists are newer than the landmark. Only lower versions show a restore to a moment between.
type landmark struct {
	watch           *listWatch
	namespace, name string
	uid             types.UID
	version         uint64
	written         string // the times of managedFields; "" if they are not known
	deleted         bool
}

// A landmarkOf holds the landmark of a set. The zero value is empty.
type landmarkOf struct {
	mu     sync.Mutex
	newest *landmark
}

func (l *landmarkOf) get() *landmark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

func (l *landmarkOf) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest = nil
}

// see takes an event of a watch.
func (l *landmarkOf) see(w *listWatch, o metav1.Object, deleted bool) {
	version := VersionNumber(o.GetResourceVersion())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest != nil && l.newest.version >= version {
		return
	}
	l.newest = &landmark{watch: w, namespace: o.GetNamespace(), name: o.GetName(), uid: o.GetUID(), version: version, deleted: deleted}
	for _, f := range o.GetManagedFields() {
		if f.Time.IsZero() {
			l.newest.written = ""
			return
		}
		l.newest.written += f.Time.UTC().Format(time.RFC3339) + " "
	}
}

// mark makes an event the landmark of the set if it is the newest.
func (w *listWatch) mark(p *watchProxy, event watch.EventType, o metav1.Object) {
	if _, undecodable := o.(*Undecodable); undecodable || event == watch.Bookmark {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proxy == p && !w.rolledBack {
		w.set.landmark.see(w, o, event == watch.Deleted)
	}
}

// verify makes all watches list anew unless the server has the landmark.
func (s *Set) verify(ctx context.Context) error {
	l := s.landmark.get()
	if l == nil {
		return nil
	}
	has, err := l.isKept(ctx)
	switch {
	case has:
	case err == nil:
		why := fmt.Errorf("%w: without version %d of %s", errRolledBack, l.version, l.watch.id.Kind)
		s.rollBack(s.watches, func(*listWatch) error { return why })
		s.cfg.RolledBack()
	case Classify(err) == Unauthorized, unanswered(err):
		return err
	case Classify(err) == Unreachable: // it may just be overloaded, and lists would be more load: the next check asks again
		s.doubt.Store(true)
	default: // unknown
		s.rollBack(s.watches, func(*listWatch) error { return nil })
	}
	return nil
}

// isKept reports whether the server has the landmark. With an error the result is unknown.
func (l *landmark) isKept(ctx context.Context) (bool, error) {
	is, err := l.read(ctx, l.version)
	if l.deleted {
		if err != nil || is != nil {
			return false, err
		}
		before, err := l.read(ctx, l.version-1)
		return before != nil && before.UID == l.uid, err
	}
	if Classify(err) == Expired { // an object that was not written since proves the same
		now, nowErr := l.read(ctx, 0)
		if nowErr != nil || !l.same(now) {
			return false, cmp.Or(nowErr, err)
		}
		return true, nil
	}
	return err == nil && l.same(is), err
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

// read returns the object at a version, or its current state for version 0, or nil. It lists, since watches need that right, too.
func (l *landmark) read(ctx context.Context, version uint64) (*foundObject, error) {
	w := l.watch
	gv, err := w.set.bestVersion(ctx, w.resource, l.namespace)
	if err != nil {
		return nil, err
	}
	fields := []string{"metadata.name=" + l.name}
	if w.options.Fields != "" {
		fields = append(fields, w.options.Fields)
	}
	params := map[string]string{"fieldSelector": strings.Join(fields, ","), "labelSelector": w.options.Labels}
	if version > 0 {
		params["resourceVersion"] = strconv.FormatUint(version, 10)
		params["resourceVersionMatch"] = string(metav1.ResourceVersionMatchExact)
	}
	var list struct {
		Items []struct {
			Metadata foundObject `json:"metadata"`
		} `json:"items"`
	}
	err = w.set.cfg.Client.read(ctx, &list, request{params: params, accept: acceptMetadata, path: w.resource.path(gv, l.namespace), unlimited: true})
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0].Metadata, nil
}
