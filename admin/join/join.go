package join

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/deploy"
)

// Join makes a cluster a member (docs/spec/controller.md 7). The package comment has the order of its writes. All
// checks come before the first write. After an interruption, a second call does the rest; on a member it applies
// changed options, or writes nothing. With an error, the result has the warnings of before it.
func Join(ctx context.Context, onBroker, onMember *rest.Config, o Options) (Result, error) {
	j := &joiner{brokerConfig: onBroker, memberConfig: onMember}
	j.input.options = o
	var err error
	if j.broker, err = write.Open(read.RoleBroker, onBroker, o.Options); err != nil {
		return Result{}, fmt.Errorf("join: %w", err)
	}
	if j.member, err = write.Open(read.RoleMember, onMember, o.Options); err != nil {
		return Result{}, fmt.Errorf("join: %w", err)
	}
	for _, step := range []func(context.Context) error{
		j.readInput, j.prepareComponents, j.decideAdmission, j.checkOriginal, j.readRegion, j.reserveID, j.forgetRemoval,
		j.writeAdmission, j.recordAudiences, j.prepareMember, j.noteHeartbeat, j.writeRegion, j.writeCredential,
		j.writeMembership, j.installComponents,
	} {
		if err := step(ctx); err != nil {
			return j.result, fmt.Errorf("join: %w", withGrant(err))
		}
	}
	return j.result, nil
}

// A joiner is one call of [Join]. Its steps run in the order of their declaration; each fills the fields that later
// steps use.
type joiner struct {
	broker, member *write.Writer
	brokerConfig   *rest.Config
	memberConfig   *rest.Config

	outdated     string                // by read: what to do about an old broker
	input        joinInput             // by read and decide
	install      *installer            // by prepareComponents
	admission    Admission             // by decide; its audiences by recordAudiences
	newNamespace bool                  // by decide: the broker namespace did not exist
	former       *removal              // by decide: the rest of a removed member of this id, or nil
	kubeconfig   []byte                // by decide
	original     originalCheck         // by checkOriginal
	account      corev1.ServiceAccount // by admit
	result       Result
}

// readInput reads what all decisions depend on.
func (j *joiner) readInput(ctx context.Context) error {
	state, err := j.broker.ReadSet(ctx, read.BrokerSet())
	if err != nil {
		return err
	}
	if len(state.Missing) > 0 {
		return fmt.Errorf("the broker is not initialised: %s does not exist; run \"clusterset broker init\" first",
			read.Describe(state.Missing[0]))
	}
	if err := state.CheckNotNewer(); err != nil {
		return err
	}
	j.outdated = state.Outdated()
	in := &j.input
	definition := state.CRD(v1alpha1.Members)
	if in.clustersetVIP, err = read.VIPOf(definition); err != nil {
		return err
	}
	if in.merge, err = read.MergeOf(definition); err != nil {
		return err
	}
	if in.brokerUID, err = j.broker.KubeSystem(ctx); err != nil {
		return err
	}
	if in.local, err = j.member.Local(ctx); err != nil {
		return err
	}
	if len(in.local.InvalidCRDs) > 0 {
		return fmt.Errorf("member: %w", in.local.InvalidCRDs[0])
	}
	if in.noted, err = j.readNoted(ctx); err != nil {
		return err
	}
	in.members, err = read.List[v1alpha1.Member](ctx, j.broker.Cluster, v1alpha1.Members, "", "")
	return err
}

// readNoted reads the controller's note of its clusterset.
func (j *joiner) readNoted(ctx context.Context) (wellknown.Noted, error) {
	note, err := j.member.Lease(ctx, j.input.options.Namespace, wellknown.MembersLease)
	if err != nil || note == nil {
		return wellknown.Noted{Broker: j.input.local.BrokerUID()}, err
	}
	return wellknown.ParseNoted(note.Annotations[wellknown.AnnotationMembers], j.input.local.BrokerUID()), nil
}

