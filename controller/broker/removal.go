package broker

import (
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/shorten"
)

// removal records whether the broker itself confirmed that this member was removed. A watch that omits the namespace is
// no reason to leave the clusterset, and neither is a right that is missing.
//
//	namespace absent, or marked as removed --+
//	                                         +--> ask the broker --> confirmed --> cleared when the namespace can be read again
//	namespaces may not be read (403) --------+
type removal struct {
	wake      chan struct{}
	confirmed atomic.Bool
	asked     time.Time // used by [Broker.review] alone
}

// maxJoined bounds [broker.AnnotationJoined] in an identity, in octets.
const maxJoined = 40

// identify returns the identity of a broker namespace, which differs for each join of its cluster.
func identify(ns *corev1.Namespace) string {
	return string(ns.UID) + "/" + shorten.Text(ns.Annotations[broker.AnnotationJoined], maxJoined)
}

// isMarked reports whether a broker namespace has the mark of a cluster that was removed.
func isMarked(ns *corev1.Namespace) bool {
	_, found := ns.Annotations[broker.AnnotationRemoved]
	return found
}
