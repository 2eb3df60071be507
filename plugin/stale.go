package plugin

import (
	"context"
	"time"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// stale reports whether the answer may be out of date: from a snapshot, frozen, or too long without contact of a watch that it
// needs (docs/spec/dns.md 6.4).
func (q *query) stale() bool {
	n := &q.answer.Name
	return q.state.Stale || q.store.Silence(n.Namespace(q.relative()), n.NeedsSlices()) > q.config.StaleAfter
}

// LogStaleness logs when answers begin to be stale, and when none is any longer, until ctx ends.
func (h *Handler) LogStaleness(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var logged logging.OnChange[bool]
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		state := h.store.State()
		silent := h.store.Silence("", true) > h.config.StaleAfter
		switch stale := state.Ready && (state.Stale || silent); {
		case !logged.Changed(stale):
		case !stale:
			Log.Infof("%s: no answer is stale any longer", h.zones[0].origin)
		case silent:
			Log.Warningf("%s: answers are stale: %s was silent for more than %s", h.zones[0].origin, h.store.Silent(), h.config.StaleAfter)
		default:
			Log.Warningf("%s: answers are stale: the state is from a snapshot, or frozen", h.zones[0].origin)
		}
	}
}
