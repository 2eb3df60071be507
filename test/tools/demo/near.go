package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// The Pods of the service front.
var inSouth, inEast = []string{"10.23.0.40", "10.23.0.41"}, []string{"10.21.0.40"}

// localPodsDie exports front from south and from east, shows that connections from south stay there, and takes its Pods there away.
func (d *demo) localPodsDie(ctx context.Context) error {
	for _, m := range []*testclusterset.Member{d.east, d.south} {
		if err := d.apply(ctx, m, m.ID+"-near.yaml"); err != nil {
			return err
		}
		err := d.command(ctx, 0, "front -n news", "export", "front", "-n", "news", "--context", m.ID)
		if err != nil {
			return err
		}
	}
	if err := d.showTargets(ctx, "both clusters have Pods, and those of south are nearer", inSouth); err != nil {
		return err
	}
	return d.apply(ctx, d.south, "south-near-down.yaml")
}

// failOver shows where connections go when the Pods in south are gone.
func (d *demo) failOver(ctx context.Context) error {
	return d.showTargets(ctx, "connections to front now go to Pods in east", inEast)
}

// showTargets waits until kube-proxy in south would send connections to front to these Pods, and no others.
func (d *demo) showTargets(ctx context.Context, why string, want []string) error {
	err := d.await(ctx, func(ctx context.Context) error {
		got, err := d.targets(ctx)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("connections to front in south go to %q, want %q", got, want)
		}
		return err
	})
	if err != nil {
		return err
	}
	d.printf("   kube-proxy in south would connect clients of front to %s: %s.\n\n", strings.Join(want, " or "), why)
	return nil
}

// targets are the ready endpoints in the imported slices that kube-proxy reads: it leaves out those with the label for headless services.
func (d *demo) targets(ctx context.Context) ([]string, error) {
	list, err := d.south.Imported(ctx, "news", "front")
	if err != nil {
		return nil, err
	}
	var all []string
	for i := range list {
		if _, hidden := list[i].Labels[corev1.IsHeadlessService]; hidden {
			continue
		}
		for _, e := range list[i].Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				all = append(all, e.Addresses...)
			}
		}
	}
	slices.Sort(all)
	return all, nil
}
