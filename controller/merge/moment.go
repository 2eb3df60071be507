package merge

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A moment is a time that counts for precedence, in whole seconds, as the API has it.
type moment struct {
	pending bool // the broker does not have the record yet: after all that it has
	unix    int64
}

func (a moment) compare(b moment) int {
	if a.pending != b.pending {
		if a.pending {
			return 1
		}
		return -1
	}
	return cmp.Compare(a.unix, b.unix)
}

// momentOf returns the time that counts where a member claims one: min(max(claimed, admitted), created), so that no
// member can backdate an export past its admission or ahead of the broker's clock (docs/spec/controller.md 4.2).
func momentOf(claimed, admitted, created metav1.Time) moment {
	if created.IsZero() {
		return moment{pending: true, unix: later(claimed.Time, admitted.Time).Unix()}
	}
	return moment{unix: min(later(claimed.Time, admitted.Time).Unix(), created.Unix())}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
