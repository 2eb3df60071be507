package clusterset

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// list returns all objects of a resource in a namespace, by name.
func list[T any](ctx context.Context, m *testclusterset.Member, version, plural, namespace string) ([]T, error) {
	return listOn[T](ctx, m.ControlPlane, version, plural, namespace)
}

func listOn[T any](ctx context.Context, c *controlplane.ControlPlane, version, plural, namespace string) ([]T, error) {
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return nil, err
	}
	found, err := c.Dynamic().Resource(gv.WithResource(plural)).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := make([]T, len(found.Items))
	for i := range found.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Items[i].Object, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

var (
	vipOfPool  = regexp.MustCompile(`\b243\.(\d+)\.\d+\.\d+`)
	vip6OfPool = regexp.MustCompile(`\bfd17:87d8:f436::(?:(\d+):)?[0-9a-f]+\b`)
	serviceIP  = regexp.MustCompile(`\b10\.1([123])\.\d+\.\d+`)
)

// normal writes addresses and the long id as scripts have them, as m sees them.
func normal(m *testclusterset.Member, text string) string {
	text = strings.ReplaceAll(text, longID, "west")
	text = vipOfPool.ReplaceAllString(text, "243.$1.x.x")
	text = vip6OfPool.ReplaceAllStringFunc(text, func(ip string) string {
		return "fd17::" + cmp.Or(vip6OfPool.FindStringSubmatch(ip)[1], "0") + ":x"
	})
	text = regexp.MustCompile(fmt.Sprintf(`\bfd00:1%d:[0-9a-f:]*`, m.Index)).ReplaceAllString(text, "vip6")
	return serviceIP.ReplaceAllStringFunc(text, func(ip string) string {
		if strings.HasPrefix(ip, fmt.Sprintf("10.1%d.", m.Index)) {
			return "vip4"
		}
		return ip[:6] + "x.x"
	})
}

// imports renders the imports with their Services and slices, which have to be the same in all these members.
func (s *script) imports(ctx context.Context, in []*testclusterset.Member) (string, error) {
	var first string
	for i, m := range in {
		text, err := s.importsOf(ctx, m)
		switch {
		case err != nil:
			return "", err
		case i == 0:
			first = text
		case text != first:
			return "", fmt.Errorf("%s has\n%s%s has\n%s", scriptName(in[0]), first, scriptName(m), text)
		}
	}
	return first, nil
}

func (s *script) importsOf(ctx context.Context, m *testclusterset.Member) (string, error) {
	imports, err := list[mcsv1beta1.ServiceImport](ctx, m, "multicluster.x-k8s.io/v1beta1", "serviceimports", s.namespace)
	if err != nil {
		return "", err
	}
	services, err := list[corev1.Service](ctx, m, "v1", "services", s.namespace)
	if err != nil {
		return "", err
	}
	imported, err := list[discoveryv1.EndpointSlice](ctx, m, "discovery.k8s.io/v1", "endpointslices", s.namespace)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	derived := slices.DeleteFunc(services, func(
		svc corev1.Service) bool {
		return svc.Labels[broker.LabelManagedBy] != broker.ManagedBy
	})
	named := make(map[string]bool)
	for i := range imports {
		delete(imports[i].Annotations, broker.AnnotationSources) // stamps and UIDs
		delete(imports[i].Annotations, broker.AnnotationVIPs)    // stamps
		name := imports[i].Annotations[broker.AnnotationDerivedService]
		if named[name] = slices.ContainsFunc(derived, func(
			svc corev1.Service) bool {
			return svc.Name == name
		}); named[name] {
			delete(imports[i].Annotations, broker.AnnotationDerivedService)
		}
		writeImport(&b, &imports[i])
	}
	for i := range derived {
		writeDerived(&b, imports, &derived[i])
		if !named[derived[i].Name] {
			b.WriteString("  not named by its import\n")
		}
	}
	var lines []string
	for i := range imported {
		if imported[i].Labels[discoveryv1.LabelManagedBy] == broker.ManagedBy {
			lines = append(lines, sliceText(imports, derived, &imported[i]))
		}
	}
	slices.Sort(lines)
	b.WriteString(strings.Join(lines, ""))
	return normal(m, b.String()), nil
}

