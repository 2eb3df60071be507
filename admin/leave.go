package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// LeaveOptions say how a cluster is taken out. Namespace is that of the controller in the member.
type LeaveOptions struct {
	Writing

	Namespace string
	Prefix    string // of the broker namespace, where nothing else says it; "" is [DefaultPrefix]
	// Force does what can be done without a broker that is gone, or is another one. With [Remove] it also takes out a member
	// that is alive.
	Force bool
	Now   func() time.Time
}

// Left is what came of a leave or a removal.
type Left struct {
	ClusterID string   `json:"clusterID,omitempty"`
	Namespace string   `json:"namespace,omitempty"` // on the broker
	Warnings  []string `json:"warnings,omitempty"`  // what is left behind, and what to do
}

// Leave takes a cluster out of the clusterset (section 7): what it exports, what it imports, what the broker has for it, its
// credential, and ClusterProperty clusterset.k8s.io last. Its cluster id stays. Run again after a crash it does the rest.
//
// The broker may be nil with Force.
func Leave(ctx context.Context, onBroker, onMember *rest.Config, o LeaveOptions) (Left, error) {
	l := &leaving{o: o}
	var err error
	if l.member, err = o.open(OnMember, onMember); err != nil {
		return Left{}, fmt.Errorf("leave: %w", err)
	}
	if onBroker != nil {
		if l.broker, err = o.open(OnBroker, onBroker); err != nil {
			return Left{}, fmt.Errorf("leave: %w", err)
		}
	} else if !o.Force {
		return Left{}, errors.New("leave: no broker: want the kubeconfig of its admin (--broker-kubeconfig), or --force if it is gone")
	}
	for _, step := range []func(context.Context) error{
		l.look, l.announce, l.onBroker((*departure).withdraw), l.removeImports, l.onBroker((*departure).removeRest), l.removeMembership,
	} {
		if err := step(ctx); err != nil {
			return Left{}, fmt.Errorf("leave: %w", err)
		}
	}
	return l.result, nil
}

// leaving is the state of one call of Leave.
type leaving struct {
	o              LeaveOptions
	broker, member *side // broker is nil where there is none, or none that answers

	local     local
	departure departure
	result    Left
}

// look finds out who leaves, and refuses to touch what is somebody else's.
func (l *leaving) look(ctx context.Context) (err error) {
	if l.local, err = l.member.local(ctx); err != nil {
		return err
	}
	if l.local.membership != nil && !marked(l.local.membership) {
		return fmt.Errorf("this cluster is a member of clusterset %q by another hand: want that to take it out", l.local.clusterSet())
	}
	l.result.ClusterID = l.local.clusterID()
	if err := l.lookAtBroker(ctx); err != nil {
		if l.broker != nil && !l.o.Force {
			return err
		}
		l.broker = nil
		l.warn("nothing was done on the broker (%v)", err)
	}
	if l.broker == nil {
		l.warn("what the broker has for this member is left: run \"clusterset broker remove %s\" if it comes back",
			cmp.Or(l.result.ClusterID, "ID"))
	}
	return nil
}

func (l *leaving) warn(format string, args ...any) {
	l.result.Warnings = append(l.result.Warnings, fmt.Sprintf(format, args...))
}

