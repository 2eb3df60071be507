package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// RegionAuto as the region of [Options] stands for that of all Nodes.
const RegionAuto = "auto"

// decideRegion returns the region that a join writes, or "" and the one to offer: most users do not know that the
// region of a cluster is not that of its Nodes by itself. property is the region that the cluster has; regions are
// those of its Nodes, with the error of reading them.
func decideRegion(asked string, property *unstructured.Unstructured, regions []string, unread error) (region,
	offer string, err error) {
	switch {
	case asked == "" && (property != nil || unread != nil || len(regions) != 1):
		return "", "", nil
	case asked == "":
		return "", regions[0], nil
	case asked == RegionAuto && unread != nil:
		return "", "", fmt.Errorf("--region=%s: %w", RegionAuto, unread)
	case asked == RegionAuto && len(regions) != 1:
		return "", "", fmt.Errorf("--region=%s: the Nodes have %d regions by their label %s%s: want one, or --region=REGION",
			RegionAuto, len(regions), corev1.LabelTopologyRegion, someRegions(regions))
	case asked == RegionAuto:
		asked = regions[0]
	}
	if err := checkRegion(asked, property); err != nil {
		return "", "", fmt.Errorf("--region=%.80s: %w", asked, err)
	}
	return asked, "", nil
}

// checkRegion returns an error if a cluster cannot get a region as its ClusterProperty, which is nil if it does not
// exist.
func checkRegion(wanted string, property *unstructured.Unstructured) error {
	if !broker.IsPropertyValue(wanted) {
		return fmt.Errorf("%.80q: want 1 to %d characters", wanted, broker.MaxPropertyValue)
	}
	has := read.PropertyValue(property)
	if property != nil && has != wanted && !isAppliedBy(property, wellknown.ManagerJoin) {
		return fmt.Errorf("%s is %q, and was not written by clusterset: change it, or delete it first",
			read.Describe(property), has)
	}
	return nil
}

// someRegions names a few regions: ", such as a, b".
func someRegions(regions []string) string {
	if len(regions) == 0 {
		return ""
	}
	return ", such as " + strings.Join(regions[:min(3, len(regions))], ", ")
}

// regionsOfNodes returns the regions by the labels of the Nodes, sorted. It returns an error if one of them has no
// region, or if they may not be read.
func regionsOfNodes(ctx context.Context, c *read.Cluster) ([]string, error) {
	var regions []string
	without := ""
	err := c.Each(ctx, read.Nodes, "", metav1.ListOptions{},
		func(node *unstructured.Unstructured) {
			region := node.GetLabels()[corev1.LabelTopologyRegion]
			if region == "" {
				without = node.GetName()
			}
			regions = append(regions, region)
		})
	switch {
	case apierrors.IsForbidden(err):
		return nil, errors.New("the right to list nodes is missing; deploy/join/member.yaml has it")
	case err != nil:
		return nil, err
	case without != "":
		return nil, fmt.Errorf("the Node %s has no label %s", without, corev1.LabelTopologyRegion)
	}
	slices.Sort(regions)
	return slices.Compact(regions), nil
}
