package admin

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	"github.com/clusterset-dns/clusterset/deploy"
)

// InitOptions are the options of [Init].
type InitOptions struct {
	WriteOptions
	AggregateView bool // also install the CRD ServiceImport, which members with "aggregate_view on" need
}

// Init prepares an API server to be a broker: it installs the CRDs, the role that lets members read, a priority level and the
// admission policies that restrict each member to its own namespace. It updates older versions of these, and returns an error if there is a newer one. Init starts
// no program.
func Init(ctx context.Context, config *rest.Config, o InitOptions) error {
	c, err := open(RoleBroker, config, o.WriteOptions)
	for _, step := range []func() error{
		func() error {
			state, err := c.readSet(ctx, brokerSet())
			if err == nil {
				err = state.checkNotNewer()
			}
			return err
		},
		func() error { return c.install(ctx, stamped(brokerCRDs()), true) },
		func() error {
			if !o.AggregateView {
				return nil
			}
			return c.install(ctx, parse(mcscrd.ServiceImportCRD), true)
		},
		func() error { return c.applyAll(ctx, stamped(parse(deploy.Broker))) },
	} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	return nil
}
