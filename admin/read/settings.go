package read

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// The settings "vip" and "merge" of a clusterset are annotations on the CRD of Member at the broker, which every member
// may read (docs/spec/controller.md 7.9).

// VIPOf returns the setting of the clusterset, the zero value if it is not set. definition is the CRD of Member at the
// broker, nil if it does not exist.
func VIPOf(definition *unstructured.Unstructured) (merge.VIPSetting, error) {
	if definition == nil {
		return merge.VIPSetting{}, nil
	}
	s, err := merge.ParseVIPSetting(strings.Fields(definition.GetAnnotations()[broker.AnnotationVIP]))
	if err != nil {
		return s, fmt.Errorf("annotation %s of %s: %w; set it with \"clusterset broker init --vip\"", broker.AnnotationVIP,
			Describe(definition), err)
	}
	return s, nil
}

// MergeOf returns the option "merge" of the clusterset, "" without the CRD of Member at the broker.
func MergeOf(definition *unstructured.Unstructured) (merge.Mode, error) {
	if definition == nil {
		return "", nil
	}
	mode := cmp.Or(merge.Mode(definition.GetAnnotations()[broker.AnnotationMerge]), merge.KEP)
	if !slices.Contains(merge.Modes, mode) {
		return "", fmt.Errorf("annotation %s of %s: %q: want one of %s; set it with \"clusterset broker init --merge\"",
			broker.AnnotationMerge, Describe(definition), mode, merge.Modes)
	}
	return mode, nil
}

// JoinWithVIP returns the command by which a member gets the setting of the clusterset.
func JoinWithVIP(s merge.VIPSetting) string {
	command := "clusterset join --vip=" + string(s.Mode)
	if networks := strings.Fields(s.String())[1:]; len(networks) > 0 {
		command += " --vip-cidr-pool=" + strings.Join(networks, ",")
	}
	return command
}
