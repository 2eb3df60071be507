// Package status reads the state of a clusterset, and lists what is wrong with it. It writes nothing.
package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	apireason "github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/deploy"
)

// Options are the options of [Read]. Start from [Defaults].
type Options struct {
	Namespace string        // of the controller in the member
	TTL       time.Duration // age at which a heartbeat, and the Lease of a leader, has expired
	Now       func() time.Time
	DNS       dns.Options // of the DNS servers to ask
	Slow      *SlowChecks // for a caller that calls again and again; may be nil
}

// Defaults returns the default options.
func Defaults() Options {
	return Options{Namespace: wellknown.ControllerNamespace, TTL: time.Minute, Now: time.Now, DNS: dns.Defaults()}
}

// Read reads the state of a clusterset. One of the two configurations may be nil. Without onBroker, the broker is
// read with the credential of the member. Without onMember, only the broker is read, and conflicts are found by merging
// the records.
//
// An error means that nothing could be read. The state names parts that could not be. Expired heartbeats and
// credentials, a missing leader, exports and imports that are not ready, options that differ from those of the
// clusterset, a broker that is not the one that the cluster joined, and one that rejects the credential of the member
// are problems. Conflicts are warnings.
func Read(ctx context.Context, onBroker, onMember *rest.Config, o Options) (State, error) {
	if o.Slow == nil {
		o.Slow = &SlowChecks{}
	}
	c := &collector{options: o, brokerConfig: onBroker, state: State{
		Members: []MemberState{}, Conflicts: []ServiceState{}, Result: read.NewResult(),
	}}
	var memberErr, brokerErr error
	if onMember != nil {
		memberErr = c.readMember(ctx, onMember)
	}
	if c.brokerConfig != nil {
		brokerErr = c.readBroker(ctx)
	}
	if memberErr == nil && brokerErr == nil {
		memberErr = c.readOutside(ctx)
	}
	if onMember != nil {
		c.readDNS(ctx, onMember)
	}
	evaluation{
		State: &c.state, namespace: o.Namespace, now: o.Now(),
		memberRead: memberErr == nil, brokerRead: c.brokerConfig != nil && brokerErr == nil,
	}.evaluate()
	if c.namespace != "" && apierrors.IsUnauthorized(brokerErr) {
		c.state.Problem("%s", apireason.With("the broker removed this cluster, or rejects its credential: run \"clusterset join\" "+
			"again if it should be a member", apireason.CredentialRejected))
		brokerErr = nil
	}
	if c.state.Cluster == nil && (memberErr != nil || brokerErr != nil) {
		return c.state, fmt.Errorf("status: %w", errors.Join(memberErr, brokerErr))
	}
	for _, err := range []error{memberErr, brokerErr} {
		if err != nil {
			c.state.Unread = append(c.state.Unread, err.Error())
		}
	}
	return c.state, nil
}

// A collector is one call of [Read]: it reads the member first and then the broker, into state.
type collector struct {
	options      Options
	member       *read.Cluster             // nil if only the broker is read
	brokerConfig *rest.Config              // given, or from the credential of the member; nil if there is neither
	namespace    string                    // of the member on the broker, if its own credential is used; else ""
	uid          types.UID                 // of Namespace kube-system of the member; "" if only the broker is read
	imports      importList                // of the member
	chosen       wellknown.NamespaceChoice // of the leader
	state        State
}

