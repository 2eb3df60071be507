package controller

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// A hold is a reason to leave things as they are. Its text is the label "reason" of metric held.
type hold string

// The holds. Under the first three nobody removes or writes anything that follows from the broker; what the others
// keep is said beside each.
const (
	holdNotSynced      hold = "not_synced"      // a cache is not complete: nothing is removed
	holdBrokerIdentity hold = "broker_identity" // another API server answers, or the id is another cluster's
	holdBrokerEmpty    hold = "broker_empty"    // the broker has no member namespace or none of our CRDs
	holdCredential     hold = "credential"      // the broker refuses our credential: nothing is removed
	holdLostRecords    hold = "lost_records"    // services that lack clusters they had are left as they are
	holdMassExpiry     hold = "mass_expiry"     // nobody counts as expired
)

// allHolds lists the values of the label "reason".
var allHolds = []hold{
	holdNotSynced, holdBrokerIdentity, holdBrokerEmpty, holdLostRecords, holdMassExpiry, holdCredential,
}

// holds are what is held at the moment. The methods may be called from several goroutines.
type holds struct {
	log     Logger
	metrics *Metrics
	changed func() // called after each change, without the lock

	mu  sync.Mutex
	why map[hold]string // the detail that was told
}

func newHolds(log Logger, m *Metrics, changed func()) *holds {
	return &holds{log: log, metrics: m, changed: changed, why: make(map[hold]string)}
}

// set holds h. detail is one phrase for people. It is told when the hold begins.
func (hs *holds) set(h hold, detail string) {
	hs.mu.Lock()
	_, held := hs.why[h]
	hs.why[h] = detail
	hs.mu.Unlock()
	if !held {
		hs.metrics.hold(h, true)
		hs.log.Warningf("holding (%s): %s", h, detail)
		hs.changed()
	}
}

// clear lets go of h.
func (hs *holds) clear(h hold) {
	hs.mu.Lock()
	_, held := hs.why[h]
	delete(hs.why, h)
	hs.mu.Unlock()
	if held {
		hs.metrics.hold(h, false)
		hs.log.Infof("no longer holding (%s)", h)
		hs.changed()
	}
}

// put sets h with the detail, or clears it if detail is empty.
func (hs *holds) put(h hold, detail string) {
	if detail == "" {
		hs.clear(h)
		return
	}
	hs.set(h, detail)
}

// any reports whether one of the given holds stands.
func (hs *holds) any(given ...hold) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return slices.ContainsFunc(given, func(h hold) bool { _, held := hs.why[h]; return held })
}

// detail returns what was told of the first of the given holds that stands, "" if none does.
func (hs *holds) detail(given ...hold) string {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range given {
		if why, held := hs.why[h]; held {
			return why
		}
	}
	return ""
}

// losses say whether what the broker lists is believed: one that was restored from an old backup, or emptied, must not empty
// its members (section 8, end).
type losses struct {
	s *session

	mu   sync.Mutex
	loss loss
	once bool // a list was compared with the imports
}

// secondLook is when a loss is believed if nobody expires ("lease 0").
const secondLook = time.Minute

func newLosses(s *session) *losses { return &losses{s: s} }

// rewound says that the broker was set back. It may be called from any goroutine.
func (l *losses) rewound() {
	l.mu.Lock()
	l.loss = l.loss.rewound(time.Now(), l.ttl())
	l.mu.Unlock()
	l.review()
}

func (l *losses) ttl() time.Duration { return cmp.Or(l.s.cfg.TTL, secondLook) }

// looked reports whether a list was compared with the imports.
func (l *losses) looked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.once
}

// review compares the list as long as it is not believed.
func (l *losses) review() {
	if !l.s.broker.Synced() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loss.believed {
		return
	}
	list := l.s.listing()
	l.loss = l.loss.look(time.Now(), l.ttl(), list)
	detail := ""
	switch {
	case l.loss.believed:
	case l.loss.since.IsZero():
		detail = "the broker was set back"
	default:
		detail = fmt.Sprintf("%d of %d imported exports are gone from the broker", list.lost, list.had)
	}
	l.s.holds.put(holdLostRecords, detail)
	if !l.once {
		l.once = true
		l.s.addAll()
	}
}

// A loss is how much of what was imported from an earlier list a new one lacks, and since when. The zero value believes
// nothing yet.
type loss struct {
	believed bool
	from     time.Time // no list from before counts
	since    time.Time // when too much was first missing; zero if it is not
}

// A listing compares the clusters of all local imports, the own one left out, with the export records that are listed.
type listing struct {
	had  int // clusters of imports
	lost int // of those, clusters that have no record any more
}

// tooShort reports whether more than half is missing, and more than two.
func (l listing) tooShort() bool { return l.lost > 2 && 2*l.lost > l.had }

// rewound returns what follows when the broker was set back: what is listed counts again a TTL later, when the lists are
// made anew and the members have put back what is theirs.
func (l loss) rewound(now time.Time, ttl time.Duration) loss { return loss{from: now.Add(ttl)} }

// look returns what follows on a list. One that is too short is believed if one a TTL later is too. Once a list is believed,
// the watch tells of every further loss by itself.
func (l loss) look(now time.Time, ttl time.Duration, list listing) loss {
	switch {
	case l.believed || now.Before(l.from):
		return l
	case !list.tooShort(), !l.since.IsZero() && now.Sub(l.since) >= ttl:
		return loss{believed: true}
	case l.since.IsZero():
		l.since = now
	}
	return l
}

// listing looks at all our imports.
func (s *session) listing() (list listing) {
	self := s.member.id
	for _, svc := range s.local.Imports() {
		imp := s.local.Import(svc)
		if imp == nil || imp.Labels[broker.LabelManagedBy] != broker.ManagedBy {
			continue
		}
		records := s.broker.Records(svc)
		for _, c := range imp.Status.Clusters {
			if c.Cluster == self {
				continue
			}
			list.had++
			if !slices.ContainsFunc(records, func(r merge.Record) bool { return r.Cluster == c.Cluster }) {
				list.lost++
			}
		}
	}
	return list
}
