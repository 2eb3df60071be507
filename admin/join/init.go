package join

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/deploy"
)

// VIPAny as [InitOptions].VIP: the clusterset has no setting, as before there was one.
const VIPAny = "any"

// InitOptions are the options of [Init].
type InitOptions struct {
	write.Options
	// VIP is the option "vip" that joins give to members (docs/spec/controller.md 7.9): derived, cidr, none or
	// [VIPAny]; "" keeps the current one. VIPPool is the default for [Options].
	VIP, VIPPool  string
	Merge         string // the option "merge" of all members; "" keeps what there is
	AggregateView bool   // also install the CRD ServiceImport, which members with "aggregate_view on" need
}

// Init prepares an API server to be a broker: it installs the CRDs, the role that lets members read, a priority level
// and the admission policies that restrict each member to its own namespace. It updates older versions of these, and
// returns an error if there is a newer one. Init starts no program.
func Init(ctx context.Context, config *rest.Config, o InitOptions) error {
	c, err := write.Open(read.RoleBroker, config, o.Options)
	crds := read.BrokerCRDs()
	var state read.Set
	for _, step := range []func() error{
		func() error {
			var err error
			if state, err = c.ReadSet(ctx, read.BrokerSet()); err != nil {
				return err
			}
			return state.CheckNotNewer()
		},
		func() error { return o.setSettings(crds[0], state.CRD(v1alpha1.Members)) },
		func() error { return c.InstallCRDs(ctx, read.Stamped(crds), true) },
		func() error {
			if !o.AggregateView {
				return nil
			}
			return c.InstallCRDs(ctx, read.Parse(mcscrd.ServiceImportCRD), true)
		},
		func() error { return c.ApplyNewer(ctx, read.Stamped(read.Parse(deploy.Broker))) },
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

// setSettings adds to the CRD of Member the settings of the clusterset: those that the options give, or else those of
// existing, the CRD at the broker.
func (o InitOptions) setSettings(definition, existing *unstructured.Unstructured) error {
	setting, err := read.VIPOf(existing)
	if err != nil && o.VIP == "" {
		return err
	}
	if setting, err = o.vipSetting(setting); err != nil {
		return err
	}
	mode, err := read.MergeOf(existing)
	if err != nil && o.Merge == "" {
		return err
	}
	annotations := definition.GetAnnotations()
	annotations[broker.AnnotationMerge] = cmp.Or(o.Merge, string(mode), string(merge.KEP))
	if setting.Mode != "" || o.VIP != "" {
		annotations[broker.AnnotationVIP] = setting.String()
	}
	definition.SetAnnotations(annotations)
	_, err = read.MergeOf(definition)
	return err
}

func (o InitOptions) vipSetting(existing merge.VIPSetting) (merge.VIPSetting, error) {
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