func (s *collector) readMember(ctx context.Context, config *rest.Config) error {
	c, err := read.Open(read.RoleMember, config)
	if err != nil {
		return err
	}
	defer func() { s.state.Problems = append(s.state.Problems, c.Skipped...) }()
	local, err := c.Local(ctx)
	if err != nil {
		return err
	}
	s.member, s.uid = c, local.UID
	s.state.Cluster = &ClusterState{
		ClusterID: local.ClusterID(), ClusterSet: local.ClusterSet(), Leaving: local.Leaving(), BrokerUID: local.BrokerUID(),
	}
	for _, err := range local.InvalidCRDs {
		s.state.Cluster.CRDs = append(s.state.Cluster.CRDs, err.Error())
	}
	s.state.Warnings = append(s.state.Warnings, local.OlderCRDs...)
	if local.Membership == nil {
		s.state.Cluster.broker = c.BrokerText(ctx, local.UID)
	} else if err := s.readPolicies(ctx, c, local); err != nil {
		return err
	}
	if err := s.readExports(ctx, c, local.HasExports); err != nil {
		return err
	}
	for _, step := range []func(context.Context, *read.Cluster) error{s.readImports, s.readLeader, s.readCredential} {
		if err := step(ctx, c); err != nil {
			return err
		}
	}
	if local.Membership != nil || s.state.Cluster.CredentialExpires != nil { // a cluster that never joined needs no CRDs
		for _, err := range local.MissingCRDs {
			s.state.Cluster.CRDs = append(s.state.Cluster.CRDs, err.Error())
		}
	}
	return nil
}

// readPolicies warns of policies of the member that another join would change. A newer one stays as it is.
func (s *collector) readPolicies(ctx context.Context, c *read.Cluster, local read.Local) error {
	found, err := c.ReadSet(ctx, local.Policies())
	for _, o := range slices.Concat(found.Missing, found.Changed) {
		s.state.Warn("%s is missing or differs from that of version %d: run \"clusterset join\" again", read.Describe(o),
			deploy.Version)
	}
	if found.Oldest != nil && read.VersionOf(found.Oldest) < deploy.Version {
		s.state.Warn("%s is of version %d, and this program brings version %d: run \"clusterset join\" again",
			read.Describe(found.Oldest), read.VersionOf(found.Oldest), deploy.Version)
	}
	return err
}

func (s *collector) readExports(ctx context.Context, c *read.Cluster, hasKind bool) error {
	if !hasKind {
		s.state.Cluster.Exports.Unread = "the cluster does not have the kind ServiceExport"
		return nil
	}
	exports, err := read.List[mcsv1beta1.ServiceExport](ctx, c, read.ServiceExports, "", "")
	if err != nil {
		return err
	}
	for i := range exports {
		e := &exports[i]
		s.state.Cluster.Exports.add(e)
		conflict := meta.FindStatusCondition(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionConflict))
		if conflict != nil && conflict.Status == metav1.ConditionTrue {
			s.state.Conflicts = append(s.state.Conflicts, ServiceState{e.Namespace, e.Name, conflict.Reason, conflict.Message})
		}
	}
	slices.SortFunc(s.state.Conflicts, ServiceState.compare)
	slices.Sort(s.state.Cluster.Exports.Undeclared)
	slices.SortFunc(s.state.Cluster.Exports.NotReadyExports, ServiceState.compare)
	return nil
}

// readImports reads the imports and their selection. It warns of imports of old Lighthouse versions
// (docs/spec/dns.md 1.7).
func (s *collector) readImports(ctx context.Context, c *read.Cluster) (err error) {
	if s.imports, err = readImports(ctx, c); err != nil {
		return s.withoutRight(err)
	}
	if old := s.imports.old; len(old) > 0 {
		s.state.Warn("ServiceImports that Lighthouse before 0.15 has written: %d, such as %s/%s; DNS does not "+
			"read them as copies of a service: upgrade Lighthouse in all clusters first", len(old), old[0].Namespace, old[0].Name)
	}
	s.state.Cluster.NotReadyImports = s.imports.notReady(s.options.Now())
	s.state.Cluster.Selection, err = readSelection(ctx, c, s.imports.ours)
	return s.withoutRight(err)
}

// withoutRight notes that a right is missing, and lets the command go on.
func (s *collector) withoutRight(err error) error {
	if apierrors.IsForbidden(err) {
		s.state.Unread = append(s.state.Unread, err.Error())
		return nil
	}
	return err
}

