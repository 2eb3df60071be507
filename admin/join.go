package admin

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/deploy"
)

// JoinOptions say how a cluster becomes a member. Start from [JoinDefaults].
type JoinOptions struct {
	Writing

	ClusterID  string // "" is that of the cluster; may be [ByKubeSystem]
	ClusterSet string // name of the clusterset; "" is that of the cluster, of the other members, or [DefaultClusterSet]
	Prefix     string // of the broker namespace; "" is that of the Member, or [DefaultPrefix]
	Namespace  string // of the controller in the member

	PodCIDRs, ServiceCIDRs []string // those of the cluster if empty
	VIPCIDR                string   // a network, [VIPAuto] or [VIPNone]; "" keeps what the member has
	VIPPool                string
	Endpoints              string // "service_ip" checks that service CIDRs are distinct

	BrokerServer     string        // URL by which the member reaches the broker; "" is that of the admin
	CredentialLife   time.Duration // that is asked for, 10 minutes at least; the broker may give less
	Quota            Quota
	AllowSameCluster bool // the broker may be the member itself
	ReplaceBroker    bool // the broker may have another kube-system UID than the one that was joined

	Now func() time.Time
}

// JoinDefaults returns options that need no thought.
func JoinDefaults() JoinOptions {
	return JoinOptions{
		Namespace: DefaultNamespace, VIPPool: DefaultVIPPool, Quota: DefaultQuota(), CredentialLife: 24 * time.Hour, Now: time.Now,
	}
}

// Joined is what came of a join.
type Joined struct {
	ClusterID         string    `json:"clusterID"`
	ClusterSet        string    `json:"clusterSet"`
	Namespace         string    `json:"namespace"` // on the broker
	PodCIDRs          []string  `json:"podCIDRs,omitempty"`
	ServiceCIDRs      []string  `json:"serviceCIDRs,omitempty"`
	VIPCIDR           string    `json:"vipCIDR,omitempty"`
	CredentialExpires time.Time `json:"credentialExpires,omitzero"` // zero in a dry run
	Warnings          []string  `json:"warnings,omitempty"`
}

// Join makes a cluster a member (section 7). It is refused before the first write, or not at all. Run again after a crash it
// does the rest; run again on a member it writes nothing, or what the options change.
//
// The Member on the broker comes first, as creating it takes the id, and ClusterProperty clusterset.k8s.io last: it exists
// exactly while the cluster is a member.
func Join(ctx context.Context, onBroker, onMember *rest.Config, o JoinOptions) (Joined, error) {
	j := &joining{o: o}
	var err error
	if j.broker, err = o.open(OnBroker, onBroker); err != nil {
		return Joined{}, fmt.Errorf("join: %w", err)
	}
	if j.member, err = o.open(OnMember, onMember); err != nil {
		return Joined{}, fmt.Errorf("join: %w", err)
	}
	if j.admin = onBroker; o.Now == nil {
		j.o.Now = time.Now
	}
	for _, step := range []func(context.Context) error{
		j.look, j.decide, j.writeMember, j.writeBroker, j.writeLocal, j.writeCredential, j.writeMembership,
	} {
		if err := step(ctx); err != nil {
			return Joined{}, fmt.Errorf("join: %w", err)
		}
	}
	return j.result, nil
}

// joining is the state of one call of Join.
type joining struct {
	o              JoinOptions
	broker, member *side
	admin          *rest.Config

	scene      scene
	nodes      []netip.Prefix // pod CIDRs of the nodes that there are
	admission  Admission
	kubeconfig []byte
	account    corev1.ServiceAccount
	result     Joined
}

// look reads all that the join depends on.
func (j *joining) look(ctx context.Context) (err error) {
	c := &j.scene
	c.o = j.o
	if missing, err := j.broker.initialised(ctx); err != nil || missing != nil {
		if err == nil {
			err = fmt.Errorf("the broker is not initialised: %s is not there; run \"clusterset broker init\" first", describe(missing))
		}
		return err
	}
	if c.broker, err = j.broker.kubeSystem(ctx); err != nil {
		return err
	}
	if c.local, err = j.member.local(ctx); err != nil {
		return err
	}
	if len(c.local.unsound) > 0 {
		return fmt.Errorf("member: %w", c.local.unsound[0])
	}
	c.members, err = list[v1alpha1.Member](ctx, j.broker, v1alpha1.Members, "", "")
	return err
}

