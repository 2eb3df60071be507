package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// Leave takes a cluster out of its clusterset (docs/spec/controller.md 7). The package comment has the order of its
// writes. The cluster keeps its id and its ServiceExports. After an interruption, a second call does the rest.
//
// With Force, onBroker may be nil.
func Leave(ctx context.Context, onBroker, onMember *rest.Config, o LeaveOptions) (LeaveResult, error) {
	l := &leaver{options: o}
	var err error
	if l.member, err = write.Open(read.RoleMember, onMember, o.Options); err != nil {
		return LeaveResult{}, fmt.Errorf("leave: %w", err)
	}
	if onBroker != nil {
		if l.broker, err = write.Open(read.RoleBroker, onBroker, o.Options); err != nil {
			return LeaveResult{}, fmt.Errorf("leave: %w", err)
		}
	} else if !o.Force {
		return LeaveResult{}, errors.New(
			"leave: no broker: want the kubeconfig of its administrator (--broker-kubeconfig), " +
				"or --force if the broker no longer exists")
	}
	for _, step := range []func(context.Context) error{
		l.readObjects, l.checkOriginal, l.announceLeave, l.markRemoved, l.withdrawExports, l.removeImports, l.removeAdmission,
		l.removeMembership,
	} {
		if err := step(ctx); err != nil {
			return LeaveResult{}, fmt.Errorf("leave: %w", err)
		}
	}
	return l.result, nil
}

// A leaver is one call of [Leave]. Its steps run in the order of their declaration.
type leaver struct {
	options LeaveOptions
	member  *write.Writer
	broker  *write.Writer // nil if there is no broker, or if with Force it does not answer

	local   read.Local // by read
	removal *removal   // by read; nil if there is nothing to remove on the broker
	result  LeaveResult
}

func (l *leaver) warn(format string, args ...any) {
	l.result.Warnings = append(l.result.Warnings, fmt.Sprintf(format, args...))
}

// readObjects reads the objects to remove, or returns an error if it was not [Join] that made the cluster a member.
func (l *leaver) readObjects(ctx context.Context) (err error) {
	if l.local, err = l.member.Local(ctx); err != nil {
		return err
	}
	if l.local.Membership != nil && !read.IsManaged(l.local.Membership) {
		return fmt.Errorf(
			"this cluster is a member of clusterset %q, which is not managed by clusterset: leave it with the tool that joined it",
			l.local.ClusterSet())
	}
	l.result.ClusterID = l.local.ClusterID()
	if l.broker != nil {
		if err := l.readBroker(ctx); err != nil && !l.options.Force {
			return err
		} else if err != nil {
			l.broker = nil
			l.warn("nothing was removed from the broker (%v)", err)
		}
	}
	if id := l.result.ClusterID; l.broker == nil && id != "" {
		l.warn("the broker still has the objects of this member: run \"clusterset broker remove %s\" when the broker is back", id)
	}
	return nil
}

func (l *leaver) readBroker(ctx context.Context) error {
	uid, err := l.broker.KubeSystem(ctx)
	if err != nil {
		return fmt.Errorf("%w; --force cleans up only the member", err)
	}
	if joined := l.local.BrokerUID(); joined != "" && joined != uid {
		return fmt.Errorf(
			"this cluster joined the broker with kube-system UID %s, and this broker has UID %s: want the broker that it joined, "+
				"or --force if that no longer exists", joined, uid)
	}
	objects, err := l.broker.ListObjects(ctx, v1alpha1.Members, "", "")
	if err != nil {
		return err
	}
	members := make([]v1alpha1.Member, len(objects))
	for i, o := range objects {
		members[i] = memberFrom(o)
		m := &members[i]
		if m.Spec.KubeSystemUID == string(l.local.UID) {
			l.result.ClusterID, l.result.Namespace = m.Name, m.Spec.Namespace
			l.removal = &removal{broker: l.broker, member: m, admission: Admission{ClusterID: m.Name, Spec: m.Spec},
				now: l.options.now(), leaving: true}
			return nil
		}
	}
	// No Member has the kube-system UID of this cluster. If another cluster has the id, everything with that id is the
	// other's. If no cluster has it, somebody may have deleted the Member alone.
	if id := l.local.ClusterID(); id != "" && !slices.ContainsFunc(members,
		func(m v1alpha1.Member) bool { return m.Name == id }) {
		l.result.Namespace = l.guessNamespace(ctx, id)
		spec := v1alpha1.MemberSpec{Namespace: l.result.Namespace, KubeSystemUID: string(l.local.UID)}
		l.removal = &removal{broker: l.broker, admission: Admission{ClusterID: id, Spec: spec}, now: l.options.now(),
			leaving: true}
	}
	return nil
}

