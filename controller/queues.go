package controller

import (
	"errors"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller/lease"
	"github.com/clusterset-dns/clusterset/controller/queue"
)

// newQueue returns a queue that counts its failures in m. Work that the end of the lease cuts off has not failed.
func newQueue(name string, log logging.Logger, m *Metrics) *queue.Queue {
	return queue.New(queue.Config{
		Name: name, Log: log,
		Failed:   func() { m.Failed(name) },
		Panicked: m.Panicked,
		Expected: func(err error) bool { return errors.Is(err, lease.ErrNotHeld) },
	})
}
