package safety

import (
	"maps"
	"time"
)

// A loss is confirmed after lossWaits × debounce at the latest.
const lossWaits = 5

// A pendingLoss is an imported export that the broker lacks.
type pendingLoss struct {
	since     time.Time     // when it began, or was confirmed
	debounce  time.Duration // without a change, until it is confirmed
	latest    time.Time     // when it is confirmed at the latest
	confirmed bool          // the import may lose it
	accepted  bool          // as part of a mass loss that lasted: it counts for no other one
}

// pendingLosses are the losses of the last TTL. One is confirmed, and the import loses it, when for a while no other followed and none came
// back: a broker loses records one after the other, and members restore them so.
//
//	(absent) ── lose, list ──▶ waiting ── debounce, or latest ──▶ confirmed ── a TTL later ──▶ (absent)
//	    ▲                         │
//	    └──── the export is back ─┘
type pendingLosses struct {
	debounce time.Duration // without a change, until a loss is confirmed, but for the rest of a mass loss; 0 confirms at once
	ttl      time.Duration
	all      map[importedExport]pendingLoss
	last     time.Time // when a loss was added, or one that waited came back
}

func newPendingLosses(debounce, ttl time.Duration) pendingLosses {
	return pendingLosses{debounce: debounce, ttl: ttl, all: make(map[importedExport]pendingLoss)}
}

// list replaces the losses by those of a list. They are confirmed and accepted if that was a mass loss, and lasted. Else they may wait for a TTL, as long
// as members restore their records. If they are what is left of a mass loss, members restore so many that one may well pause for longer
// than the debounce: all wait until none came back for a TTL.
func (p *pendingLosses) list(now time.Time, lost map[importedExport]bool, mass, lasted bool) {
	p.last = now
	debounce, most := p.debounce, p.ttl
	if mass {
		debounce, most = p.ttl, lossWaits*p.ttl
	}
	before := p.all
	p.all = make(map[importedExport]pendingLoss)
	for e, loss := range before {
		if _, imported := lost[e]; !imported && loss.confirmed && !lasted {
			p.all[e] = loss // the import has lost it: until its TTL is over it counts beside what the watch reports
		}
	}
	for e, missing := range lost {
		if !missing {
			continue
		}
		loss := pendingLoss{since: now, debounce: debounce, latest: now.Add(most)}
		if old, known := before[e]; known && old.debounce > debounce { // of a mass loss, and listed again
			loss = old
		}
		if loss.confirmed, loss.accepted = lasted, lasted; lasted {
			loss.since = now
		}
		p.all[e] = loss
	}
}

// lose adds a loss that the watch reported, unless it is known, and reports whether it is confirmed.
func (p *pendingLosses) lose(now time.Time, e importedExport) (confirmed bool) {
	loss, known := p.all[e]
	if !known {
		loss = pendingLoss{since: now, debounce: p.debounce, latest: now.Add(min(p.ttl, lossWaits*p.debounce))}
		p.all[e], p.last = loss, now
	}
	return loss.confirmed || p.debounce == 0
}

// forget forgets what was confirmed a TTL ago.
func (p *pendingLosses) forget(now time.Time) {
	maps.DeleteFunc(p.all, func(_ importedExport, loss pendingLoss) bool { return loss.confirmed && now.Sub(loss.since) >= p.ttl })
}

// wait reports whether a loss is not confirmed.
func (p *pendingLosses) wait() (waits bool) {
	for _, loss := range p.all {
		waits = waits || !loss.confirmed
	}
	return waits
}

// compare compares the losses of the last TTL with what was imported before them: a broker that loses records with pauses between them must not empty
// the imports few by few. lost says of what is imported whether the broker lacks it.
func (p *pendingLosses) compare(now time.Time, lost map[importedExport]bool) comparison {
	lost = maps.Clone(lost)
	for e, loss := range p.all {
		switch missing, imported := lost[e]; {
		case imported && !missing:
			delete(p.all, e) // it is back
			if !loss.confirmed {
				p.last = now
			}
		case loss.accepted:
			delete(lost, e)
		default:
			lost[e] = true
		}
	}
	return compare(lost)
}

// ofList is compare for a list. A few losses that the imports have followed already are no reason to doubt it.
func (p *pendingLosses) ofList(now time.Time, lost map[importedExport]bool) comparison {
	if c := p.compare(now, lost); c.lost > fewLosses {
		return c
	}
	return compare(lost)
}

// confirm confirms the losses that have waited for long enough, and returns them.
func (p *pendingLosses) confirm(now time.Time) (confirmed []importedExport) {
	for e, loss := range p.all {
		if !loss.confirmed && (now.Sub(p.last) >= loss.debounce || !now.Before(loss.latest)) {
			loss.confirmed, loss.since = true, now // for a TTL: the imports follow one by one
			p.all[e] = loss
			confirmed = append(confirmed, e)
		}
	}
	return confirmed
}
