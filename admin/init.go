package admin

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/deploy"
)

// VIPAny as [InitOptions].VIP says that a clusterset has no setting, as before there was one.
const VIPAny = "any"

// InitOptions are the options of [Init].
type InitOptions struct {
	WriteOptions
	// VIP is the option "vip" that joins give to members (docs/spec/controller.md 7.9): derived, cidr, none or [VIPAny]; "" keeps what there is. VIPPool
	// is that of [JoinOptions], of which "" is the default.
	VIP, VIPPool  string
	AggregateView bool // also install the CRD ServiceImport, which members with "aggregate_view on" need
}

// Init prepares an API server to be a broker: it installs the CRDs, the role that lets members read, a priority level and the
// admission policies that restrict each member to its own namespace. It updates older versions of these, and returns an error if there is a newer one. Init starts
// no program.
func Init(ctx context.Context, config *rest.Config, o InitOptions) error {
	c, err := open(RoleBroker, config, o.WriteOptions)
	crds := brokerCRDs()
	for _, step := range []func() error{
		func() error {
			state, err := c.readSet(ctx, brokerSet())
			if err == nil {
				err = state.checkNotNewer()
			}
			return err
		},
		func() error { return setVIP(ctx, c, crds[0], o) },
		func() error { return c.install(ctx, stamped(crds), true) },
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

// setVIP adds to the CRD of Member of a broker the setting of the clusterset: the one that the options give, or else that which exists.
func setVIP(ctx context.Context, c *cluster, definition *unstructured.Unstructured, o InitOptions) error {
	existing, err := readClustersetVIP(ctx, c)
	if err != nil && o.VIP == "" {
		return err
	}
	setting, err := o.vip(existing)
	if err != nil {
		return err
	}
	if setting.Mode == "" && o.VIP == "" {
		return nil
	}
	annotations := definition.GetAnnotations()
	annotations[broker.AnnotationVIP] = setting.String()
	definition.SetAnnotations(annotations)
	return nil
}

func (o InitOptions) vip(existing merge.VIPSetting) (merge.VIPSetting, error) {
	switch {
	case o.VIP == VIPAny && o.VIPPool == "":
		return merge.VIPSetting{}, nil
	case o.VIP == "" && o.VIPPool == "":
		return existing, nil
	}
	words := []string{cmp.Or(o.VIP, string(existing.Mode), "none")}
	if o.VIPPool != "" {
		words = append(words, strings.Split(o.VIPPool, ",")...)
	}
	setting, err := merge.ParseVIPSetting(words)
	if err != nil {
		return setting, fmt.Errorf("vip: %w", err)
	}
	return setting, nil
}
