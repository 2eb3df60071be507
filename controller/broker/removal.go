package broker

import (
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// removal records whether the broker itself confirmed that this member was removed. A watch that omits the namespace is no
// reason to leave the clusterset, and neither is a right that is missing.
//
//	namespace absent, or marked as removed --+
//	                                         +--> ask the broker --> confirmed --> cleared when the namespace can be read again
//	namespaces may not be read (403) --------+
type removal struct {
	wake      chan struct{}
	confirmed atomic.Bool
	asked     time.Time // used by [Broker.review] alone
}

// isRemoved reports whether an administrator removed the cluster of a broker namespace.
func isRemoved(ns *corev1.Namespace) bool {
	_, removed := ns.Annotations[broker.AnnotationRemoved]
	return removed
}
