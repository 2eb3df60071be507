package controller

import (
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/controller/lease"
)

// The two API servers, as label "side" of metric writes_total names them.
const (
	sideLocal  = "local"
	sideBroker = "broker"
)

// guarded returns a copy of cfg whose writes need the lease and are counted.
func guarded(cfg *rest.Config, side string, f *lease.Fence, m *Metrics) *rest.Config {
	return f.Guard(cfg, func(kind, verb string) { m.wrote(side, kind, verb) })
}
