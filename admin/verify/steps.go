package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/explain"
	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/verify/plan"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// exportServices exports Services of all kinds in each member.
func (v *verifier) exportServices(ctx context.Context) error {
	v.progress("exporting Services in each member")
	return v.forEachMember(func(m *verifiedMember) error {
		for _, kind := range kinds {
			if err := v.exportService(ctx, m, kind); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
}

// exportService creates a Service with its ServiceExport, and waits until the controller has exported it.
func (v *verifier) exportService(ctx context.Context, m *verifiedMember, kind plan.ServiceKind) error {
	s, err := m.Core.Services(v.namespace).Create(ctx, m.service(kind), createOptions)
	if err != nil {
		return err
	}
	m.families = s.Spec.IPFamilies
	_, err = read.Served(read.ServiceExports, func(r schema.GroupVersionResource) (*unstructured.Unstructured, error) {
		o := read.Object(r.GroupVersion().WithKind("ServiceExport"), v.namespace, m.serviceName(kind))
		return m.Client.Resource(r).Namespace(v.namespace).Create(ctx, o, createOptions)
	})
	if err != nil {
		return err
	}
	result := plan.Outcome{Evidence: m.serviceName(kind) + " is exported"}
	err = v.await(ctx, func(ctx context.Context) error { return m.checkExported(ctx, v.namespace, kind) })
	switch {
	case kind == plan.Headless && m.balanced:
		v.skipHeadless(m)
		return nil
	case err != nil:
		result = v.cause(ctx, m, m, kind, plan.Outcome{Code: reason.ExportPending, Evidence: err.Error()})
	}
	for _, to := range v.members {
		if to != m {
			v.addChecks(way(m, to, kind).Check(plan.Export, result))
		}
	}
	return nil
}

// skipHeadless takes the headless Service of a member out of the plan.
func (v *verifier) skipHeadless(m *verifiedMember) {
	v.progress(m.Name + " exports load balancers: its Service is of type LoadBalancer, without a headless one")
	v.mu.Lock()
	defer v.mu.Unlock()
	v.plan = slices.DeleteFunc(v.plan, func(c plan.Check) bool { return c.From == m.Name && c.Kind == plan.Headless })
}

// checkExported returns why a Service is not exported. It sets balanced, and returns nil, if the member exports load
// balancers alone: the headless Service of verify, which selects no clusters, has an invalid type only then.
func (m *verifiedMember) checkExported(ctx context.Context, namespace string, kind plan.ServiceKind) error {
	e := read.One[mcsv1beta1.ServiceExport](ctx, m.Cluster, read.ServiceExports, namespace, m.serviceName(kind))
	if e.Value == nil {
		return errors.New(cmp.Or(e.Why, "the ServiceExport was deleted"))
	}
	for _, of := range []mcsv1beta1.ServiceExportConditionType{mcsv1beta1.ServiceExportConditionValid,
		mcsv1beta1.ServiceExportConditionReady} {
		c := cause.CurrentCondition(e.Value, of)
		if c != nil && kind == plan.Headless && c.Reason == string(mcsv1beta1.ServiceExportReasonInvalidServiceType) {
			m.balanced = true
			return nil
		}
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason == wellknown.ReasonUndeclaredAddresses {
			reason, message := cause.ExportReason(e.Value)
			return fmt.Errorf("%s: %s", reason, message)
		}
	}
	return nil
}

// cause is the result of clusterset explain in the member at, or else the observation.
func (v *verifier) cause(ctx context.Context, at, from *verifiedMember, kind plan.ServiceKind,
	seen plan.Outcome) plan.Outcome {
	o := explain.Defaults()
	o.Name = fmt.Sprintf("%s.%s.svc.%s.", from.serviceName(kind), v.namespace, v.options.Zone)
	o.DNS.Namespace = "" // the steps before DNS do not depend on it
	o.Timeout = min(v.options.Timeout, 10*time.Second)
	o.Namespace, o.DNS.Zone, o.Type = v.options.Namespace, v.options.Zone, plan.Question{}.Type()
	if r, err := explain.Run(ctx, nil, at.Config, o); err == nil && r.Verdict.Found() {
		return plan.Outcome{Code: r.Verdict.Code,
			Evidence: fmt.Sprintf("%s (%s)", strings.TrimSuffix(r.Verdict.Sentence, "."), seen.Evidence)}
	}
	return seen
}

// awaitImports waits for the imports of all exports, with the endpoints of the Pods that run.
func (v *verifier) awaitImports(ctx context.Context) error {
	v.progress("waiting for the imports")
	failed := map[plan.Way]bool{}
	for _, c := range v.results {
		if c.Step == plan.Export && c.Mark == plan.Failed {
			failed[c.Way()] = true
		}
	}
	v.forEachPath(func(from, to *verifiedMember, kind plan.ServiceKind) {
		at := way(from, to, kind)
		if failed[at] {
			return
		}
		var want []string
		err := v.await(ctx, func(ctx context.Context) (err error) {
			want, err = v.importedAddresses(ctx, from, to, kind)
			return err
		})
		result := plan.Outcome{Evidence: cmp.Or(strings.Join(want, ", "), "without endpoints")}
		if err != nil {
			result = v.cause(ctx, to, from, kind, plan.Outcome{Code: reason.ImportMissing, Evidence: err.Error()})
		}
		v.addChecks(at.Check(plan.Import, result))
		if err == nil {
			v.mu.Lock()
			v.wants[at] = want
			v.mu.Unlock()
		}
	})
	return ctx.Err()
}

// importedAddresses returns the addresses of an import, or its gaps.
func (v *verifier) importedAddresses(ctx context.Context, from, to *verifiedMember,
	kind plan.ServiceKind) ([]string, error) {
	target := cause.Target{Namespace: v.namespace, Service: from.serviceName(kind)}
	r := to.Import(ctx, target)
	imp := r.Value.Object
	switch {
	case r.State != cause.Present:
		return nil, errors.New(cmp.Or(r.Why, "there is no ServiceImport"))
	case imp == nil:
		return nil, errors.New("the ServiceImport does not decode: " + r.Value.Undecodable)
	case string(imp.Spec.Type) != string(kind):
		return nil, fmt.Errorf("the ServiceImport has type %s, want %s", imp.Spec.Type, kind)
	case !slices.ContainsFunc(imp.Status.Clusters,
		func(c mcsv1beta1.ClusterStatus) bool { return c.Cluster == from.clusterID }):
		return nil, fmt.Errorf("the ServiceImport does not list cluster %s", from.clusterID)
	case meta.IsStatusConditionFalse(imp.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady)):
		c := meta.FindStatusCondition(imp.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
		return nil, fmt.Errorf("the ServiceImport is not ready, %s: %s", c.Reason, c.Message)
	}
	endpoints, err := to.endpoints(ctx, v.namespace, from, kind)
	if err != nil {
		return nil, err
	}
	if v.options.Pods && from.podFault == "" {
		if from.balanced && len(endpoints) == 0 {
			return nil, fmt.Errorf("the import has no endpoint of cluster %s", from.clusterID)
		}
		for _, family := range from.families { // a load balancer may have fewer
			if !from.balanced && slices.Contains(to.families, family) && !slices.ContainsFunc(endpoints,
				func(a string) bool { return familyOf(a) == family }) {
				return nil, fmt.Errorf("the import has no %s endpoint of cluster %s", family, from.clusterID)
			}
		}
	}
	if len(imp.Spec.IPs) > 0 {
		return imp.Spec.IPs, nil
	}
	return endpoints, nil
}

// endpoints returns the ready endpoints of a cluster that are imported.
func (m *verifiedMember) endpoints(ctx context.Context, namespace string, from *verifiedMember,
	kind plan.ServiceKind) (addresses []string, err error) {
	slices, _ := read.Many[discoveryv1.EndpointSlice](ctx, m.Cluster, read.EndpointSlices, namespace, metav1.ListOptions{
		LabelSelector: mcsv1beta1.LabelServiceName + "=" + from.serviceName(kind) + "," + mcsv1beta1.LabelSourceCluster +
			"=" + from.clusterID,
	})
	if slices.State != cause.Present {
		return nil, errors.New(slices.Why)
	}
	for _, s := range slices.Value {
		for _, e := range s.Endpoints {
			if broker.IsReady(e.Conditions) {
				addresses = append(addresses, e.Addresses...)
			}
		}
	}
	return addresses, nil
}

func familyOf(address string) corev1.IPFamily {
	if a, err := netip.ParseAddr(address); err == nil && a.Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// askNames asks for the names of the imports, and connects.
func (v *verifier) askNames(ctx context.Context) error {
	return v.askAll(ctx, "ask", func(from, to *verifiedMember, kind plan.ServiceKind) (all []plan.Question) {
		want, ok := v.wants[way(from, to, kind)]
		q := v.question(from, kind)
		switch {
		case !ok, v.options.Pods && len(want) == 0:
			return nil // its import, or its Pod, is the fault
		case !v.options.Pods:
			q.Want = want
			if len(want) > 0 {
				q.Family = string(familyOf(want[0]))
				q.Want = ofFamily(want, familyOf(want[0]))
			}
			return []plan.Question{q}
		}
		for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
			if q.Want = ofFamily(want, family); len(q.Want) > 0 {
				q.Family, q.Port, q.Says = string(family), podPort, from.replyText(v.namespace)
				all = append(all, q)
			}
		}
		return all
	})
}

func ofFamily(all []string, family corev1.IPFamily) (some []string) {
	for _, a := range all {
		if familyOf(a) == family {
			some = append(some, a)
		}
	}
	return some
}

// question asks for the service or, if it is headless, for the host behind it.
func (v *verifier) question(from *verifiedMember, kind plan.ServiceKind) plan.Question {
	name := fmt.Sprintf("%s.%s.svc.%s.", from.serviceName(kind), v.namespace, v.options.Zone)
	if kind == plan.Headless {
		name = from.host() + "." + from.clusterID + "." + name
	}
	return plan.Question{From: from.Name, Kind: kind, Zone: v.options.Zone, Name: name}
}

// askGone asks for the names of ended imports.
func (v *verifier) askGone(ctx context.Context) error {
	return v.askAll(ctx, "ask-gone", func(from, to *verifiedMember, kind plan.ServiceKind) []plan.Question {
		if !v.resolved[way(from, to, kind)] {
			return nil // replies of DNS would not be about the withdrawal
		}
		q := v.question(from, kind)
		q.Gone = true
		return []plan.Question{q}
	})
}

// askAll asks in each member, by a Pod of this name or from here.
func (v *verifier) askAll(ctx context.Context, pod string,
	questions func(from, to *verifiedMember, kind plan.ServiceKind) []plan.Question) error {
	v.progress("asking DNS in each member")
	return v.forEachMember(func(to *verifiedMember) error {
		var all []plan.Question
		for _, from := range v.members {
			for _, kind := range kinds {
				if from != to && (v.options.Pods || kind == plan.ClusterSetIP) {
					all = append(all, questions(from, to, kind)...)
				}
			}
		}
		var answers []plan.Answer
		var err error
		switch {
		case len(all) == 0, to.podFault != "":
			return nil
		case v.options.Pods:
			answers, err = v.askInPod(ctx, to, pod, all)
		case to.DNSServer == "":
			return nil
		default:
			answers = Ask(ctx, all, to.DNSServer, v.options.Timeout)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for i, q := range all {
			if err != nil {
				v.addChecks(podCheck(q.From, to.Name, to.Name+": "+grantedBy(err).Error()))
				continue
			}
			v.addChecks(q.Checks(to.Name, answers[i])...)
			if answers[i].DNS.Code == "" {
				v.mu.Lock()
				v.resolved[plan.Way{From: q.From, To: to.Name, Kind: q.Kind}] = true
				v.mu.Unlock()
			}
		}
		return nil
	})
}

// askInPod runs a Pod that asks, and reads the answers from its log.
func (v *verifier) askInPod(ctx context.Context, m *verifiedMember, name string,
	questions []plan.Question) (answers []plan.Answer, err error) {
	text, err := json.Marshal(questions)
	if err != nil {
		return nil, err
	}
	args := []string{"ask", "--patience=" + v.options.Timeout.String()}
	if m.DNSServer != "" {
		args = append(args, "--dns-server="+m.DNSServer)
	}
	if err := v.createPod(ctx, m, m.pod(name, append(args, string(text))...)); err != nil {
		return nil, err
	}
	ended := func(ctx context.Context) error {
		return m.checkPod(ctx, v.namespace, name, func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		})
	}
	err = v.await(ctx, ended) // to start
	if err != nil {
		err = v.await(ctx, ended) // it asks for so long
	}
	if err != nil {
		return nil, err
	}
	err = v.await(ctx, func(ctx context.Context) error {
		log, err := m.Core.Pods(v.namespace).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil {
			err = json.Unmarshal(log, &answers)
		}
		if err == nil && len(answers) != len(questions) {
			err = fmt.Errorf("%d answers, want %d", len(answers), len(questions))
		}
		if err != nil {
			err = fmt.Errorf("log of Pod %s: %s", name, logging.Line(grantedBy(err)))
		}
		return err
	})
	return answers, err
}

// withdraw deletes all ServiceExports, and waits until the imports are gone.
func (v *verifier) withdraw(ctx context.Context) error {
	v.progress("withdrawing the exports")
	return v.forEachMember(func(m *verifiedMember) error {
		if err := m.deleteExports(ctx, v.namespace); err != nil {
			return err
		}
		v.awaitWithdrawal(ctx, m)
		return ctx.Err()
	})
}

// deleteExports deletes the ServiceExports in a namespace.
func (m *verifiedMember) deleteExports(ctx context.Context, namespace string) error {
	all, err := m.ListObjects(ctx, read.ServiceExports, namespace, "")
	if err != nil {
		return err
	}
	for _, e := range all {
		if err := m.Resource(e).Delete(ctx, e.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// awaitWithdrawal waits until the imports from a member are gone.
func (v *verifier) awaitWithdrawal(ctx context.Context, exporter *verifiedMember) {
	v.forEachPath(func(from, to *verifiedMember, kind plan.ServiceKind) {
		if from != exporter {
			return
		}
		at := way(from, to, kind)
		if _, ok := v.wants[at]; !ok {
			return
		}
		result := plan.Outcome{Evidence: "the import is gone"}
		err := v.await(ctx, func(ctx context.Context) error {
			r := to.Import(ctx, cause.Target{Namespace: v.namespace, Service: from.serviceName(kind)})
			if r.State == cause.Absent {
				return nil
			}
			return errors.New(cmp.Or(r.Why, "there is a ServiceImport "+from.serviceName(kind)))
		})
		if err != nil {
			result = plan.Outcome{Code: reason.ImportNotWithdrawn, Evidence: err.Error()}
		}
		v.addChecks(at.Check(plan.Withdrawal, result))
	})
}