// readMissing adds imports that are missing because a foreign ServiceImport has their name, and warns of services that
// are not imported because this cluster lacks their namespace.
func (s *collector) readMissing(ctx context.Context, members []v1alpha1.Member,
	records []v1alpha1.ExportedService) error {
	at := slices.IndexFunc(members, func(m v1alpha1.Member) bool { return s.isThis(&m) })
	if at < 0 {
		return nil
	}
	properties, _ := members[at].Status.ValidProperties()
	m := missingImports{s.member, s.options.Namespace, s.chosen,
		exportersTo(map[string]map[string]string{members[at].Name: properties}, members, records)}
	taken, err := m.foreign(ctx, s.imports.foreign)
	s.state.Cluster.NotReadyImports = append(s.state.Cluster.NotReadyImports, taken...)
	slices.SortFunc(s.state.Cluster.NotReadyImports, ServiceState.compare)
	if err != nil {
		return err
	}
	lacks, err := m.namespaces(ctx)
	if len(lacks) > 0 {
		s.state.Warn("namespaces of services that are exported to this cluster do not exist here: %d, such as %s; create them, or "+
			"run \"clusterset join --create-namespaces\"", len(lacks), lacks[0])
	}
	return s.withoutRight(err)
}

// isThis reports whether m is the Member of the cluster that was read.
func (s *collector) isThis(m *v1alpha1.Member) bool {
	return s.uid != "" && m.Spec.KubeSystemUID == string(s.uid)
}

func (s *collector) readLeader(ctx context.Context, c *read.Cluster) error {
	lease, err := c.Lease(ctx, s.options.Namespace, wellknown.ControllerLease)
	if err != nil || lease == nil {
		return err
	}
	if lease.Spec.HolderIdentity != nil {
		s.state.Cluster.Leader = *lease.Spec.HolderIdentity
	}
	if renewed := lease.Spec.RenewTime; renewed != nil {
		s.state.Cluster.LeaderRenewed = &renewed.Time
		s.state.Cluster.LeaderExpired = s.options.Now().Sub(renewed.Time) >= s.options.TTL
	}
	if s.state.Cluster.Leader != "" && !s.state.Cluster.LeaderExpired {
		s.state.Cluster.Frozen = wellknown.ParseFreezes(lease.Annotations[wellknown.AnnotationFrozen])
		s.chosen = wellknown.ParseNamespaceChoice(lease.Annotations[wellknown.AnnotationNamespaces])
	}
	return nil
}