// prepareComponents decides the installation. It comes before the decision about networks, which depends on the exports
// of the controller.
func (j *joiner) prepareComponents(ctx context.Context) error {
	o := &j.input.options
	if o.KeepComponents {
		var err error
		if o.Components, err = chosenComponents(ctx, j.member.Cluster, o.Namespace); err != nil {
			return err
		}
	}
	j.install = newInstaller(j.member, j.memberConfig, *o)
	if err := j.install.readDeployed(ctx); err != nil {
		return err
	}
	values := j.install.values.completedBy(Values{ClusterDomain: "cluster.local", Endpoints: broker.PodIP})
	if err := j.input.chooseVIP(values.VIP); err != nil {
		return err
	}
	values.VIP = j.input.vip.String()
	if j.input.merge != merge.KEP {
		values.ControllerOptions["merge"] = string(j.input.merge)
	}
	if err := j.install.prepareObjects(ctx, values); err != nil {
		// Both are missing at a first try.
		if _, noID := j.input.clusterID(); errors.Is(err, errNoImage) && noID != nil {
			err = fmt.Errorf("%w; %w", noID, err)
		}
		return err
	}
	if j.install.mode != "" {
		o.Endpoints = j.install.values.Endpoints
	}
	return nil
}

// installComponents comes last: now the components find a credential, and a membership.
func (j *joiner) installComponents(ctx context.Context) error {
	if err := j.install.writeObjects(ctx); err != nil {
		return err
	}
	if err := j.install.awaitRollout(ctx); err != nil {
		return err
	}
	if err := j.install.awaitController(ctx, j.broker.Cluster, j.admission.Spec.Namespace); err != nil {
		return err
	}
	state, warning, err := j.install.wireDNS(ctx)
	j.result.DNS = state
	if warning != "" {
		j.result.Warnings = append(j.result.Warnings, warning)
	}
	return err
}

// decideAdmission computes the admission of the cluster, or returns an error if it cannot join.
func (j *joiner) decideAdmission(ctx context.Context) error {
	in := &j.input
	a, err := in.admission()
	if err != nil {
		return err
	}
	if err := j.readNetworks(ctx, a.ClusterID); err != nil {
		return err
	}
	if err := in.admitNetworks(&a); err != nil {
		return err
	}
	var host string
	j.kubeconfig, host, err = memberKubeconfig(j.brokerConfig, in.options.BrokerServer, a.Spec.Namespace)
	if err != nil {
		return err
	}
	if err := j.readNamespace(ctx, &a); err != nil {
		return err
	}
	if a.Quota, err = j.quota(ctx, a); err != nil {
		return err
	}
	a.Stamp = in.stamp(a)
	j.admission = a
	j.result = Result{
		ClusterID: a.ClusterID, ClusterSet: a.ClusterSet, Namespace: a.Spec.Namespace, Components: in.options.Components,
		PodCIDRs: a.Spec.PodCIDRs, ServiceCIDRs: a.Spec.ServiceCIDRs, LoadBalancerCIDRs: a.Spec.LoadBalancerCIDRs,
		VIPCIDRs: a.Spec.VIPCIDRs, VIP: in.vip.String(), Merge: string(in.merge), Networks: in.networkStates(),
		Warnings: slices.Concat(in.warnings(a), in.vipWarnings(a.Spec)),
	}
	j.result.Warnings = append(j.result.Warnings, slices.Concat(j.member.Skipped, j.broker.Skipped)...)
	if j.outdated != "" {
		j.result.Warnings = append(j.result.Warnings, j.outdated)
	}
	if host == "localhost" || net.ParseIP(host).IsLoopback() {
		j.result.Warnings = append(j.result.Warnings,
			"the broker has a loopback address, which only programs on its own machine reach: join again with --broker-server")
	}
	return nil
}

// checkOriginal fails if this cluster may be a copy of the member.
func (j *joiner) checkOriginal(ctx context.Context) error {
	j.original = originalCheck{
		member: j.member, broker: j.broker, namespace: j.input.options.Namespace,
		brokerNamespace: j.admission.Spec.Namespace, takeOver: j.input.options.TakeOver,
	}
	return j.original.run(ctx, j.newNamespace)
}

// noteHeartbeat lets the controller go on at once. After a takeover, heartbeats of the other cluster may still arrive
// for a while.
func (j *joiner) noteHeartbeat(ctx context.Context) error {
	var until time.Time
	if o := j.original; o.unnoted != nil {
		until = o.unnoted.RenewTime.Time
	} else if !o.copied {
		return nil
	}
	if j.takesOver() {
		until = slices.MaxFunc([]time.Time{until, j.input.options.Now()}, time.Time.Compare).Add(time.Minute)
	}
	return j.original.noteHeartbeats(ctx, until)
}

// takesOver reports whether the account at the broker is replaced.
func (j *joiner) takesOver() bool { return j.input.options.TakeOver && !j.newNamespace }

// readRegion decides on the region of the cluster.
func (j *joiner) readRegion(ctx context.Context) (err error) {
	regions, unread := regionsOfNodes(ctx, j.member.Cluster)
	j.result.Region, j.result.RegionOfNodes, err = decideRegion(j.input.options.Region, j.input.local.Region, regions,
		unread)
	return err
}

