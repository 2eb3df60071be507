package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// readiness returns the condition Ready of the import (docs/spec/controller.md 6). o are the desired objects; foreign
// names existing objects that are not ours; failure is the error of the derived Service.
//
// The condition has no observedGeneration: only we write the spec, so with one each change of the spec would be two
// writes.
func readiness(p plan, o desired.Objects, foreign []string, failure error) metav1.Condition {
	spec := &o.Import.Spec
	pending := func(format string, args ...any) metav1.Condition {
		return notReady(mcsv1beta1.ServiceImportReasonPending, fmt.Sprintf(format, args...))
	}
	switch families := p.result.Families(p.cluster.Families); {
	case len(families) == 0:
		return notReady(mcsv1beta1.ServiceImportReasonIPFamilyNotSupported,
			fmt.Sprintf("The service has %s, and this cluster has %s.",
				familyText(p.result.Import.Spec.IPFamilies), familyText(p.cluster.Families)))
	case len(foreign) > 0:
		return pending("Waiting for a name that is taken by an object which is not ours: %s.", strings.Join(foreign, ", "))
	case failure != nil && !p.result.Routed() && member.Webhook(failure) != "":
		c := notReady(mcsv1beta1.ServiceImportReasonPending, "")
		c.Message = reason.With(fmt.Sprintf("Waiting for the derived Service: %s.", whyFailed(failure)), reason.ImportWebhook)
		return c
	case failure != nil && !p.result.Routed():
		return pending("Waiting for the derived Service: %s.", whyFailed(failure))
	case len(spec.Ports) == 0 && spec.Type == mcsv1beta1.ClusterSetIP:
		return pending("Waiting for a port: the exports have none.")
	case len(spec.IPs) == 0 && o.Service != nil:
		return pending("Waiting for the addresses of the derived Service.")
	case len(spec.IPs) == 0 && p.wanted && spec.Type == mcsv1beta1.ClusterSetIP:
		return pending("Waiting for an exporter to claim a clusterset IP.")
	}
	message := "The service can be used in this cluster."
	switch {
	case failure != nil && !slices.Equal(spec.IPs, p.result.Import.Spec.IPs):
		message = fmt.Sprintf(
			"The service keeps the addresses that it has, as the derived Service cannot carry its clusterset IPs: %s.",
			whyFailed(failure))
	case failure != nil:
		// Other members have the addresses, too, and something else than the Service may route them here.
		message = fmt.Sprintf("The service has its addresses, but no derived Service routes them: %s.", whyFailed(failure))
	case desired.LacksLocal(o.Import, o.Slices, p.cluster.Local()):
		message = "The service has its addresses, but connections to them fail: its internalTrafficPolicy is Local, and no node of this cluster has an endpoint of it."
	}
	return metav1.Condition{
		Type: string(mcsv1beta1.ServiceImportConditionReady), Status: metav1.ConditionTrue,
		Reason: string(mcsv1beta1.ServiceImportReasonReady), Message: message,
	}
}

func whyFailed(err error) string {
	if name := member.Webhook(err); name != "" {
		return fmt.Sprintf("the API server cannot call the admission webhook %q", name)
	}
	return cmp.Or(member.Rejection(err), "the last attempt to write it failed and is repeated")
}

func notReady(why mcsv1beta1.ServiceImportConditionReason, message string) metav1.Condition {
	return metav1.Condition{
		Type: string(mcsv1beta1.ServiceImportConditionReady), Status: metav1.ConditionFalse,
		Reason: string(why), Message: reason.Say(reason.ImportReady, string(why), message),
	}
}

func familyText(families []corev1.IPFamily) string {
	if len(families) == 0 {
		return "no IP family"
	}
	text := make([]string, len(families))
	for i, f := range families {
		text[i] = string(f)
	}
	slices.Sort(text)
	return strings.Join(text, " and ")
}