func (l *leaving) lookAtBroker(ctx context.Context) error {
	if l.broker == nil {
		return nil
	}
	uid, err := l.broker.kubeSystem(ctx)
	if err != nil {
		return fmt.Errorf("%w; with --force only the member is cleaned up", err)
	}
	if was := l.local.brokerUID(); was != "" && was != uid {
		return fmt.Errorf("this cluster is a member at the broker with kube-system UID %s, not at this one, %s: want that, or --force if it is gone", was, uid)
	}
	members, err := list[v1alpha1.Member](ctx, l.broker, v1alpha1.Members, "", "")
	if err != nil {
		return err
	}
	for i := range members {
		m := &members[i]
		if m.Spec.KubeSystemUID == string(l.local.uid) {
			l.result.ClusterID, l.result.Namespace = m.Name, m.Spec.Namespace
			l.departure = departure{side: l.broker, member: m, admission: Admission{ClusterID: m.Name, Spec: m.Spec}}
			return nil
		}
	}
	// Nobody has the id, or another cluster: then there is nothing of ours. Without a Member what is left can be only
	// what somebody deleted it from under.
	if id := l.local.clusterID(); id != "" && !slices.ContainsFunc(members, func(m v1alpha1.Member) bool { return m.Name == id }) {
		l.result.Namespace = l.namespace(ctx, id)
		spec := v1alpha1.MemberSpec{Namespace: l.result.Namespace, KubeSystemUID: string(l.local.uid)}
		l.departure = departure{side: l.broker, admission: Admission{ClusterID: id, Spec: spec}}
	}
	return nil
}

// namespace guesses the broker namespace of a cluster without a Member.
func (l *leaving) namespace(ctx context.Context, id string) string {
	if secret, err := l.member.secret(ctx, l.o.Namespace); err == nil && secret != nil {
		_, namespace, err := credentialConfig(secret)
		if prefix, ok := strings.CutSuffix(namespace, broker.NamespaceName("", id)); err == nil && ok && prefix != "" {
			return namespace
		}
	}
	return broker.NamespaceName(cmp.Or(l.o.Prefix, DefaultPrefix), id)
}

// announce stops the controller from writing.
func (l *leaving) announce(ctx context.Context) error {
	if l.local.membership == nil {
		return nil
	}
	o := membershipProperty(l.local, l.local.clusterSet())
	o.SetAnnotations(map[string]string{
		broker.AnnotationBrokerUID: string(l.local.brokerUID()), broker.AnnotationLeaving: "true",
	})
	_, err := l.member.apply(ctx, o, "leaving")
	return err
}

// onBroker returns a step that does nothing where there is nothing on the broker.
func (l *leaving) onBroker(step func(*departure, context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if l.broker == nil || l.departure.side == nil {
			return nil
		}
		return step(&l.departure, ctx)
	}
}

// removeImports removes what an importer made, in its order: slices, derived Services, imports. What members of a broker in
// this cluster keep there has the same mark.
func (l *leaving) removeImports(ctx context.Context) error {
	brokers, err := l.brokerNamespaces(ctx)
	if err != nil {
		return err
	}
	own := metav1.FormatLabelSelector(metav1.SetAsLabelSelector(map[string]string{broker.LabelManagedBy: broker.ManagedBy}))
	for _, x := range []struct {
		resource schema.GroupVersionResource
		selector string
		ours     func(*unstructured.Unstructured) bool
	}{
		{discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), discoveryv1.LabelManagedBy + "=" + broker.ManagedBy, isImported},
		{corev1.SchemeGroupVersion.WithResource("services"), own, isImported},
		{mcsv1beta1.SchemeGroupVersion.WithResource("serviceimports"), own, func(*unstructured.Unstructured) bool { return true }},
	} {
		all, err := l.member.listObjects(ctx, x.resource, x.selector)
		if err != nil {
			return err
		}
		for i := range all {
			if brokers[all[i].GetNamespace()] {
				continue
			}
			if !x.ours(&all[i]) {
				l.warn("%s has our mark but no import as its owner: it was left alone", describe(&all[i]))
				continue
			}
			if err := l.member.delete(ctx, &all[i], ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// brokerNamespaces returns the namespaces of the member that are broker namespaces, as they are where it is its own broker.
func (l *leaving) brokerNamespaces(ctx context.Context) (map[string]bool, error) {
	all, err := l.member.listObjects(ctx, corev1.SchemeGroupVersion.WithResource("namespaces"), broker.LabelClusterID)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool, len(all))
	for i := range all {
		names[all[i].GetName()] = true
	}
	return names, nil
}

// isImported reports whether an import owns the object, as it does everything that an importer makes beside it.
func isImported(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.Kind == mcsv1beta1.ServiceImportKindName && strings.HasPrefix(r.APIVersion, mcsGroup+"/")
	})
}

