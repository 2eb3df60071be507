package read

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

// Stamped adds the version to objects of the set, and returns them.
func Stamped(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
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

// VersionOf returns the version of the set that an existing object is from. The first had no annotation.
func VersionOf(o *unstructured.Unstructured) int {
	if v, err := strconv.Atoi(o.GetAnnotations()[broker.AnnotationVersion]); err == nil && v > 0 {
		return v
	}
	return 1
}

// BrokerSet is the set that [Init] writes and every broker needs.
func BrokerSet() []*unstructured.Unstructured {
	return Stamped(slices.Concat(BrokerCRDs(), Parse(deploy.Broker)))
}

// A Set is the state of a set on a broker.
type Set struct {
	Missing, Changed []*unstructured.Unstructured // changed: of our version, with other content
	Unread           []*unstructured.Unstructured // the credential may not read them
	found            []*unstructured.Unstructured // as they exist
	Oldest, newest   *unstructured.Unstructured   // of these; nil if no object exists
}

// ReadSet compares what exists with a set.
func (c *Cluster) ReadSet(ctx context.Context, set []*unstructured.Unstructured) (s Set, err error) {
	for _, o := range set {
		existing, err := c.Find(ctx, o)
		switch {
		case apierrors.IsForbidden(err):
			s.Unread = append(s.Unread, o)
			continue
		case err != nil:
			return s, err
		case existing == nil:
			s.Missing = append(s.Missing, o)
			continue
		case VersionOf(existing) == deploy.Version && !Covers(existing.Object["spec"], o.Object["spec"]):
			s.Changed = append(s.Changed, o)
		}
		s.found = append(s.found, existing)
		if s.Oldest == nil || VersionOf(existing) < VersionOf(s.Oldest) {
			s.Oldest = existing
		}
		if s.newest == nil || VersionOf(existing) > VersionOf(s.newest) {
			s.newest = existing
		}
	}
	return s, nil
}

// CRD returns a CRD as it exists, nil if it does not exist or could not be read.
func (s Set) CRD(kind schema.GroupVersionResource) *unstructured.Unstructured {
	name := kind.GroupResource().String()
	i := slices.IndexFunc(s.found, func(o *unstructured.Unstructured) bool { return o.GetName() == name })
	if i < 0 {
		return nil
	}
	return s.found[i]
}

// CheckNotNewer returns an error if the broker has anything of a newer version: what this one wrote would not fit.
func (s Set) CheckNotNewer() error {
	if s.newest == nil || VersionOf(s.newest) <= deploy.Version {
		return nil
	}
	return fmt.Errorf(
		"the broker has CRDs and policies of version %d (%s), and this program those of version %d: want a clusterset as new as the broker",
		VersionOf(s.newest), Describe(s.newest), deploy.Version)
}

// Outdated returns what to do about a broker of an older version, "" if it is not older.
func (s Set) Outdated() string {
	if s.Oldest == nil || VersionOf(s.Oldest) >= deploy.Version {
		return ""
	}
	return fmt.Sprintf(
		"the broker has CRDs and policies of version %d (%s), and this program brings those of version %d: run \"clusterset broker init\"",
		VersionOf(s.Oldest), Describe(s.Oldest), deploy.Version)
}

// Covers reports whether existing has every field that desired has, with the same value. It predicts, for a client-side
// dry run, that applying desired changes nothing; defaults that the server has added do not matter.
func Covers(existing, desired any) bool {
	switch desired := desired.(type) {
	case map[string]any:
		existing, ok := existing.(map[string]any)
		for key, want := range desired {
			got, has := existing[key]
			ok = ok && (has || isEmpty(want)) && (!has || Covers(got, want))
		}
		return ok
	case []any:
		existing, ok := existing.([]any)
		if !ok || len(existing) != len(desired) {
			return false
		}
		for i := range desired {
			if !Covers(existing[i], desired[i]) {
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
