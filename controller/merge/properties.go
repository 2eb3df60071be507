package merge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/selection"
)

// A property is taken from the oldest export as it is. Two exports agree if its text is the same.
type property struct {
	reason mcsv1beta1.ServiceExportConditionReason
	what   string
	text   func(*v1alpha1.ExportedServiceSpec) string
}

var properties = []property{
	{mcsv1beta1.ServiceExportReasonSessionAffinityConflict, "session affinity", affinity},
	{mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict, "session affinity config", affinityConfig},
	{mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict, "internal traffic policy", internalTrafficPolicy},
	{mcsv1beta1.ServiceExportReasonTrafficDistributionConflict, "traffic distribution", trafficDistribution},
	{mcsv1beta1.ServiceExportReasonLabelsConflict, "labels", func(s *v1alpha1.ExportedServiceSpec) string {
		return pairs(s.Labels)
	}},
	{mcsv1beta1.ServiceExportReasonAnnotationsConflict, "annotations", func(s *v1alpha1.ExportedServiceSpec) string {
		return pairs(s.Annotations)
	}},
	{ReasonClusterSelectors, "cluster selectors", clusterSelectors},
}

func (m *merger) compareProperties() {
	in := m.entries()
	for _, p := range properties {
		want := p.text(&m.oldest.Spec)
		var disagree int
		for _, e := range in {
			if p.text(&e.Spec) != want {
				disagree++
			}
		}
		if disagree > 0 {
			using := strings.ReplaceAll(want, separator, ", ")
			// Members of older versions cannot say which clusters they prefer: withholding the service would make their upgrade
			// an outage.
			unresolved := p.reason != ReasonClusterSelectors
			m.conflict(finding{reason: p.reason, what: p.what, using: using, disagree: disagree, unresolved: unresolved})
		}
	}
}

func affinity(s *v1alpha1.ExportedServiceSpec) string {
	return string(cmp.Or(s.SessionAffinity, corev1.ServiceAffinityNone))
}

func affinityConfig(s *v1alpha1.ExportedServiceSpec) string {
	timeout := s.SessionAffinityConfig
	switch {
	case timeout != nil && timeout.ClientIP != nil && timeout.ClientIP.TimeoutSeconds != nil:
		return fmt.Sprintf("%ds", *timeout.ClientIP.TimeoutSeconds)
	case s.SessionAffinity == corev1.ServiceAffinityClientIP:
		return fmt.Sprintf("%ds", corev1.DefaultClientIPServiceAffinitySeconds)
	}
	return "none"
}

func internalTrafficPolicy(s *v1alpha1.ExportedServiceSpec) string {
	return string(ptr.Deref(s.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster))
}

func trafficDistribution(s *v1alpha1.ExportedServiceSpec) string {
	return cmp.Or(ptr.Deref(s.TrafficDistribution, ""), "none")
}

// clusterSelectors is the same text for lists with another order of properties. Other wordings of a requirement differ.
func clusterSelectors(s *v1alpha1.ExportedServiceSpec) string {
	if len(s.ClusterSelectors) == 0 {
		return "none"
	}
	return selection.FromRecord(s.ClusterSelectors).String()
}

// separator stands between the entries of a map in a property's text. No key contains it.
const separator = "\x00"

func pairs[T v1alpha1.Label | v1alpha1.Annotation](list []T) string {
	var text []string
	for _, entry := range list {
		pair := v1alpha1.Annotation(entry)
		text = append(text, pair.Key+"="+pair.Value)
	}
	slices.Sort(text)
	return strings.Join(text, separator)
}