// listObjects is like list, and leaves the objects as they are.
func (s *side) listObjects(ctx context.Context, from schema.GroupVersionResource, selector string) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	options := metav1.ListOptions{LabelSelector: selector, Limit: 500}
	for {
		page, err := s.client.Resource(from).List(ctx, options)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: list %s: %w", s.name, from.Resource, err)
		}
		all = append(all, page.Items...)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return all, nil
		}
	}
}

// removeMembership is the last step: from here on the cluster is no member.
func (l *leaving) removeMembership(ctx context.Context) error {
	if _, err := l.member.remove(ctx, toUnstructured(newSecret(l.o.Namespace))); err != nil {
		return err
	}
	_, err := l.member.remove(ctx, membershipProperty(l.local, l.local.clusterSet()))
	return err
}

// Remove takes out a member whose cluster is gone: the broker's part of [Leave]. A member whose heartbeat is younger than a
// minute is refused, unless forced, and so is an id of which the broker has nothing.
func Remove(ctx context.Context, onBroker *rest.Config, clusterID string, o LeaveOptions) (Left, error) {
	s, err := o.open(OnBroker, onBroker)
	if err != nil {
		return Left{}, fmt.Errorf("remove: %w", err)
	}
	d, err := s.departure(ctx, clusterID, o)
	for _, step := range []func(*departure, context.Context) error{(*departure).withdraw, (*departure).removeRest} {
		if err == nil {
			err = step(&d, ctx)
		}
	}
	if err != nil {
		return Left{}, fmt.Errorf("remove: %w", err)
	}
	return Left{ClusterID: clusterID, Namespace: d.admission.Spec.Namespace}, nil
}

// departure finds what the broker has for a member that cannot say so itself.
func (s *side) departure(ctx context.Context, clusterID string, o LeaveOptions) (departure, error) {
	if !broker.IsClusterID(clusterID) {
		return departure{}, fmt.Errorf("cluster id %q: want one RFC 1123 label, or two joined by a dot, of at most 63 octets", clusterID)
	}
	member := (Admission{ClusterID: clusterID}).member()
	there, err := s.read(ctx, member)
	if err != nil {
		return departure{}, err
	}
	d := departure{side: s, admission: Admission{ClusterID: clusterID, Spec: member.Spec}}
	if !there {
		d.admission.Spec.Namespace = broker.NamespaceName(cmp.Or(o.Prefix, DefaultPrefix), clusterID)
		return d, d.refuseNobody(ctx)
	}
	d.member = member
	now := time.Now
	if o.Now != nil {
		now = o.Now
	}
	renewed, err := s.heartbeat(ctx, member.Spec.Namespace)
	if err == nil && renewed != nil && now().Sub(*renewed) < time.Minute && !o.Force {
		err = fmt.Errorf("member %q renewed its heartbeat %s ago: run \"clusterset leave\" with that cluster, or use --force",
			clusterID, max(now().Sub(*renewed), 0).Round(time.Second))
	}
	return d, err
}

// refuseNobody says that there is no such member, unless the broker has anything of one whose Member is gone.
func (d *departure) refuseNobody(ctx context.Context) error {
	for _, o := range d.admission.Objects()[1:] {
		if left, err := d.side.find(ctx, toUnstructured(o)); err != nil || left != nil && marked(left) {
			return err
		}
	}
	members, err := list[v1alpha1.Member](ctx, d.side, v1alpha1.Members, "", "")
	if err != nil {
		return err
	}
	there := make([]string, len(members))
	for i := range members {
		there[i] = members[i].Name
	}
	if slices.Sort(there); len(there) == 0 {
		return fmt.Errorf("there is no member %q, nor any other", d.admission.ClusterID)
	}
	return fmt.Errorf("there is no member %q: want one of %s", d.admission.ClusterID, strings.Join(there, ", "))
}