// readCredential also takes the configuration of the broker from the credential if the caller gave none.
func (s *collector) readCredential(ctx context.Context, c *read.Cluster) error {
	secret, err := c.Secret(ctx, s.options.Namespace)
	if err != nil || secret == nil {
		return err
	}
	token, err := apiserver.ParseToken(string(secret.Data[broker.KeyToken]))
	if err != nil {
		return fmt.Errorf("secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	s.state.Cluster.CredentialExpires = &token.Expires
	if s.brokerConfig == nil {
		s.brokerConfig, s.namespace, err = read.CredentialConfig(secret)
	}
	return err
}

func (s *collector) readBroker(ctx context.Context) error {
	c, err := read.Open(read.RoleBroker, s.brokerConfig)
	if err != nil {
		return err
	}
	defer func() { s.state.Problems = append(s.state.Problems, c.Skipped...) }()
	s.state.Broker = &BrokerState{Server: s.brokerConfig.Host}
	s.state.Broker.UID, err = c.KubeSystem(ctx)
	if apierrors.IsForbidden(err) && s.readRemoval(ctx, c) {
		return nil
	}
	if err != nil {
		return err
	}
	set, err := s.readVersion(ctx, c)
	if err != nil {
		return err
	}
	s.addSettings(set)
	members, err := read.List[v1alpha1.Member](ctx, c, v1alpha1.Members, "", "")
	if err != nil {
		return err
	}
	slices.SortFunc(members, func(a, b v1alpha1.Member) int { return cmp.Compare(a.Name, b.Name) })
	records, err := read.List[v1alpha1.ExportedService](ctx, c, v1alpha1.ExportedServices, "", "")
	if err != nil {
		return err
	}
	if err := s.readMembers(ctx, c, members, records); err != nil {
		return err
	}
	if s.state.Cluster == nil {
		return s.findConflicts(ctx, c, members, records)
	}
	return s.readMissing(ctx, members, records)
}

func (s *collector) readMembers(ctx context.Context, c *read.Cluster, members []v1alpha1.Member,
	records []v1alpha1.ExportedService) error {
	services := make(map[string]int) // by broker namespace
	for i := range records {
		services[records[i].Namespace]++
	}
	for i := range members {
		m, err := s.readHeartbeat(ctx, c, &members[i])
		if err != nil {
			return err
		}
		m.Services = services[m.Namespace]
		s.state.Members = append(s.state.Members, m)
	}
	return nil
}

// readDNS adds the problems of the DNS servers of a member.
func (s *collector) readDNS(ctx context.Context, config *rest.Config) {
	if s.state.Cluster == nil || s.state.Cluster.ClusterSet == "" {
		return
	}
	kept, now := s.options.Slow, s.options.Now()
	if now.Sub(kept.dnsAt) >= slowCheckLife {
		result, err := dns.StatusIfInstalled(ctx, config, s.options.DNS)
		if err != nil {
			result.Unread = []string{"DNS: " + err.Error()}
		}
		kept.dnsAt, kept.dns = now, result
	}
	s.state.Problems = append(s.state.Problems, kept.dns.Problems...)
	s.state.Warnings = append(s.state.Warnings, kept.dns.Warnings...)
	s.state.Unread = append(s.state.Unread, kept.dns.Unread...)
}

// readOutside reads the addresses outside of the networks that this cluster declares in its Member, if it has one.
func (s *collector) readOutside(ctx context.Context) error {
	i := slices.IndexFunc(s.state.Members, func(m MemberState) bool { return m.This })
	if i < 0 {
		return nil
	}
	m, now := s.state.Members[i], s.options.Now()
	kept, declared := s.options.Slow, slices.Concat(m.PodCIDRs, m.ServiceCIDRs)
	if kept.fresh(declared, now) == nil {
		outside, err := readOutside(ctx, s.member, &m)
		if err != nil {
			return err
		}
		kept.at, kept.declared, kept.outside = now, declared, outside
	}
	s.state.Cluster.Outside = kept.outside
	return nil
}

// readRemoval reports whether this cluster was removed from the broker: then it can read nothing else.
func (s *collector) readRemoval(ctx context.Context, c *read.Cluster) bool {
	if s.namespace == "" {
		return false
	}
	namespace, err := c.Find(ctx, read.Object(corev1.SchemeGroupVersion.WithKind("Namespace"), "", s.namespace))
	if err != nil || namespace == nil || !read.IsMarked(namespace) {
		return false
	}
	s.state.Broker.UID = types.UID(namespace.GetAnnotations()[broker.AnnotationBrokerUID])
	s.state.Cluster.Removed = namespace.GetAnnotations()[broker.AnnotationRemoved]
	return true
}

// readVersion checks the CRDs and policies of the broker, which members may read, too.
func (s *collector) readVersion(ctx context.Context, c *read.Cluster) (read.Set, error) {
	set := slices.DeleteFunc(read.BrokerSet(), func(o *unstructured.Unstructured) bool {
		return o.GetKind() != "CustomResourceDefinition" && o.GroupVersionKind().Group != admissionv1.GroupName
	})
	found, err := c.ReadSet(ctx, set)
	if err != nil {
		return found, err
	}
	for _, o := range found.Missing {
		s.state.Problem("broker: %s does not exist: run \"clusterset broker init\"", read.Describe(o))
	}
	for _, o := range found.Changed {
		s.state.Problem("broker: %s differs from that of version %d: run \"clusterset broker init\"", read.Describe(o),
			deploy.Version)
	}
	if outdated := found.Outdated(); outdated != "" {
		s.state.Problem("%s", outdated)
	}
	if err := found.CheckNotNewer(); err != nil {
		s.state.Warn("%v", err)
	}
	if len(found.Unread) > 0 {
		s.state.Warn("the broker does not let this cluster read %s: run \"clusterset broker init\" there, of this version",
			read.Describe(found.Unread[0]))
	}
	if found.Oldest != nil {
		s.state.Broker.Version = read.VersionOf(found.Oldest)
	}
	return found, nil
}

// addSettings adds the settings of the clusterset.
func (s *collector) addSettings(set read.Set) {
	definition := set.CRD(v1alpha1.Members)
	if vip, err := read.VIPOf(definition); err != nil {
		s.state.Problem("broker: %v", err)
	} else {
		s.state.Broker.VIP = vip.String()
	}
	mode, err := read.MergeOf(definition)
	if err != nil {
		s.state.Problem("broker: %v", err)
	}
	s.state.Broker.Merge = string(mode)
}

func (s *collector) readHeartbeat(ctx context.Context, c *read.Cluster, m *v1alpha1.Member) (MemberState, error) {
	state := MemberState{
		ClusterID: m.Name, Namespace: m.Spec.Namespace, Version: m.Status.Version,
		PodCIDRs: m.Spec.PodCIDRs, ServiceCIDRs: m.Spec.ServiceCIDRs,
		LoadBalancerCIDRs: m.Spec.LoadBalancerCIDRs, VIPCIDRs: m.Spec.VIPCIDRs, VIP: m.Status.VIP, Merge: m.Status.Merge,
		KubeSystemUID: m.Spec.KubeSystemUID, This: s.isThis(m), Expired: true,
	}
	heartbeat, err := c.Heartbeat(ctx, m.Spec.Namespace)
	if err != nil || heartbeat == nil {
		return state, err
	}
	renewed := &heartbeat.RenewTime.Time
	age := max(s.options.Now().Sub(*renewed), 0)
	state.Heartbeat, state.HeartbeatAge = renewed, age.Round(time.Second).String()
	state.Expired = broker.HeartbeatExpired(heartbeat, s.options.TTL, s.options.Now())
	return state, nil
}

// findConflicts merges the records of all members with the default options.
func (s *collector) findConflicts(ctx context.Context, c *read.Cluster, members []v1alpha1.Member,
	records []v1alpha1.ExportedService) error {
	namespaces, err := read.List[corev1.Namespace](ctx, c, read.Namespaces, "", broker.LabelClusterID)
	if err != nil {
		return err
	}
	admitted := make(map[string]*corev1.Namespace)
	for i := range namespaces {
		admitted[namespaces[i].Name] = &namespaces[i]
	}
	byService := make(map[types.NamespacedName][]merge.Record)
	for i := range records {
		r := &records[i]
		namespace := admitted[r.Namespace]
		if namespace == nil || !slices.ContainsFunc(members,
			func(m v1alpha1.Member) bool { return m.Spec.Namespace == namespace.Name }) {
			continue
		}
		service := types.NamespacedName{Namespace: r.Spec.Namespace, Name: r.Spec.Name}
		byService[service] = append(byService[service], merge.Record{
			Cluster: namespace.Labels[broker.LabelClusterID], Admitted: namespace.CreationTimestamp,
			Created: r.CreationTimestamp, Spec: r.Spec,
		})
	}
	for service, all := range byService {
		result := merge.Merge(service, all, merge.Options{})
		if c := merge.Condition(result.Conflicts, 0); c.Status == metav1.ConditionTrue {
			s.state.Conflicts = append(s.state.Conflicts, ServiceState{service.Namespace, service.Name, c.Reason, c.Message})
		}
	}
	slices.SortFunc(s.state.Conflicts, ServiceState.compare)
	return nil
}
