package safety

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// How long a loss is pending.
const (
	defaultTTL = time.Minute     // until a list is confirmed, with "lease 0"
	lossQuiet  = 2 * time.Second // until no other loss followed, and none came back
)

// A MassLossConfig says what a [MassLoss] compares.
type MassLossConfig struct {
	Member    *member.Cluster
	Broker    *broker.Broker
	ClusterID string // of this cluster, whose own exports never count
	Freezes   *Freezes
	TTL       time.Duration // of heartbeats, 0 with "lease 0"

	Requeue    func(types.NamespacedName) // reconciles the import of a service again
	RequeueAll func()                     // reconciles every service again
}

// A MassLoss decides whether the broker may be believed when it no longer has what this member imports: the record of an export, or
// all slices of one that had some (docs/spec/controller.md 8.7). There are two cases:
//
//   - A list lacks some. [MassLoss.Review] compares each new list with the imports; until it is confirmed, [LostRecords] is
//     in force if more than half is missing.
//   - The watch reports deletions. [MassLoss.Unconfirmed] makes the first deletions wait until no other follows for a moment: if
//     those of one TTL become more than half of all imports, and more than a few, they freeze like a list.
//
// A loss takes one of two ways:
//
//	the watch deletes ──▶ waiting ── few ───────────────────────────────▶ the imports lose it
//	                         │ more than half                                     ▲
//	                         ▼                                                    │ it still lacks them
//	a list lacks half ──▶ frozen (LostRecords) ──▶ a list, compared a TTL later ──┤
//	                                                                              │ they are back
//	                                                                              ▼
//	                                                                      nothing is removed
//
// Records and slices come by watches of their own. A record that comes back before its slices is such a loss, too, but a short one.
//
// The methods may be called by several goroutines.
type MassLoss struct {
	MassLossConfig

	mu       sync.Mutex
	list     listCheck
	compared bool // a list was compared with the imports
	pending  pendingLosses
	restored bool // the broker was rolled back, and no list of it is confirmed yet
	// unjoined are the clusters whose Member went with a rollback, and when it came back; zero while it did not.
	unjoined map[string]time.Time
}

// NewMassLoss returns a MassLoss that has not compared anything.
func NewMassLoss(cfg MassLossConfig) *MassLoss {
	cfg.TTL = cmp.Or(cfg.TTL, defaultTTL)
	return &MassLoss{MassLossConfig: cfg, pending: newPendingLosses(min(lossQuiet, cfg.TTL/3), cfg.TTL), unjoined: make(map[string]time.Time)}
}

// RolledBack reports that the broker was rolled back to an older state.
func (l *MassLoss) RolledBack() {
	l.mu.Lock()
	l.list, l.restored = rolledBack(time.Now(), l.TTL), true
	l.freeze("the broker was rolled back")
	l.mu.Unlock()
	l.Review()
}

// Listed reports that the broker sent a list that its caches do not show yet.
func (l *MassLoss) Listed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list.confirmed = false
	l.freeze("the broker's records are listed again")
}

// freeze suspends losses. Before the first comparison nothing is removed anyway. The caller holds l.mu.
func (l *MassLoss) freeze(detail string) {
	if l.compared {
		l.Freezes.Set(LostRecords, detail)
	}
}

// Compared reports whether a list was compared with the imports. Nothing may be removed before.
func (l *MassLoss) Compared() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.compared
}

// Review compares the list of the broker with the imports until it is confirmed, and afterwards decides on pending losses.
func (l *MassLoss) Review() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.Broker.Synced() || !l.Broker.Consistent() {
		return
	}
	now := time.Now()
	l.pending.forget(now)
	l.reviewUnjoined(now)
	if l.list.confirmed {
		l.reviewPending(now)
		return
	}
	joined := l.joined() // before the losses: a member that goes meanwhile did not go with a rollback, which waits for l.mu
	lost := l.lost()
	c := l.pending.ofList(now, lost)
	mass := !l.list.since.IsZero()
	l.list = l.list.next(now, l.TTL, c)
	detail := ""
	switch {
	case l.list.confirmed:
		l.pending.list(now, lost, mass, c.massLoss())
		l.noteUnjoined(lost, joined)
	case l.list.since.IsZero():
		detail = "the broker was rolled back"
	default:
		detail = c.String()
	}
	l.Freezes.Set(LostRecords, detail)
	if !l.compared {
		l.compared = true
		l.RequeueAll()
	}
}

