package admin

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/deploy"
)

// CRDs, policies and rights are written as one set, with its version in an annotation of each object. An operation of
// an older version never overwrites a newer set (docs/spec/controller.md 7.7).

// stamped adds the version to objects of the set, and returns them.
func stamped(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	for _, o := range objects {
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = make(map[string]string)
		}
		annotations[broker.AnnotationVersion] = strconv.Itoa(deploy.Version)
		o.SetAnnotations(annotations)
	}
	return objects
}

// versionOf returns the version of the set that an existing object is from. The first had no annotation.
func versionOf(o *unstructured.Unstructured) int {
	if v, err := strconv.Atoi(o.GetAnnotations()[broker.AnnotationVersion]); err == nil && v > 0 {
		return v
	}
	return 1
}

// brokerSet is the set that [Init] writes and every broker needs.
func brokerSet() []*unstructured.Unstructured {
	return stamped(slices.Concat(brokerCRDs(), parse(deploy.Broker)))
}

// A setState is the state of a set on a broker.
type setState struct {
	missing, changed []*unstructured.Unstructured // changed: of our version, with other content
	unread           []*unstructured.Unstructured // the credential may not read them
	found            []*unstructured.Unstructured // as they exist
	oldest, newest   *unstructured.Unstructured   // of these; nil if no object exists
}

// readSet compares what exists with a set.
func (c *cluster) readSet(ctx context.Context, set []*unstructured.Unstructured) (s setState, err error) {
	for _, o := range set {
		existing, err := c.find(ctx, o)
		switch {
		case apierrors.IsForbidden(err):
			s.unread = append(s.unread, o)
			continue
		case err != nil:
			return s, err
		case existing == nil:
			s.missing = append(s.missing, o)
			continue
		case versionOf(existing) == deploy.Version && !covers(existing.Object["spec"], o.Object["spec"]):
			s.changed = append(s.changed, o)
		}
		s.found = append(s.found, existing)
		if s.oldest == nil || versionOf(existing) < versionOf(s.oldest) {
			s.oldest = existing
		}
		if s.newest == nil || versionOf(existing) > versionOf(s.newest) {
			s.newest = existing
		}
	}
	return s, nil
}

// crd returns a CRD as it exists, nil if it does not exist or could not be read.
func (s setState) crd(kind schema.GroupVersionResource) *unstructured.Unstructured {
	i := slices.IndexFunc(s.found, func(
		o *unstructured.Unstructured) bool {
		return o.GetName() == kind.GroupResource().String()
	})
	if i < 0 {
		return nil
	}
	return s.found[i]
}

// checkNotNewer returns an error if the broker has anything of a newer version: what this one wrote would not fit.
func (s setState) checkNotNewer() error {
	if s.newest == nil || versionOf(s.newest) <= deploy.Version {
		return nil
	}
	return fmt.Errorf(
		"the broker has CRDs and policies of version %d (%s), and this program those of version %d: want a clusterset as new as the broker",
		versionOf(s.newest), describe(s.newest), deploy.Version)
}

// outdated returns what to do about a broker of an older version, "" if it is not older.
func (s setState) outdated() string {
	if s.oldest == nil || versionOf(s.oldest) >= deploy.Version {
		return ""
	}
	return fmt.Sprintf(
		"the broker has CRDs and policies of version %d (%s), and this program brings those of version %d: run \"clusterset broker init\"",
		versionOf(s.oldest), describe(s.oldest), deploy.Version)
}

// covers reports whether existing has every field that desired has, with the same value. It predicts, for a client-side
// dry run, that applying desired changes nothing; defaults that the server has added do not matter.
func covers(existing, desired any) bool {
	switch desired := desired.(type) {
	case map[string]any:
		existing, ok := existing.(map[string]any)
		for key, want := range desired {
			got, has := existing[key]
			ok = ok && (has || isEmpty(want)) && (!has || covers(got, want))
		}
		return ok
	case []any:
		existing, ok := existing.([]any)
		if !ok || len(existing) != len(desired) {
			return false
		}
		for i := range desired {
			if !covers(existing[i], desired[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(existing, desired)
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}
