package cache

import (
	"sync"
	"sync/atomic"

	"github.com/clusterset-dns/clusterset/cache/index"
)

// published holds the published state and the subscribers to its serial. Only the publisher writes to it; any goroutine
// may call its methods.
type published struct {
	state     atomic.Pointer[State]
	synced    chan struct{}
	publishes atomic.Uint64

	mu          sync.Mutex // guards what follows
	subscribers map[chan uint32]struct{}
}

func newPublished() *published {
	s := &published{synced: make(chan struct{}), subscribers: map[chan uint32]struct{}{}}
	s.state.Store(&State{Index: new(index.Index)})
	return s
}

// State returns the state to serve now. It costs one atomic load.
func (s *published) State() *State { return s.state.Load() }

// Synced is closed once answers may be given.
func (s *published) Synced() <-chan struct{} { return s.synced }

// Subscribe returns a channel that gets the serial whenever it moves. A reader that is slow gets the newest one only.
// The channel is closed by cancel, which may be called more than once.
func (s *published) Subscribe() (serials <-chan uint32, cancel func()) {
	ch := make(chan uint32, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers[ch] = struct{}{}
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, ok := s.subscribers[ch]; ok {
			delete(s.subscribers, ch)
			close(ch)
		}
	}
}

func (s *published) notify(serial uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.subscribers {
		select {
		case <-ch:
		default:
		}
		ch <- serial // The only sender has just made room.
	}
}
