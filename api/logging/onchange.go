package logging

import (
	"strings"
	"sync"

	"github.com/clusterset-dns/clusterset/api/shorten"
)

// An OnChange remembers which state was logged last, so that a loop that meets the same failure each second logs it
// once.
//
// The zero value of S is the normal state: no error, nothing to report. A new OnChange is in it. Typical use:
//
//	var failure logging.OnChange[string]
//	...
//	if failure.Changed(logging.Text(err)) {
//		if err != nil {
//			log.Errorf("renew: %v", err) // first failure, or another one than before
//		} else {
//			log.Infof("renew: works again")
//		}
//	}
//
// Its methods may be called by several goroutines. Two goroutines that bring the same new state get true once in all.
type OnChange[S comparable] struct {
	mu   sync.Mutex
	last S // guarded by mu
}

// Changed records state and reports whether it differs from the one before.
func (c *OnChange[S]) Changed(state S) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := state != c.last
	c.last = state
	return changed
}

// An OnChangeOf is an [OnChange] for each key. Keys in the normal state take no memory.
type OnChangeOf[K, S comparable] struct {
	// Limit is how many changes of one key are reported before it returns to the normal state, 0 for all. It bounds the
	// log of a failure whose text differs each time.
	Limit int

	mu   sync.Mutex
	last map[K]reported[S] // guarded by mu; without zero states
}

// reported is the state of a key that is not in the normal state, and the number of changes reported since it left
// that.
type reported[S comparable] struct {
	state   S
	changes int
}

// Changed records the state of key and reports whether it differs from the one before. The return to the normal state
// is always reported, with any Limit.
func (c *OnChangeOf[K, S]) Changed(key K, state S) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var normal S
	r := c.last[key]
	switch {
	case state == r.state:
		return false
	case state == normal:
		delete(c.last, key)
		return true
	case c.last == nil:
		c.last = make(map[K]reported[S])
	}
	if c.Limit > 0 && r.changes >= c.Limit {
		return false
	}
	c.last[key] = reported[S]{state, r.changes + 1}
	return true
}

// Clear returns key to the normal state, as for an object that is deleted, and reports whether it was in another one.
func (c *OnChangeOf[K, S]) Clear(key K) bool {
	var normal S
	return c.Changed(key, normal)
}

// Text returns the text of err, "" for nil: an error as a state of [OnChange].
func Text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Line returns the text of err on one line of at most 300 octets, for a log.
func Line(err error) string {
	return shorten.Text(strings.ReplaceAll(err.Error(), "\n", " "), 300)
}
