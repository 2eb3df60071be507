package apiserver

import (
	"cmp"
	"math"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// A shownList knows whether the informer of a watch shows the last list. Between a list and the informer's use of it
// the informer may lack objects that exist.
type shownList struct {
	informer cache.SharedIndexInformer // nil if there is a store

	mu      sync.Mutex
	version uint64 // of the last list; the greatest one if it is not known yet
	before  uint64 // the version that the informer shows until then, if it is later
}

// begin begins a list of a version that is not known yet.
func (s *shownList) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.before = math.MaxUint64, 0
}

// complete sets the version of the list.
func (s *shownList) complete(version string) {
	if s.informer == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.before = VersionNumber(version), 0 // with 0 nothing can be compared
	if visible := s.shownVersion(); visible > s.version {
		s.before = visible
	}
}

// shownVersion is the version that the informer shows, 0 before the first.
func (s *shownList) shownVersion() uint64 {
	return VersionNumber(cmp.Or(s.informer.GetStore().LastStoreSyncResourceVersion(),
		s.informer.LastSyncResourceVersion()))
}

// lacksKey reports whether the informer does not have a key and does not show the last list, which may have it.
func (s *shownList) lacksKey(key string) bool {
	if s.informer == nil {
		return false
	}
	if _, found, _ := s.informer.GetStore().GetByKey(key); found {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	visible := s.shownVersion()
	return !s.informer.HasSynced() || visible < s.version || s.before != 0 && visible == s.before
}