// writeImport leaves out defaults.
func writeImport(b *strings.Builder, imp *mcsv1beta1.ServiceImport) {
	spec := &imp.Spec
	fmt.Fprintf(b, "%s %s %v of %v", imp.Name, spec.Type, spec.IPs, spec.IPFamilies)
	var clusters []string
	for _, c := range imp.Status.Clusters {
		clusters = append(clusters, c.Cluster)
	}
	fmt.Fprintf(b, " from %v, slices %s", clusters, imp.Status.EndpointSliceObjects)
	for _, c := range imp.Status.Conditions {
		fmt.Fprintf(b, ", %s=%s/%s", c.Type, c.Status, c.Reason)
		if c.Status != metav1.ConditionTrue {
			fmt.Fprintf(b, " (%s)", c.Message)
		}
	}
	if spec.Ports == nil {
		b.WriteString(", ports null")
	}
	b.WriteString("\n")
	for _, p := range spec.Ports {
		fmt.Fprintf(b, "  port %q %s/%d %s\n", p.Name, p.Protocol, p.Port, text(p.AppProtocol))
	}
	writePolicies(b, spec.SessionAffinity, spec.SessionAffinityConfig, spec.InternalTrafficPolicy,
		spec.TrafficDistribution)
	labels := maps.Clone(imp.Labels)
	if labels[broker.LabelManagedBy] != broker.ManagedBy {
		b.WriteString("  not ours\n")
	}
	delete(labels, broker.LabelManagedBy)
	writeMap(b, "label", labels)
	writeMap(b, "annotation", imp.Annotations)
}

func text[T ~string](p *T) string {
	if p == nil {
		return "-"
	}
	return string(*p)
}

func writeMap(b *strings.Builder, what string, m map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(b, "  %s %s=%s\n", what, key, m[key])
	}
}

func writePolicies(
	b *strings.Builder, affinity corev1.ServiceAffinity, config *corev1.SessionAffinityConfig,
	policy *corev1.ServiceInternalTrafficPolicy, distribution *string,
) {
	if affinity != corev1.ServiceAffinityNone {
		fmt.Fprintf(b, "  affinity %s %ds\n", affinity, *config.ClientIP.TimeoutSeconds)
	}
	if policy == nil || *policy != corev1.ServiceInternalTrafficPolicyCluster || distribution != nil {
		fmt.Fprintf(b, "  policy %s, distribution %s\n", text(policy), text(distribution))
	}
}

func writeDerived(b *strings.Builder, imports []mcsv1beta1.ServiceImport, svc *corev1.Service) {
	fmt.Fprintf(b, "derived of %s %v", derivedFrom(imports, svc), svc.Spec.ClusterIPs)
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		fmt.Fprintf(b, " carries %v", ingressText(svc))
	}
	b.WriteString("\n")
	for _, p := range svc.Spec.Ports {
		fmt.Fprintf(b, "  port %q %s/%d %s\n", p.Name, p.Protocol, p.Port, text(p.AppProtocol))
	}
	writePolicies(b, svc.Spec.SessionAffinity, svc.Spec.SessionAffinityConfig, svc.Spec.InternalTrafficPolicy,
		svc.Spec.TrafficDistribution)
	if len(svc.Spec.Selector) > 0 {
		fmt.Fprintf(b, "  selector %v\n", svc.Spec.Selector)
	}
}

// ingressText returns the addresses of a load balancer of our class without node ports.
func ingressText(svc *corev1.Service) []string {
	var all []string
	for _, i := range svc.Status.LoadBalancer.Ingress {
		all = append(all, i.IP)
		if text(i.IPMode) != "VIP" {
			all = append(all, "mode "+text(i.IPMode))
		}
	}
	if class := text(svc.Spec.LoadBalancerClass); class != broker.VIPClass {
		all = append(all, "class "+class)
	}
	for _, p := range svc.Spec.Ports {
		if p.NodePort != 0 {
			all = append(all, fmt.Sprintf("node port %d", p.NodePort))
		}
	}
	return all
}

// derivedFrom returns the name of the import that a Service is derived from.
func derivedFrom(imports []mcsv1beta1.ServiceImport, svc *corev1.Service) string {
	name := svc.Labels[mcsv1beta1.LabelServiceName]
	if slices.ContainsFunc(imports, func(imp mcsv1beta1.ServiceImport) bool { return imp.Name == name }) {
		return name
	}
	return "nobody"
}

// sliceText renders a slice, with labels that are wrong. Every slice names the derived Service, also where there is
// none.
func sliceText(imports []mcsv1beta1.ServiceImport, derived []corev1.Service, s *discoveryv1.EndpointSlice) string {
	var b strings.Builder
	name := s.Labels[mcsv1beta1.LabelServiceName]
	fmt.Fprintf(&b, "slice of %s from %s", name, s.Labels[mcsv1beta1.LabelSourceCluster])
	if len(s.OwnerReferences) > 0 {
		fmt.Fprintf(&b, ", owned by %v", s.OwnerReferences)
	}
	of := s.Labels[discoveryv1.LabelServiceName]
	if of != desired.DerivedName(s.Namespace, name) {
		fmt.Fprintf(&b, ", of Service %q", of)
	} else if slices.ContainsFunc(derived, func(svc corev1.Service) bool { return svc.Name == of }) {
		b.WriteString(", derived")
	}
	if _, ok := s.Labels[corev1.IsHeadlessService]; ok {
		b.WriteString(", headless")
	}
	for _, key := range []string{broker.LabelForZone, broker.LabelForRegion} {
		if value, ok := s.Labels[key]; ok {
			b.WriteString(", " + strings.TrimPrefix(key, "endpointslice.kubernetes.io/") + " " + value)
		}
	}
	b.WriteString(":")
	for _, p := range s.Ports {
		fmt.Fprintf(&b, " %s=%s/%d", text(p.Name), text(p.Protocol), *p.Port)
	}
	b.WriteString(" at")
	for _, e := range s.Endpoints {
		b.WriteString(" " + endpointText(e))
	}
	return serviceIP.ReplaceAllString(b.String(), "10.1$1.x.x") + "\n"
}

