package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/queue"
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
	log     logging.Logger
	metrics *Metrics
	changed func() // called after each change, without the lock

	mu  sync.Mutex
	why map[hold]string // the detail that was told
}

func newHolds(log logging.Logger, m *Metrics, changed func()) *holds {
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
// its members (section 8, end). Its methods may be called from several goroutines.
type losses struct {
	s     *session
	quiet time.Duration // for which no other loss may follow one that a watch told of

	mu     sync.Mutex
	loss   loss
	once   bool // a list was compared with the imports
	missed map[share]miss
	last   time.Time // of the losses that a watch told of
}

// A share is one cluster of an import.
type share struct {
	service types.NamespacedName
	cluster string
}

// A miss is a share that has no record any more.
type miss struct {
	at    time.Time
	acted bool // the import may lose it
}

// How long a loss waits.
const (
	secondLook = time.Minute     // until a list is believed, if nobody expires ("lease 0")
	lossQuiet  = 2 * time.Second // until it is the last one of many
	lossWaits  = 5               // at most, in lossQuiet
)

// fewLosses is how many exports may go at once whatever their share: that many services are taken back by people, and that a
// definition is gone is known before lossQuiet is over.
const fewLosses = 10

func newLosses(s *session) *losses {
	l := &losses{s: s, missed: make(map[share]miss)}
	l.quiet = min(lossQuiet, l.ttl()/3)
	return l
}

// rewound says that the broker was set back.
func (l *losses) rewound() {
	l.mu.Lock()
	l.loss = l.loss.rewound(time.Now(), l.ttl())
	l.suspect("the broker was set back")
	l.mu.Unlock()
	l.review()
}

// listed says that the broker sent a list which is not shown yet.
func (l *losses) listed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loss.believed = false
	l.suspect("the broker's records are listed anew")
}

// suspect holds what is lost. Before the first look nothing is removed anyway. The caller holds l.mu.
func (l *losses) suspect(detail string) {
	if l.once {
		l.s.holds.set(holdLostRecords, detail)
	}
}

func (l *losses) ttl() time.Duration { return cmp.Or(l.s.cfg.TTL, secondLook) }

// looked reports whether a list was compared with the imports.
func (l *losses) looked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.once
}

// review compares what is listed as long as it is not believed, and weighs what a watch told of since.
func (l *losses) review() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.s.broker.Synced() || !l.s.broker.Settled() {
		return
	}
	now := time.Now()
	if l.loss.believed {
		l.weigh(now)
		return
	}
	lost := l.s.lost()
	list := count(lost)
	l.loss = l.loss.look(now, l.ttl(), list)
	detail := ""
	switch {
	case l.loss.believed:
		l.believe(now, lost, list.tooShort())
	case l.loss.since.IsZero():
		detail = "the broker was set back"
	default:
		detail = list.String()
	}
	l.s.holds.put(holdLostRecords, detail)
	if !l.once {
		l.once = true
		l.s.addAll()
	}
}

// believe lets go what is lost: at once after a second look, else when nothing of it has come back for a while, as members that put
// back what is theirs do so record by record. The caller holds l.mu.
func (l *losses) believe(now time.Time, lost map[share]bool, twice bool) {
	clear(l.missed)
	l.last = now
	for i, lost := range lost {
		if lost {
			l.missed[i] = miss{at: now, acted: twice}
		}
	}
}

// believes reports whether an import may lose the clusters of which a watch told that they have no record any more: not
// before it is known that they are not the first of many.
func (l *losses) believes(svc types.NamespacedName, imp *mcsv1beta1.ServiceImport) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, believed := time.Now(), true
	for i, lost := range l.s.lostOf(svc, imp) {
		if !lost {
			continue
		}
		m, known := l.missed[i]
		if !known {
			m = miss{at: now}
			l.missed[i], l.last = m, now
		}
		believed = believed && (m.acted || l.quiet == 0)
	}
	return believed
}

// weigh holds the losses that wait if they are as many as no list may have, or lets them go. The caller holds l.mu.
func (l *losses) weigh(now time.Time) {
	maps.DeleteFunc(l.missed, func(_ share, m miss) bool { return now.Sub(m.at) >= l.ttl() })
	waits := func(m miss) bool { return !m.acted }
	if !slices.ContainsFunc(slices.Collect(maps.Values(l.missed)), waits) {
		return
	}
	lost := l.s.lost()
	if list := l.recent(lost); list.lost > fewLosses && list.tooShort() {
		l.loss = loss{since: now}
		l.s.holds.set(holdLostRecords, list.String())
		return
	}
	for i, m := range l.missed {
		if waits(m) && (now.Sub(l.last) >= l.quiet || now.Sub(m.at) >= lossWaits*l.quiet) {
			m.acted = true
			l.missed[i] = m
			l.s.imports.Add(i.service, queue.Live)
		}
	}
}

// recent compares the losses that wait with what was imported before them. The caller holds l.mu.
func (l *losses) recent(lost map[share]bool) listing {
	lost = maps.Clone(lost)
	for i, m := range l.missed {
		switch gone, there := lost[i]; {
		case there && !gone:
			delete(l.missed, i) // it came back
		case m.acted:
			delete(lost, i)
		default:
			lost[i] = true
		}
	}
	return count(lost)
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

// count returns how many there are, and how many of them are lost.
func count(lost map[share]bool) listing {
	list := listing{had: len(lost)}
	for _, gone := range lost {
		if gone {
			list.lost++
		}
	}
	return list
}

// tooShort reports whether more than half is missing.
func (l listing) tooShort() bool { return 2*l.lost > l.had }

// String is the listing as people read it.
func (l listing) String() string {
	return fmt.Sprintf("%d of %d imported exports are gone from the broker", l.lost, l.had)
}

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

// lost returns all that our imports have of other clusters, and whether it has no export record any more.
func (s *session) lost() map[share]bool {
	lost := make(map[share]bool)
	for _, svc := range s.local.Imports() {
		maps.Copy(lost, s.lostOf(svc, s.local.Import(svc)))
	}
	return lost
}

// lostOf is lost for one import, which may be nil or not ours.
func (s *session) lostOf(svc types.NamespacedName, imp *mcsv1beta1.ServiceImport) map[share]bool {
	if !isOurs(imp) {
		return nil
	}
	lost, records := make(map[share]bool), s.broker.Records(svc)
	for _, c := range imp.Status.Clusters {
		if c.Cluster != s.member.id {
			lost[share{svc, c.Cluster}] = !slices.ContainsFunc(records, func(r merge.Record) bool { return r.Cluster == c.Cluster })
		}
	}
	return lost
}
