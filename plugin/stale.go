package plugin

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/reason"
)

// stale reports whether the answer may be out of date: from a snapshot, frozen, or too long without contact of a watch
// that it needs (docs/spec/dns.md 6.4).
func (q *query) stale() bool {
	namespace := ""
	if len(q.config.Namespaces) > 0 { // else there is one watch of a kind
		namespace = q.answer.Name.Namespace(q.relative())
	}
	slices := q.answer.Name.NeedsSlices()
	return q.state.Stale(namespace, slices) || q.store.Silence(namespace, slices) > q.config.StaleAfter
}

// hasLists reports whether the lists that the answer needs are complete, or restored from a snapshot. Names above all
// namespaces need no lists.
func (q *query) hasLists() bool {
	if q.state.Knows("", true) {
		return true
	}
	namespace := q.answer.Name.Namespace(q.relative())
	return namespace == "" || q.state.Knows(namespace, q.answer.Name.NeedsSlices())
}

// LogStaleness logs when answers begin to be stale, and when all answers are current again, until ctx ends.
func (h *Handler) LogStaleness(ctx context.Context) {
	var logged logging.OnChange[bool]
	wait.UntilWithContext(ctx, func(context.Context) {
		state := h.store.State()
		silent := h.store.Silence("", true) > h.config.StaleAfter
		switch stale := state.Ready && (state.Stale("", true) || silent); {
		case !logged.Changed(stale):
		case !stale:
			Log.Infof("%s: no answer is stale any longer", h.zones[0].origin)
		case silent:
			Log.Warningf("%s: answers are stale: %s", h.zones[0].origin,
				reason.With(fmt.Sprintf("%s was silent for more than %s", h.store.Silent(), h.config.StaleAfter), reason.DNSStale))
		default:
			Log.Warningf("%s: answers are stale: %s", h.zones[0].origin,
				reason.With("the state is from a snapshot, or frozen", reason.DNSStale))
		}
	}, time.Second)
}
