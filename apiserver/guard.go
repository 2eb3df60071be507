package apiserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

var (
	// errReplaced says that another cluster answers.
	errReplaced = errors.New("another cluster answers at this address: its kube-system has another UID")
	errUnknown  = errors.New("not reached yet")
)

// What is waited for between two attempts, at first and at most, and how long one look may take.
const (
	firstPause  = 250 * time.Millisecond
	lastPause   = 5 * time.Second
	lookTimeout = 15 * time.Second

	// compareInterval is the least time between two looks at versions over the same connections. Only another server, or one
	// that was started again, can have gone back.
	compareInterval = 30 * time.Second
)

// A guard is shut while nobody knows whether the API server is the one, and in the state, that is followed. Lists and
// watches wait for it, so whatever passes is of the right server.
type guard struct {
	mu     sync.Mutex
	uid    types.UID
	well   bool          // whether it is open
	err    error         // why it is shut; nil before the first look
	dials  uint64        // connections made before the last look that found all well
	looked chan struct{} // closed when the next look is over
}

func (g *guard) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.well && g.err == nil {
		return errUnknown
	}
	return g.err
}

func (g *guard) identity() types.UID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.uid
}

// trusts reports whether the guard is open and all connections were made before its last look. The channel is closed when
// there is reason to ask again.
func (g *guard) trusts(dials uint64) (bool, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.well && g.dials == dials, g.looked
}

// pass opens the guard and reports whether it was shut.
func (g *guard) pass(uid types.UID, dials uint64) (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	news = !g.well
	if g.uid == "" {
		g.uid = uid
	}
	g.well, g.err, g.dials = true, nil, dials
	g.tell()
	return news
}

// shut shuts the guard and reports whether why is news.
func (g *guard) shut(why error) (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	news = g.well || g.err == nil || classOf(g.err) != classOf(why)
	g.well, g.err = false, why
	g.tell()
	return news
}

func (g *guard) tell() {
	close(g.looked)
	g.looked = make(chan struct{})
}

// await returns once the server is known to be the right one over all its connections, or when ctx ends.
func (s *Set) await(ctx context.Context) error {
	for {
		trusted, looked := s.guard.trusts(s.cfg.Client.Dials())
		if trusted {
			return ctx.Err()
		}
		s.lookAgain()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-looked:
		}
	}
}

// lookAgain asks for a look soon.
func (s *Set) lookAgain() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// look looks at the server at once, then after each interval or when asked to, until ctx ends. While the guard is shut it
// looks with back-off.
func (s *Set) look(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		wait := s.cfg.Interval
		if well := s.lookOnce(ctx); well && !s.compared.IsZero() {
			pause = firstPause
		} else {
			wait = pause + rand.N(pause/2)
			pause = min(2*pause, lastPause)
		}
		timer := time.NewTimer(wait)
		wake := s.wake
		if s.guard.failure() != nil {
			wake = nil // the back-off counts
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-wake:
		}
		timer.Stop()
	}
}

// lookOnce looks whether the server is the one that is followed and still knows what it told, and reports whether so.
func (s *Set) lookOnce(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	uid, err := s.cfg.Client.SystemUID(limited)
	if err != nil && !apierrors.IsForbidden(err) {
		return s.fail(ctx, err)
	}
	if known := s.guard.identity(); err == nil && known != "" && known != uid {
		return s.fail(ctx, fmt.Errorf("%w: %s, want %s", errReplaced, uid, known))
	}
	dials := s.cfg.Client.Dials()
	if trusted, _ := s.guard.trusts(dials); trusted && time.Since(s.compared) < compareInterval {
		for _, f := range s.feeds {
			f.checked()
		}
		return s.well(uid, dials)
	}
	rewound, complete, err := s.compare(limited)
	if err != nil {
		return s.fail(ctx, err)
	}
	s.compared = time.Time{}
	if complete {
		s.compared = time.Now()
	}
	if rewound {
		s.cfg.Rewound()
	}
	return s.well(uid, dials)
}

// well opens the guard, and tells if that is news. It reports true.
func (s *Set) well(uid types.UID, dials uint64) bool {
	if s.guard.pass(uid, dials) {
		s.cfg.Log.Infof("%s: reached %s", s.cfg.Name, s.cfg.Client.Host())
	}
	return true
}

// compare asks for the newest version of every kind, and sends the watches of those that went back to where the server is. It
// is not complete if the right to a kind is missing that was there before: a server that was started a moment ago does not know
// yet who may do what.
func (s *Set) compare(ctx context.Context) (rewound, complete bool, err error) {
	complete = true
	for _, f := range s.feeds {
		seen := f.version()
		if seen == 0 {
			continue
		}
		now, err := s.cfg.Client.Newest(ctx, f.example, f.options.Namespace)
		switch {
		case err != nil && classOf(err) != ofKind:
			return rewound, false, err
		case err != nil: // the feed tells
			complete = complete && !apierrors.IsForbidden(err)
		case now > 0 && now < seen:
			s.cfg.Log.Warningf("%s: %s: went back from version %d to %d; listing anew", s.cfg.Name, f.name, seen, now)
			f.rewind()
			rewound = true
		default:
			f.checked()
		}
	}
	return rewound, complete, nil
}

// fail shuts the guard, and tells if that is news. It reports false.
func (s *Set) fail(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	news := s.guard.shut(err)
	if classOf(err) == lost {
		// An open watch may be all that keeps the old server from ending, and nothing comes of it any longer.
		s.cfg.Client.Drop()
	}
	if news {
		switch classOf(err) {
		case replaced:
			s.cfg.Log.Errorf("%s: %s; holding what is known", s.cfg.Name, short(err))
		case credential:
			s.cfg.Log.Errorf("%s: the credential is refused; holding what is known: %s", s.cfg.Name, short(err))
		default:
			s.cfg.Log.Warningf("%s: out of reach: %s", s.cfg.Name, short(err))
		}
	}
	return false
}

// class is what an error says about the next attempt.
type class uint8

const (
	lost       class = iota + 1 // the server is out of reach
	credential                  // it does not know who asks
	replaced                    // it is another one
	ofKind                      // one kind is missing, or the right to it
	relist                      // the reflector has to list
)

func classOf(err error) class {
	switch {
	case errors.Is(err, errReplaced):
		return replaced
	case apierrors.IsUnauthorized(err):
		return credential
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		return ofKind
	case isExpired(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return relist
	}
	return lost
}
