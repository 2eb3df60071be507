package plugin

import (
	"context"
	"time"

	"github.com/coredns/coredns/plugin/transfer"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// notifyPause is the least time between two NOTIFYs of a zone.
const notifyPause = time.Second

// Notify sends NOTIFY to the secondaries of t (RFC 1996) each time the serial is not the notified one, until ctx ends.
// Moves of the serial during a NOTIFY lead to one more. An error is logged if it is not that of the NOTIFY before.
func (h *Handler) Notify(ctx context.Context, t *transfer.Transfer, notified uint32) {
	serials, cancel := h.store.Subscribe()
	defer cancel()
	failed := make([]logging.OnChange[string], len(h.zones))
	for {
		if serial := h.store.State().Serial; serial != notified {
			notified = serial
			if !h.notify(ctx, t, failed) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(notifyPause):
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-serials:
		}
	}
}

// notify sends NOTIFY for each zone, and reports whether it has finished: a secondary that does not answer takes
// seconds, and the end of ctx does not wait for it. failed is the last logged failure of each zone.
func (h *Handler) notify(ctx context.Context, t *transfer.Transfer, failed []logging.OnChange[string]) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i, z := range h.zones {
			if ctx.Err() != nil {
				return
			}
			if err := t.Notify(z.origin); failed[i].Changed(logging.Text(err)) && err != nil {
				Log.Warningf("notify: %s", logging.Line(err))
			}
		}
	}()
	select {
	case <-ctx.Done():
		return false
	case <-done:
		return true
	}
}