func endpointText(e discoveryv1.Endpoint) string {
	var b strings.Builder
	if e.Conditions.Ready != nil && !*e.Conditions.Ready {
		b.WriteString("!")
	}
	if e.Hostname != nil {
		b.WriteString(*e.Hostname + "=")
	}
	b.WriteString(strings.Join(e.Addresses, ","))
	if e.Zone != nil {
		b.WriteString("@" + *e.Zone)
	}
	if e.TargetRef != nil || e.Hints != nil {
		b.WriteString("(targetRef or hints)")
	}
	return b.String()
}

// exports renders the conditions of all exports, with messages where something is wrong.
func (s *script) exports(ctx context.Context, in []*testclusterset.Member) (string, error) {
	var b strings.Builder
	for _, m := range in {
		exports, err := list[mcsv1beta1.ServiceExport](ctx, m, "multicluster.x-k8s.io/v1beta1", "serviceexports", s.namespace)
		if err != nil {
			return "", err
		}
		for i := range exports {
			fmt.Fprintf(&b, "%s %s\n", scriptName(m), exports[i].Name)
			if to, ok := exports[i].Annotations[broker.AnnotationExportedTo]; ok {
				fmt.Fprintf(&b, "  exported to %s\n", to)
			}
			conditions := exports[i].Status.Conditions
			slices.SortFunc(conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
			for _, c := range conditions {
				if c.ObservedGeneration != exports[i].Generation {
					return "", fmt.Errorf("%s %s: condition %s observes %d, want %d",
						scriptName(m), exports[i].Name, c.Type, c.ObservedGeneration, exports[i].Generation)
				}
				if err := coded(c); err != nil {
					return "", fmt.Errorf("%s %s: %w", scriptName(m), exports[i].Name, err)
				}
				fmt.Fprintf(&b, "  %s=%s/%s: %s\n", c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
	return normal(in[0], b.String()), nil
}

// coded returns an error if the message of a condition of an export does not end with the codes of its reason
// (docs/spec/explain.md 4).
func coded(c metav1.Condition) error {
	source := map[string]reason.Source{
		"Valid": reason.Valid, "Initialized": reason.Valid, "Ready": reason.ExportReady, "Exported": reason.ExportReady,
		"Conflict": reason.Conflict,
	}[c.Type]
	if text, codes := reason.Split(c.Message); source == "" || reason.Say(source, c.Reason, text) != text+codes {
		return fmt.Errorf("condition %s=%s/%s: message %q, want it to end with codes %q", c.Type, c.Status, c.Reason,
			c.Message, reason.All(source, c.Reason))
	}
	return nil
}

// events renders the Events of exports: those of condition Conflict, or those of Valid.
func (s *script) events(ctx context.Context, conflict bool) (string, error) {
	var lines []string
	for _, m := range clusters.Members {
		events, err := list[eventsv1.Event](ctx, m, "events.k8s.io/v1", "events", s.namespace)
		if err != nil {
			return "", err
		}
		for _, e := range events {
			ready := e.Reason == "Exported" || e.Reason == "Pending" || e.Reason == "Failed"
			if e.Regarding.Kind != "ServiceExport" || ready || conflict != strings.Contains(e.Reason, "Conflict") {
				continue
			}
			lines = append(lines, normal(m, fmt.Sprintf("%s %s: %s %s: %s\n",
				scriptName(m), e.Regarding.Name, e.Type, e.Reason, e.Note)))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}

// views renders the imports on the broker.
func (s *script) views(ctx context.Context) (string, error) {
	var b strings.Builder
	for _, m := range clusters.Members {
		imports, err := listOn[mcsv1beta1.ServiceImport](ctx, clusters.Broker, "multicluster.x-k8s.io/v1beta1",
			"serviceimports", m.BrokerNamespace())
		if err != nil {
			return "", err
		}
		for i := range imports {
			b.WriteString(scriptName(m) + ": ")
			writeImport(&b, &imports[i])
		}
	}
	return normal(west, b.String()), nil
}

// rejected lists the rejected exports of the namespace on the broker.
func (s *script) rejected(ctx context.Context) (string, error) {
	all, err := listOn[v1alpha1.Member](ctx, clusters.Broker, v1alpha1.Members.GroupVersion().String(),
		v1alpha1.Members.Resource, "")
	var b strings.Builder
	for i := range all {
		for _, r := range all[i].Status.Rejected {
			if name, ok := strings.CutSuffix(r.Name, "."+s.namespace); ok {
				fmt.Fprintf(&b, "%s: %s %s: %s\n", all[i].Name, name, r.Reason, r.Message)
			}
		}
	}
	return b.String(), err
}