// readNamespace sets the bounds of the member's tokens, and the annotations of earlier joins. An unmarked namespace of
// a cluster that left, or sends no heartbeat, may come from a backup of the broker: Joined then ends the marks of the
// others.
func (j *joiner) readNamespace(ctx context.Context, a *Admission) error {
	namespace, err := j.broker.Find(ctx, toUnstructured(a.namespace()))
	if err != nil {
		return err
	}
	a.Grant.Life = j.input.options.CredentialLife
	if namespace != nil && read.IsMarked(namespace) {
		j.former, namespace = &removal{broker: j.broker, admission: *a}, nil
	}
	if j.newNamespace = namespace == nil; j.newNamespace {
		return nil
	}
	a.Grant.Audiences = broker.GrantOf(namespace.GetAnnotations()).Audiences
	a.Joined = namespace.GetAnnotations()[broker.AnnotationJoined]
	heartbeat, err := j.broker.Heartbeat(ctx, a.Spec.Namespace)
	now := j.input.options.Now()
	if j.input.local.Membership == nil || heartbeat != nil &&
		broker.HeartbeatExpired(heartbeat, time.Minute, now) {
		a.Joined = now.UTC().Format(time.RFC3339Nano)
	}
	return err
}

// quota returns the limits of the member. Higher limits than the defaults stay.
func (j *joiner) quota(ctx context.Context, a Admission) (Quota, error) {
	kind := corev1.SchemeGroupVersion.WithKind("ResourceQuota")
	existing, err := read.As[corev1.ResourceQuota](ctx, j.broker.Cluster, kind, a.Spec.Namespace, "member")
	return a.Quota.completedBy(existing), err
}

// recordAudiences lets the member request tokens for the audiences of the broker's API server and no others. Only a
// token request tells them, and it needs the service account; so the namespace is written once more.
func (j *joiner) recordAudiences(ctx context.Context) error {
	if j.input.options.DryRun != write.DryRunNone {
		return nil
	}
	request, err := requestToken(ctx, j.broker.Cluster, &j.account, minCredentialLife)
	if err != nil {
		return err
	}
	recorded := toUnstructured(j.admission.namespace())
	j.admission.Grant.Audiences = request.Spec.Audiences
	namespace := toUnstructured(j.admission.namespace())
	if reflect.DeepEqual(namespace, recorded) {
		return nil
	}
	if _, err := j.broker.Send(ctx, namespace, nil); err != nil {
		return fmt.Errorf("%s: apply %s: %w", j.broker.Role, read.Describe(namespace), err)
	}
	if !j.newNamespace {
		j.broker.Report(namespace, write.Updated, "audiences of tokens")
	}
	return nil
}

// readNetworks completes the input with the networks of the cluster, and those that addresses are outside of.
func (j *joiner) readNetworks(ctx context.Context, id string) error {
	in := &j.input
	var err error
	if in.found, err = j.member.FindNetworks(ctx); err != nil {
		return err
	}
	if err := in.declareNetworks(id); err != nil {
		return err
	}
	in.podsOutside, in.podsUnread = j.member.PodsOutside(ctx, slices.Concat(in.pods, in.services))
	j.sayNetworks()
	return nil
}

// sayNetworks reports, before the first write, which networks will be declared and which addresses are outside of them.
func (j *joiner) sayNetworks() {
	say := j.input.options.Progress
	if say == nil {
		return
	}
	for _, n := range j.input.networkStates() {
		say(fmt.Sprintf("network of %s: %s (%s)", n.Of, n.CIDR, n.Source))
	}
	if j.input.vipFromClusterset {
		say(fmt.Sprintf("vip %s, as the clusterset has it: --vip chooses another one", j.input.vip))
	}
	for _, text := range j.input.outsideWarnings() {
		say(text)
	}
}

// reserveID writes the Member, which reserves the cluster id and the VIP CIDRs. Another cluster can join at the same
// moment, so the members are read and checked once more.
func (j *joiner) reserveID(ctx context.Context) error {
	_, err := j.broker.Apply(ctx, toUnstructured(j.admission.member()), "")
	if err != nil && !apierrors.IsInvalid(err) {
		return err
	}
	if err == nil && j.input.options.DryRun != write.DryRunNone {
		return nil
	}
	members, listErr := read.List[v1alpha1.Member](ctx, j.broker.Cluster, v1alpha1.Members, "", "")
	if listErr != nil {
		return listErr
	}
	j.input.members = members
	// The kube-system UID of a Member cannot change: that the apply was invalid usually means that another cluster has the
	// id.
	if taken := j.input.checkID(j.admission.ClusterID); taken != nil {
		return taken
	}
	if err != nil {
		return err
	}
	owned := prefixStrings(ownVIPCIDRs(members, j.admission.ClusterID))
	for _, cidr := range j.admission.Spec.VIPCIDRs {
		if !slices.Contains(owned, cidr) {
			return fmt.Errorf("vip CIDR %s: another cluster has just taken it; run this again", cidr)
		}
	}
	return nil
}

