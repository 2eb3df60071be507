package broker

import "sync/atomic"

// removal records whether the broker itself confirmed that the namespace of this member is gone. A watch that omits the
// namespace is no reason to leave the clusterset.
type removal struct {
	wake      chan struct{}
	confirmed atomic.Bool
}