// decide finds what the cluster is admitted with, or refuses.
func (j *joining) decide(ctx context.Context) error {
	c := &j.scene
	id, err := c.clusterID()
	for _, refuse := range []func() error{c.refuseBroker, func() error { return c.refuseID(id) }} {
		if err == nil {
			err = refuse()
		}
	}
	if err != nil {
		return err
	}
	clusterSet, err := c.clusterSet(id)
	if err != nil {
		return err
	}
	spec := v1alpha1.MemberSpec{KubeSystemUID: string(c.local.uid)}
	if spec.Namespace, err = c.namespace(id); err != nil {
		return err
	}
	if err := j.findCIDRs(ctx, id); err != nil {
		return err
	}
	if err := c.refuseServiceCIDRs(id); err != nil {
		return err
	}
	if spec.VIPCIDR, err = j.findVIPCIDR(ctx, id); err != nil {
		return err
	}
	spec.PodCIDRs, spec.ServiceCIDRs = texts(c.pods), texts(c.services)
	if j.kubeconfig, err = kubeconfig(j.admin, j.o.BrokerServer, spec.Namespace); err != nil {
		return err
	}
	j.admission = Admission{ClusterID: id, ClusterSet: clusterSet, Spec: spec, Quota: j.o.Quota}
	j.result = Joined{
		ClusterID: id, ClusterSet: clusterSet, Namespace: spec.Namespace,
		PodCIDRs: spec.PodCIDRs, ServiceCIDRs: spec.ServiceCIDRs, VIPCIDR: spec.VIPCIDR,
	}
	j.warn()
	return nil
}

func (j *joining) findCIDRs(ctx context.Context, id string) (err error) {
	var declared v1alpha1.MemberSpec
	if m := j.scene.own(id); m != nil {
		declared = m.Spec
	}
	j.scene.pods, err = cidrs("pod", j.o.PodCIDRs, declared.PodCIDRs, func() (_ []netip.Prefix, err error) {
		j.nodes, err = j.member.podCIDRs(ctx)
		return j.nodes, err
	})
	if err != nil {
		return err
	}
	j.scene.services, err = cidrs("service", j.o.ServiceCIDRs, declared.ServiceCIDRs,
		func() ([]netip.Prefix, error) { return j.member.serviceCIDRs(ctx) })
	return err
}

func (j *joining) findVIPCIDR(ctx context.Context, id string) (_ string, err error) {
	c := &j.scene
	// There may be tens of thousands of records.
	if want := c.vipWanted(id); want != "" && (want != VIPAuto || !holdsVIPCIDR(c.members, id)) {
		if c.records, err = list[v1alpha1.ExportedService](ctx, j.broker, v1alpha1.ExportedServices, "", ""); err != nil {
			return "", err
		}
	}
	return c.vipCIDR(id)
}

// warn tells what an admin should know though nothing is refused.
func (j *joining) warn() {
	warn := func(format string, args ...any) {
		j.result.Warnings = append(j.result.Warnings, fmt.Sprintf(format, args...))
	}
	spec := &j.admission.Spec
	switch {
	case j.o.Endpoints == "service_ip" && len(spec.ServiceCIDRs) == 0:
		warn("no service CIDRs were found: no address of this cluster will be accepted; join again with --service-cidr")
	case j.o.Endpoints != "service_ip" && len(spec.PodCIDRs) == 0:
		warn("no pod CIDRs were found: no address of a pod of this cluster will be accepted; join again with --pod-cidr")
	case j.o.Endpoints != "service_ip" && slices.Equal(j.scene.pods, j.nodes):
		warn("pod CIDRs are those of the nodes there are: join again when nodes with others come, or give the whole network by --pod-cidr")
	}
	if others, member := j.scene.others(j.admission.ClusterID); others != "" && others != j.result.ClusterSet {
		warn("this cluster is in clusterset %q, but member %q of this broker in %q: run \"clusterset leave\" and join again to have one name",
			j.result.ClusterSet, member, others)
	}
	for i := range j.scene.members {
		m := &j.scene.members[i]
		if m.Name == j.admission.ClusterID || j.o.Endpoints == "service_ip" {
			continue
		}
		for _, p := range j.scene.pods {
			if other, ok := overlap(p, claimsOf(m.Spec.PodCIDRs, m.Name)); ok {
				warn("pod CIDR %s overlaps with %s of %s: pods with one address cannot be told apart", p, other.network, other.by)
				break
			}
		}
	}
	if isLoopback(j.kubeconfig) {
		warn("the broker's address is a loopback one, which only programs on its machine reach: give another by --broker-server")
	}
}