// forgetRemoval deletes the namespace that a removal has left, with its account: that may be of another cluster, and it
// may have tokens that are still valid.
func (j *joiner) forgetRemoval(ctx context.Context) error {
	if j.former == nil {
		return nil
	}
	namespace := toUnstructured(j.admission.namespace())
	removed, err := j.broker.Remove(ctx, namespace)
	if err != nil || !removed || j.input.options.DryRun != write.DryRunNone {
		return err
	}
	return j.former.waitForNamespace(ctx, namespace)
}

// writeAdmission writes the other objects of the member to the broker.
func (j *joiner) writeAdmission(ctx context.Context) error {
	for _, o := range j.admission.Objects()[1:] {
		o := toUnstructured(o)
		if o.GetKind() == "ServiceAccount" && j.takesOver() {
			if _, err := j.broker.Remove(ctx, o); err != nil { // the tokens of the other cluster end with it
				return err
			}
		}
		after, err := j.broker.Apply(ctx, o, "")
		if err != nil {
			return err
		}
		switch after.GetKind() {
		case "Namespace":
			if after.GetDeletionTimestamp() != nil {
				return fmt.Errorf("broker: %s is being deleted: run this again when it is gone", read.Describe(after))
			}
		case "ServiceAccount":
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(after.Object, &j.account); err != nil {
				return fmt.Errorf("broker: %s: %w", read.Describe(after), err)
			}
		}
	}
	return nil
}

// prepareMember writes what the member needs before the controller can start: CRDs, policies, the namespace of the
// controller, and the cluster id.
func (j *joiner) prepareMember(ctx context.Context) error {
	local := j.input.local
	if err := j.member.InstallCRDs(ctx, read.MemberCRDs(), false); err != nil {
		return err
	}
	if err := j.member.ApplyNewer(ctx, local.Policies()); err != nil {
		return err
	}
	namespace := read.Parse(deploy.Namespace)[0]
	namespace.SetName(j.input.options.Namespace)
	if err := j.member.CreateIfMissing(ctx, namespace); err != nil {
		return err
	}
	id := local.Property(about.ClusterIDName, j.admission.ClusterID)
	return j.writeProperty(ctx, id, local.ID)
}

// writeProperty writes a ClusterProperty. If the one that exists has the value, its field manager stays as it is.
func (j *joiner) writeProperty(ctx context.Context, property, existing *unstructured.Unstructured) error {
	if read.PropertyValue(existing) == read.PropertyValue(property) {
		j.member.Report(property, write.Unchanged, "")
		return nil
	}
	_, err := j.member.Apply(ctx, property, "")
	return err
}

// writeRegion writes the region if one is asked for.
func (j *joiner) writeRegion(ctx context.Context) error {
	if j.result.Region == "" {
		return nil
	}
	return j.writeProperty(ctx, j.input.local.Property(about.RegionName, j.result.Region), j.input.local.Region)
}

func (j *joiner) writeCredential(ctx context.Context) (err error) {
	o := j.input.options
	j.result.CredentialExpires, err = writeCredential(ctx, j.member, j.broker, credential{
		kubeconfig: j.kubeconfig, account: &j.account, namespace: o.Namespace, components: formatComponents(o.Components),
		life: o.CredentialLife, now: o.Now(),
	})
	return err
}

// writeMembership is the last step: now the cluster is a member. It also ends a leave that was interrupted, because the
// annotation of the leave is not applied again.
func (j *joiner) writeMembership(ctx context.Context) error {
	_, err := j.member.Apply(ctx, j.input.local.MembershipProperty(j.result.ClusterSet, map[string]string{
		broker.AnnotationBrokerUID: string(j.input.brokerUID),
	}), "")
	return err
}

// withGrant completes the error about a missing right with who grants it.
func withGrant(err error) error {
	return read.WithGrant(err,
		"deploy/join/member.yaml and deploy/join/broker.yaml grant what join needs in the cluster and on the broker")
}
