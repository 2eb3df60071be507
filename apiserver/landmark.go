package apiserver

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A landmark is the newest event of a watch. A restored etcd has lost the end of its history. Later writes may have
// reached the same versions again, so that watches would go on without an error. So after each interruption the checker
// looks for the landmark of each resource: a server that has it has the whole history before it, too.
//
// Bookmarks and the versions of lists are newer than the landmark. Only lower versions show a restore to a moment
// between.
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
		namespace: o.GetNamespace(), name: o.GetName(), uid: o.GetUID(), version: VersionNumber(o.GetResourceVersion()),
		deleted: deleted,
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

// matches reports whether an object that was read is the landmark. After a restore another write may have its version.
func (l *landmark) matches(current *foundObject) bool {
	return current != nil && current.UID == l.uid && VersionNumber(current.ResourceVersion) == l.version &&
		(l.written == "" || current.written() == l.written)
}

// VersionNumber returns a resource version as a number: the versions of one etcd count up. It is 0 for any other text.
func VersionNumber(version string) uint64 {
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// metadata is the part that we read of a document with other authors.
type metadata struct {
	Metadata foundObject `json:"metadata"`
}

// A foundObject holds the metadata of an object or a list. Its times are text: they may be outside the range of JSON
// times, which [metav1.ObjectMeta] does not decode.
type foundObject struct {
	Namespace       string    `json:"namespace"`
	Name            string    `json:"name"`
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