// noteUnjoined notes the clusters without a Member whose exports the first confirmed list after a rollback lacks. joined are the clusters with
// one. The caller holds l.mu.
func (l *MassLoss) noteUnjoined(lost map[importedExport]bool, joined map[string]bool) {
	for e, missing := range lost {
		if missing && l.restored && !joined[e.cluster] {
			l.unjoined[e.cluster] = time.Time{}
		}
	}
	l.restored = false
}

// joined returns the clusters that have a Member.
func (l *MassLoss) joined() map[string]bool {
	joined := make(map[string]bool)
	for _, m := range l.Broker.Members() {
		joined[m.Name] = true
	}
	return joined
}

// reviewUnjoined keeps the losses of the clusters from being confirmed whose Member went with a rollback: no administrator has removed them,
// and they have no rights at the broker to write their records again. A cluster that joins again has a TTL for that. The caller holds
// l.mu.
func (l *MassLoss) reviewUnjoined(now time.Time) {
	var gone []string
	for cluster, back := range l.unjoined {
		switch joined := l.Broker.Member(cluster) != nil; {
		case !joined:
			l.unjoined[cluster] = time.Time{}
			gone = append(gone, cluster)
		case back.IsZero():
			l.unjoined[cluster] = now
		case now.Sub(back) >= l.TTL:
			delete(l.unjoined, cluster)
			l.RequeueAll()
		}
	}
	detail := ""
	if slices.Sort(gone); len(gone) > 0 {
		detail = fmt.Sprintf("the broker was restored to before %s joined: join again there; what is imported from there stays", strings.Join(gone, ", "))
	}
	l.Freezes.Set(LostMembers, detail)
}

// Unconfirmed returns the clusters of an import that the broker lacks, but that the import may not lose yet: none until they are known
// not to be the first of many. The service is then queued again. has is what the import is about to follow: the broker may have more of
// the service by now.
func (l *MassLoss) Unconfirmed(svc types.NamespacedName, imp *mcsv1beta1.ServiceImport, has broker.View) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var clusters []string
	for e, missing := range l.lostOf(svc, imp, has) {
		if missing && !l.confirmed(e) {
			clusters = append(clusters, e.cluster)
		}
	}
	return clusters
}

// confirmed reports whether an import may lose e, which is pending from the first call on. The caller holds l.mu.
func (l *MassLoss) confirmed(e importedExport) bool {
	if _, unjoined := l.unjoined[e.cluster]; unjoined {
		return false
	}
	return l.pending.lose(time.Now(), e)
}

// reviewPending freezes if the pending losses are a mass loss, or confirms those that waited for long enough. The caller holds
// l.mu.
func (l *MassLoss) reviewPending(now time.Time) {
	if !l.pending.wait() {
		return
	}
	if c := l.pending.compare(now, l.lost()); c.lost > fewLosses && c.massLoss() {
		l.list = listCheck{since: now}
		l.Freezes.Set(LostRecords, c.String())
		return
	}
	for _, e := range l.pending.confirm(now) {
		l.Requeue(e.service)
	}
}

// lost returns all that our imports have of other clusters, and whether the broker lacks it. The caller holds l.mu.
func (l *MassLoss) lost() map[importedExport]bool {
	lost := make(map[importedExport]bool)
	for _, svc := range l.Member.Imports() {
		maps.Copy(lost, l.lostOf(svc, l.Member.Import(svc), l.Broker.View(svc)))
	}
	return lost
}

// lostOf is lost for one import, which may be nil or not managed by us, and what the broker has of the service.
func (l *MassLoss) lostOf(svc types.NamespacedName, imp *mcsv1beta1.ServiceImport, has broker.View) map[importedExport]bool {
	if !member.IsOurs(imp) {
		return nil
	}
	lost, imported := make(map[importedExport]bool), make(map[string]int)
	for _, s := range l.Member.ImportedSlices(svc) {
		imported[s.Labels[mcsv1beta1.LabelSourceCluster]]++
	}
	for _, c := range imp.Status.Clusters {
		if c.Cluster != l.ClusterID {
			lost[importedExport{svc, c.Cluster}] = !has.Has(c.Cluster) || l.lacksSlices(c.Cluster, len(has.Slices[c.Cluster]), imported[c.Cluster])
		}
	}
	return lost
}

// lacksSlices reports whether the broker, which has so many slices of an export, has none although some are imported. A cluster that joined
// again after a rollback writes its slices one by one: of its slices all have to be there. The caller holds l.mu.
func (l *MassLoss) lacksSlices(cluster string, has, imported int) bool {
	if imported == 0 {
		return false
	}
	if _, unjoined := l.unjoined[cluster]; !unjoined {
		imported = 1
	}
	return has < imported
}