// writeMember takes the id and the VIP CIDR.
func (j *joining) writeMember(ctx context.Context) error {
	_, err := j.broker.apply(ctx, toUnstructured(j.admission.member()), "")
	if err != nil && !apierrors.IsInvalid(err) {
		return err
	}
	if err == nil && j.o.DryRun != DryRunNone {
		return nil
	}
	// Somebody may have been faster.
	members, listErr := list[v1alpha1.Member](ctx, j.broker, v1alpha1.Members, "", "")
	if listErr != nil {
		return listErr
	}
	j.scene.members = members
	if taken := j.scene.refuseID(j.admission.ClusterID); taken != nil {
		return taken
	}
	if err == nil && j.admission.Spec.VIPCIDR != "" && !holdsVIPCIDR(members, j.admission.ClusterID) {
		return fmt.Errorf("vip CIDR %s was taken by another cluster at this moment: run this again", j.admission.Spec.VIPCIDR)
	}
	return err
}

// writeBroker writes the rest of what the broker has to have.
func (j *joining) writeBroker(ctx context.Context) error {
	for _, o := range j.admission.Objects()[1:] {
		after, err := j.broker.apply(ctx, toUnstructured(o), "")
		if err != nil {
			return err
		}
		switch after.GetKind() {
		case "Namespace":
			if after.GetDeletionTimestamp() != nil {
				return fmt.Errorf("broker: %s is being deleted: run this again when it is gone", describe(after))
			}
		case "ServiceAccount":
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(after.Object, &j.account); err != nil {
				return fmt.Errorf("broker: %s: %w", describe(after), err)
			}
		}
	}
	return nil
}

// writeLocal writes what the member has to have before it can be one.
func (j *joining) writeLocal(ctx context.Context) error {
	if err := j.member.install(ctx, memberDefinitions(), false); err != nil {
		return err
	}
	policies := deploy.Member
	if j.scene.local.about == "v1alpha1" {
		policies = deploy.MemberV1alpha1()
	}
	if err := j.member.applyAll(ctx, parse(policies)); err != nil {
		return err
	}
	if err := j.member.ensure(ctx, j.controllerNamespace()); err != nil {
		return err
	}
	id := j.scene.local.property(about.ClusterIDName, j.admission.ClusterID)
	if j.scene.local.clusterID() == j.admission.ClusterID {
		j.member.report(id, Unchanged, "") // whoever set it keeps it
		return nil
	}
	_, err := j.member.apply(ctx, id, "")
	return err
}

func (j *joining) controllerNamespace() *unstructured.Unstructured {
	namespace := parse(deploy.Namespace)[0]
	namespace.SetName(j.o.Namespace)
	return namespace
}

func (j *joining) writeCredential(ctx context.Context) (err error) {
	j.result.CredentialExpires, err = j.member.writeCredential(ctx, j.broker, credential{
		kubeconfig: j.kubeconfig, account: &j.account, secret: j.o.Namespace, life: j.o.CredentialLife, now: j.o.Now(),
	})
	return err
}

// writeMembership is the last step: from here on the cluster is a member. It also ends a leave that was begun.
func (j *joining) writeMembership(ctx context.Context) error {
	o := membershipProperty(j.scene.local, j.result.ClusterSet)
	o.SetAnnotations(map[string]string{broker.AnnotationBrokerUID: string(j.scene.broker)})
	_, err := j.member.apply(ctx, o, "")
	return err
}

func membershipProperty(l local, clusterSet string) *unstructured.Unstructured {
	o := l.property(about.ClusterSetName, clusterSet)
	o.SetLabels(map[string]string{broker.LabelManagedBy: broker.ManagedBy})
	return o
}