// heartbeat returns when, by its own clock, a member renewed its heartbeat; nil if it never did.
func (s *side) heartbeat(ctx context.Context, namespace string) (*time.Time, error) {
	lease := &coordinationv1.Lease{
		TypeMeta: kind("coordination.k8s.io/v1", "Lease"), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: broker.HeartbeatName},
	}
	if there, err := s.read(ctx, lease); err != nil || !there || lease.Spec.RenewTime == nil {
		return nil, err
	}
	return &lease.Spec.RenewTime.Time, nil
}

// A departure is what the broker has for a member that goes.
type departure struct {
	side      *side
	member    *v1alpha1.Member // nil if somebody deleted it
	admission Admission
}

// withdraw removes what the other members see of this one.
func (d *departure) withdraw(ctx context.Context) error {
	if ours, err := d.ownsNamespace(ctx); err != nil || !ours {
		return err
	}
	for _, resource := range []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind("ExportedService"),
		discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
		mcsv1beta1.SchemeGroupVersion.WithKind(mcsv1beta1.ServiceImportKindName),
		coordinationv1.SchemeGroupVersion.WithKind("Lease"),
	} {
		if err := d.side.deleteAll(ctx, object(resource, d.admission.Spec.Namespace, "")); err != nil {
			return err
		}
	}
	return nil
}

// ownsNamespace reports whether the broker namespace is there and that of the member.
func (d *departure) ownsNamespace(ctx context.Context) (bool, error) {
	namespace, err := d.side.find(ctx, toUnstructured(d.admission.namespace()))
	return namespace != nil && namespace.GetLabels()[broker.LabelClusterID] == d.admission.ClusterID && marked(namespace), err
}

// deleteAll deletes all objects of a kind in a namespace, at once.
func (s *side) deleteAll(ctx context.Context, of *unstructured.Unstructured) error {
	all, err := s.resource(of).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || err == nil && len(all.Items) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: list %s: %w", s.name, describe(of), err)
	}
	var options metav1.DeleteOptions
	if s.writing.DryRun == DryRunServer {
		options.DryRun = []string{metav1.DryRunAll}
	}
	if s.writing.DryRun != DryRunClient {
		if err := s.resource(of).DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("%s: delete all %s: %w", s.name, describe(of), err)
		}
	}
	s.report(of, Deleted, fmt.Sprintf("%d", len(all.Items)))
	return nil
}

// removeRest removes what a join made, the last first: no right outlives its bound, and the id is free when all is gone.
func (d *departure) removeRest(ctx context.Context) error {
	for _, o := range slices.Backward(d.admission.Objects()) {
		o := toUnstructured(o)
		if o.GetKind() == "Member" {
			return d.removeMember(ctx)
		}
		there, err := d.side.remove(ctx, o)
		if err != nil {
			return err
		}
		if there && o.GetKind() == "Namespace" && d.side.writing.DryRun == DryRunNone {
			err := await(ctx, "the broker has emptied "+describe(o), func() (bool, error) {
				left, err := d.side.find(ctx, o)
				return left == nil, err
			})
			if err != nil {
				return fmt.Errorf("%s: %w; does its kube-controller-manager run?", d.side.name, err)
			}
		}
	}
	return nil
}

// removeMember gives the id back, if it is still that of this cluster.
func (d *departure) removeMember(ctx context.Context) error {
	if d.member == nil {
		d.side.report(toUnstructured(d.admission.member()), Unchanged, "not there")
		return nil
	}
	o := toUnstructured(d.admission.member())
	o.SetUID(d.member.UID)
	return d.side.delete(ctx, o, "")
}
