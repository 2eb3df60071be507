package cache

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// findNode asks for the labels of the Node until they have its zone or region.
func findNode(ctx context.Context, cfg *Config, client *apiserver.Client, objects *objects) error {
	var logged logging.Failure[bool]
	for backoff := apiserver.NewBackoff(); ; {
		node, err := client.Metadata(ctx, "nodes", cfg.TopologyNode)
		var zone, region string
		if err == nil {
			zone, region = node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelTopologyRegion]
		}
		if zone != "" || region != "" {
			cfg.Log.Infof("%s: node %s is in zone %q, region %q", cfg.Name, cfg.TopologyNode, zone, region)
			objects.setTopology(zone, region)
			return nil
		}
		if class := apiserver.Classify(err); ctx.Err() == nil && class != apiserver.Unreachable && logged.Changed(true, err) {
			cfg.Log.Warningf("%s: node %s: zone and region are not known yet: %s", cfg.Name, cfg.TopologyNode,
				topologyProblem(class, err))
		}
		if apiserver.Sleep(ctx, backoff.After(err)) != nil {
			return nil
		}
	}
}

func topologyProblem(class apiserver.Class, err error) string {
	switch class {
	case apiserver.OK:
		return fmt.Sprintf("it has neither label %s nor %s", corev1.LabelTopologyZone, corev1.LabelTopologyRegion)
	case apiserver.Forbidden:
		return "the right to get it is missing"
	}
	return logging.Line(err)
}