// guessNamespace returns the broker namespace of a cluster without a Member: that of its credential, or that of the
// prefix.
func (l *leaver) guessNamespace(ctx context.Context, id string) string {
	if secret, err := l.member.Secret(ctx, l.options.Namespace); err == nil && secret != nil {
		_, namespace, err := read.CredentialConfig(secret)
		if prefix, ok := strings.CutSuffix(namespace, broker.NamespaceName("", id)); err == nil && ok && prefix != "" {
			return namespace
		}
	}
	return broker.NamespaceName(cmp.Or(l.options.Prefix, DefaultPrefix), id)
}

// checkOriginal fails if this cluster may be a copy of the member, which would be removed in its place.
func (l *leaver) checkOriginal(ctx context.Context) error {
	if l.removal == nil || l.options.TakeOver {
		return nil
	}
	check := &originalCheck{member: l.member, broker: l.broker, namespace: l.options.Namespace,
		brokerNamespace: l.removal.admission.Spec.Namespace}
	return check.run(ctx, false)
}

// announceLeave stops the controller of the member from writing.
func (l *leaver) announceLeave(ctx context.Context) error {
	if l.local.Membership == nil {
		return nil
	}
	_, err := l.member.Apply(ctx, l.local.MembershipProperty(l.local.ClusterSet(), map[string]string{
		broker.AnnotationBrokerUID: string(l.local.BrokerUID()), broker.AnnotationLeaving: "true",
	}), "leaving")
	return err
}

func (l *leaver) markRemoved(ctx context.Context) error {
	if l.removal == nil {
		return nil
	}
	return l.removal.markRemoved(ctx)
}

func (l *leaver) withdrawExports(ctx context.Context) error {
	if l.removal == nil {
		return nil
	}
	return l.removal.withdrawExports(ctx)
}

func (l *leaver) removeImports(ctx context.Context) error {
	foreign, err := removeImports(ctx, l.member.Cluster, func(ctx context.Context, o *unstructured.Unstructured) error {
		err := l.member.TryDelete(ctx, o)
		if errors.Is(err, write.ErrNoNamespace) {
			l.warn("%s was not deleted: %v; \"clusterset uninstall\" tries again without the policies of clusterset",
				read.Describe(o), write.ErrNoNamespace)
			return nil
		}
		return err
	})
	for _, o := range foreign {
		l.warn("%s has our label, and is not of a ServiceImport: it was not deleted", read.Describe(o))
	}
	return err
}

func (l *leaver) removeAdmission(ctx context.Context) error {
	if l.removal == nil {
		return nil
	}
	return errors.Join(l.removal.removeAdmission(ctx), l.removal.withdrawLate(ctx))
}

// removeMembership is the last step: now the cluster is not a member.
func (l *leaver) removeMembership(ctx context.Context) error {
	if _, err := l.member.Remove(ctx, toUnstructured(newSecret(l.options.Namespace))); err != nil {
		return err
	}
	property := l.local.MembershipProperty(l.local.ClusterSet(), nil)
	if l.options.DryRun == write.DryRunServer && l.local.Membership != nil && !l.local.Leaving() {
		// The policy allows this after announce, which happened only in this dry run.
		l.member.Report(property, write.Deleted, "")
		return nil
	}
	_, err := l.member.Remove(ctx, property)
	return err
}
