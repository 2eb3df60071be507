package safety

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// An importedExport is one cluster of one import of this member.
type importedExport struct {
	service types.NamespacedName
	cluster string
}

// fewLosses losses at once never count as mass loss, whatever part of all exports they are: people delete that many services, and
// a deleted CRD is noticed before lossQuiet is over.
const fewLosses = 10

// A comparison counts the exports of other clusters that are imported here, and those among them that the broker lacks.
type comparison struct {
	imported int
	lost     int
}

// compare counts. lost says of each imported export whether the broker lacks it.
func compare(lost map[importedExport]bool) comparison {
	c := comparison{imported: len(lost)}
	for _, missing := range lost {
		if missing {
			c.lost++
		}
	}
	return c
}

// massLoss reports whether more than half is missing.
func (c comparison) massLoss() bool { return 2*c.lost > c.imported }

// String is the comparison as people read it.
func (c comparison) String() string {
	return fmt.Sprintf("%d of %d imported exports are gone from the broker", c.lost, c.imported)
}

// A listCheck decides whether the last list of the broker is confirmed, that is complete as far as this member can judge. The
// zero value confirms nothing yet.
//
//	           compared: at most half missing, or more than half for a TTL
//	+-----------+ ------------------------------------------------> +-----------+
//	| unchecked |                                                   | confirmed |
//	+-----------+ <------------------------------------------------ +-----------+
//	              a new list, a rollback (then not before a TTL later), or a mass loss by watch
type listCheck struct {
	confirmed bool
	notBefore time.Time // a comparison before this time does not count
	since     time.Time // when more than half was first missing; zero if it is not
}

// rolledBack returns the check after the broker was rolled back: the next list counts a TTL later, when all lists are made
// again and the members have restored their records.
func rolledBack(now time.Time, ttl time.Duration) listCheck {
	return listCheck{notBefore: now.Add(ttl)}
}

// next returns the check after a comparison. A mass loss is confirmed if it lasts for a TTL. Once a list is confirmed, the
// watch reports each further loss.
func (l listCheck) next(now time.Time, ttl time.Duration, c comparison) listCheck {
	switch {
	case l.confirmed || now.Before(l.notBefore):
		return l
	case !c.massLoss(), !l.since.IsZero() && now.Sub(l.since) >= ttl:
		return listCheck{confirmed: true}
	case l.since.IsZero():
		l.since = now
	}
	return l
}
