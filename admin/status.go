package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// StatusOptions say what to look at.
type StatusOptions struct {
	Namespace string        // of the controller in the member
	TTL       time.Duration // age at which a heartbeat is expired
	Now       func() time.Time
}

// StatusDefaults returns options that need no thought.
func StatusDefaults() StatusOptions {
	return StatusOptions{Namespace: DefaultNamespace, TTL: time.Minute, Now: time.Now}
}

// A State is what a clusterset looks like from one cluster, from the broker, or both. Its JSON form is stable: fields are
// only added. Lists are sorted.
type State struct {
	Cluster   *ClusterState   `json:"cluster,omitempty"` // none where only the broker was asked
	Broker    *BrokerState    `json:"broker,omitempty"`  // none where there is no access to it
	Members   []MemberState   `json:"members"`
	Conflicts []ConflictState `json:"conflicts"`
	Problems  []string        `json:"problems"` // what is wrong
	Warnings  []string        `json:"warnings"` // what deserves a look, though everything works
}

// ClusterState is what the API server of a cluster says.
type ClusterState struct {
	ClusterID         string      `json:"clusterID,omitempty"`
	ClusterSet        string      `json:"clusterSet,omitempty"` // empty unless it is a member
	Leaving           bool        `json:"leaving,omitempty"`
	BrokerUID         types.UID   `json:"brokerUID,omitempty"` // as it was at the join
	CredentialExpires *time.Time  `json:"credentialExpires,omitempty"`
	Leader            string      `json:"leader,omitempty"` // identity of the controller that acts
	LeaderRenewed     *time.Time  `json:"leaderRenewed,omitempty"`
	Exports           ExportState `json:"exports"`
}

// ExportState counts the ServiceExports of a cluster.
type ExportState struct {
	Total    int `json:"total"`
	Ready    int `json:"ready"`
	NotReady int `json:"notReady"`

	// Reasons counts those that are not ready by the reason of the condition that says so: Valid, or else Ready.
	Reasons map[string]int `json:"reasons,omitempty"`
}

// BrokerState is what was asked.
type BrokerState struct {
	Server string    `json:"server"`
	UID    types.UID `json:"uid"` // of its namespace kube-system
}

// MemberState is what the broker says about one member.
type MemberState struct {
	ClusterID     string     `json:"clusterID"`
	Namespace     string     `json:"namespace"`
	Version       string     `json:"version,omitempty"`
	MergeOptions  string     `json:"mergeOptions,omitempty"`
	OptionsDiffer bool       `json:"optionsDiffer,omitempty"` // from those of most members
	Heartbeat     *time.Time `json:"heartbeat,omitempty"`
	HeartbeatAge  string     `json:"heartbeatAge,omitempty"` // by our clock and that of the member
	Expired       bool       `json:"expired"`                // or without a heartbeat
	Services      int        `json:"services"`
	PodCIDRs      []string   `json:"podCIDRs,omitempty"`
	ServiceCIDRs  []string   `json:"serviceCIDRs,omitempty"`
	VIPCIDR       string     `json:"vipCIDR,omitempty"`
	KubeSystemUID string     `json:"kubeSystemUID"`
	This          bool       `json:"this,omitempty"` // the cluster that was asked
}

// ConflictState is a service whose exports disagree.
type ConflictState struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

// Status looks at a clusterset. Of the two configurations one may be nil: without that of the broker the credential of the
// member is used, without that of the member only the broker is asked.
//
// What is found comes back even with an error, which means that something could not be found out. Expired heartbeats and
// credentials, a controller that does not act and a broker that is not the one joined are problems. Conflicts and merge
// options that differ are warnings: traffic flows.
func Status(ctx context.Context, onBroker, onMember *rest.Config, o StatusOptions) (State, error) {
	l := &looking{o: o, state: State{
		Members: []MemberState{}, Conflicts: []ConflictState{}, Problems: []string{}, Warnings: []string{},
	}, config: onBroker}
	if l.o.Now == nil {
		l.o.Now = time.Now
	}
	var memberFailed, brokerFailed error
	if onMember != nil {
		memberFailed = l.lookAtMember(ctx, onMember)
	}
	if l.config != nil {
		brokerFailed = l.lookAtBroker(ctx, l.config)
	}
	if onMember == nil && onBroker == nil {
		memberFailed = errors.New("want access to a member or to the broker")
	}
	l.judge(memberFailed == nil, l.config != nil && brokerFailed == nil)
	if failed := errors.Join(memberFailed, brokerFailed); failed != nil {
		return l.state, fmt.Errorf("status: %w", failed)
	}
	return l.state, nil
}

// looking is the state of one call of Status.
type looking struct {
	o      StatusOptions
	config *rest.Config // of the broker, given or the member's own; nil if there is none
	local  local
	state  State
}

func (l *looking) problem(format string, args ...any) {
	l.state.Problems = append(l.state.Problems, fmt.Sprintf(format, args...))
}

func (l *looking) warn(format string, args ...any) {
	l.state.Warnings = append(l.state.Warnings, fmt.Sprintf(format, args...))
}

func (l *looking) lookAtMember(ctx context.Context, config *rest.Config) error {
	s, err := Writing{}.open(OnMember, config)
	if err != nil {
		return err
	}
	if l.local, err = s.local(ctx); err != nil {
		return err
	}
	c := &ClusterState{
		ClusterID: l.local.clusterID(), ClusterSet: l.local.clusterSet(), Leaving: l.local.leaving(), BrokerUID: l.local.brokerUID(),
	}
	l.state.Cluster = c
	for _, err := range l.local.unsound {
		l.problem("%s", err)
	}
	if err := l.lookAtExports(ctx, s); err != nil {
		return err
	}
	if err := l.lookAtLeader(ctx, s); err != nil {
		return err
	}
	return l.lookAtCredential(ctx, s)
}

func (l *looking) lookAtExports(ctx context.Context, s *side) error {
	exports, err := list[mcsv1beta1.ServiceExport](ctx, s, mcsv1beta1.SchemeGroupVersion.WithResource("serviceexports"), "", "")
	if err != nil {
		return err
	}
	count := &l.state.Cluster.Exports
	for i := range exports {
		e := &exports[i]
		count.Total++
		if c := Current(e, mcsv1beta1.ServiceExportConditionReady); c != nil && c.Status == metav1.ConditionTrue {
			count.Ready++
		} else {
			count.blame(e)
		}
		conflict := meta.FindStatusCondition(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionConflict))
		if conflict != nil && conflict.Status == metav1.ConditionTrue {
			l.state.Conflicts = append(l.state.Conflicts, ConflictState{e.Namespace, e.Name, conflict.Reason, conflict.Message})
		}
	}
	count.NotReady = count.Total - count.Ready
	slices.SortFunc(l.state.Conflicts, compareConflicts)
	return nil
}

// Current returns a condition that is about what the export says now, or nil.
func Current(e *mcsv1beta1.ServiceExport, of mcsv1beta1.ServiceExportConditionType) *metav1.Condition {
	c := meta.FindStatusCondition(e.Status.Conditions, string(of))
	if c == nil || c.ObservedGeneration != 0 && c.ObservedGeneration < e.Generation {
		return nil
	}
	return c
}

// blame counts why an export is not ready.
func (s *ExportState) blame(e *mcsv1beta1.ServiceExport) {
	reason := "not looked at"
	for _, of := range []mcsv1beta1.ServiceExportConditionType{mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionReady} {
		if c := Current(e, of); c != nil && c.Status != metav1.ConditionTrue {
			reason = c.Reason
			break
		}
	}
	if s.Reasons == nil {
		s.Reasons = make(map[string]int)
	}
	s.Reasons[reason]++
}

// why lists the reasons, the most frequent first: "3 NoService, 1 Failed".
func (s *ExportState) why() string {
	reasons := slices.SortedFunc(maps.Keys(s.Reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.Reasons[b], s.Reasons[a]), cmp.Compare(a, b))
	})
	for i, r := range reasons {
		reasons[i] = fmt.Sprintf("%d %s", s.Reasons[r], r)
	}
	return strings.Join(reasons, ", ")
}

func compareConflicts(a, b ConflictState) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func (l *looking) lookAtLeader(ctx context.Context, s *side) error {
	lease := &coordinationv1.Lease{
		TypeMeta: kind("coordination.k8s.io/v1", "Lease"), ObjectMeta: metav1.ObjectMeta{Namespace: l.o.Namespace, Name: ControllerLease},
	}
	there, err := s.read(ctx, lease)
	if err != nil || !there {
		return err
	}
	if lease.Spec.HolderIdentity != nil {
		l.state.Cluster.Leader = *lease.Spec.HolderIdentity
	}
	if lease.Spec.RenewTime != nil {
		l.state.Cluster.LeaderRenewed = &lease.Spec.RenewTime.Time
	}
	return nil
}

// lookAtCredential also takes it to the broker, where nothing better was given.
func (l *looking) lookAtCredential(ctx context.Context, s *side) error {
	secret, err := s.secret(ctx, l.o.Namespace)
	if err != nil || secret == nil {
		return err
	}
	token, err := apiserver.ParseToken(string(secret.Data[broker.KeyToken]))
	if err != nil {
		return fmt.Errorf("secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	l.state.Cluster.CredentialExpires = &token.Expires
	if l.config == nil {
		l.config, _, err = credentialConfig(secret)
	}
	return err
}

func (l *looking) lookAtBroker(ctx context.Context, config *rest.Config) error {
	s, err := Writing{}.open(OnBroker, config)
	if err != nil {
		return err
	}
	l.state.Broker = &BrokerState{Server: config.Host}
	if l.state.Broker.UID, err = s.kubeSystem(ctx); err != nil {
		return err
	}
	members, err := list[v1alpha1.Member](ctx, s, v1alpha1.Members, "", "")
	if err != nil {
		return err
	}
	slices.SortFunc(members, func(a, b v1alpha1.Member) int { return cmp.Compare(a.Name, b.Name) })
	records, err := list[v1alpha1.ExportedService](ctx, s, v1alpha1.ExportedServices, "", "")
	if err != nil {
		return err
	}
	services := make(map[string]int)
	for i := range records {
		services[records[i].Namespace]++
	}
	for i := range members {
		m, err := l.member(ctx, s, &members[i])
		if err != nil {
			return err
		}
		m.Services = services[m.Namespace]
		l.state.Members = append(l.state.Members, m)
	}
	if l.state.Cluster == nil {
		return l.mergeAll(ctx, s, members, records)
	}
	return nil
}

func (l *looking) member(ctx context.Context, s *side, m *v1alpha1.Member) (MemberState, error) {
	state := MemberState{
		ClusterID: m.Name, Namespace: m.Spec.Namespace, Version: m.Status.Version, MergeOptions: m.Status.MergeOptions,
		PodCIDRs: m.Spec.PodCIDRs, ServiceCIDRs: m.Spec.ServiceCIDRs, VIPCIDR: m.Spec.VIPCIDR, KubeSystemUID: m.Spec.KubeSystemUID,
		This: l.local.uid != "" && m.Spec.KubeSystemUID == string(l.local.uid), Expired: true,
	}
	lease, err := s.heartbeat(ctx, m.Spec.Namespace)
	if err != nil || lease == nil {
		return state, err
	}
	age := max(l.o.Now().Sub(*lease), 0)
	state.Heartbeat, state.HeartbeatAge, state.Expired = lease, age.Round(time.Second).String(), age >= l.o.TTL
	return state, nil
}

// mergeAll finds the conflicts as every member does by default.
func (l *looking) mergeAll(ctx context.Context, s *side, members []v1alpha1.Member, records []v1alpha1.ExportedService) error {
	namespaces, err := list[corev1.Namespace](ctx, s, corev1.SchemeGroupVersion.WithResource("namespaces"), "", broker.LabelClusterID)
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
		of := admitted[r.Namespace]
		if of == nil || !slices.ContainsFunc(members, func(m v1alpha1.Member) bool { return m.Spec.Namespace == of.Name }) {
			continue
		}
		service := types.NamespacedName{Namespace: r.Spec.Namespace, Name: r.Spec.Name}
		byService[service] = append(byService[service], merge.Record{
			Cluster: of.Labels[broker.LabelClusterID], Admitted: of.CreationTimestamp, Created: r.CreationTimestamp, Spec: r.Spec,
		})
	}
	for service, all := range byService {
		result := merge.Merge(service, all, merge.Options{})
		if c := merge.Condition(result.Conflicts, 0); c.Status == metav1.ConditionTrue {
			l.state.Conflicts = append(l.state.Conflicts, ConflictState{service.Namespace, service.Name, c.Reason, c.Message})
		}
	}
	slices.SortFunc(l.state.Conflicts, compareConflicts)
	return nil
}

// judge says what is wrong. local and broker say whether all was found out that the one and the other has to say.
func (l *looking) judge(local, broker bool) {
	l.markDifferent()
	var own *MemberState
	for i := range l.state.Members {
		m := &l.state.Members[i]
		switch {
		case m.This:
			own = m
		case m.Heartbeat == nil:
			l.problem("member %q has no heartbeat: its controller has not run yet, or runs without a lease", m.ClusterID)
		case m.Expired:
			l.problem("member %q renewed its heartbeat %s ago: its endpoints do not count", m.ClusterID, m.HeartbeatAge)
		}
	}
	if c := l.state.Cluster; c != nil {
		switch {
		case c.Leaving:
			// What else there would be to say is how it should be then.
			l.problem("this cluster is leaving: run \"clusterset leave\" again, or \"clusterset join\" to stay")
		case c.ClusterSet == "":
			l.warn("this cluster is no member of a clusterset: run \"clusterset join\"")
		case local:
			l.judgeMember(c, own, broker)
		}
	}
	if n := len(l.state.Conflicts); n > 0 {
		l.warn("services whose exports disagree: %d", n)
	}
}

// judgeMember judges a cluster that is a member, by its broker only where that could be asked.
func (l *looking) judgeMember(c *ClusterState, own *MemberState, asked bool) {
	acts := c.Leader != "" && c.LeaderRenewed != nil && l.o.Now().Sub(*c.LeaderRenewed) < l.o.TTL
	switch {
	case asked && l.state.Broker != nil && l.state.Broker.UID != c.BrokerUID:
		l.problem("the broker has kube-system UID %s, not %s as at the join: everything is held; run \"clusterset join --replace-broker\" if that is right",
			l.state.Broker.UID, c.BrokerUID)
	case asked && own == nil:
		l.problem("the broker has no Member for this cluster: run \"clusterset join\" again")
	case !acts:
		l.problem("no controller acts for this cluster: want one with Lease %s/%s", l.o.Namespace, ControllerLease)
	case asked && own.Expired:
		l.problem("the controller runs, but renews no heartbeat on the broker: its link is lost, or it runs without a lease")
	}
	l.judgeCredential(c.CredentialExpires)
	if c.Exports.NotReady == 0 {
		return
	}
	l.warn("%d of %d exports are not ready (%s): see their conditions", c.Exports.NotReady, c.Exports.Total, c.Exports.why())
	if own != nil && len(own.PodCIDRs) == 0 {
		l.warn("the Member of this cluster declares no pod CIDRs, so that no address of its pods is accepted: join again with --pod-cidr")
	}
}

func (l *looking) judgeCredential(expires *time.Time) {
	switch {
	case expires == nil:
		l.problem("there is no broker credential, Secret %s/%s: run \"clusterset join\" again", l.o.Namespace, broker.SecretName)
	case !expires.After(l.o.Now()):
		l.problem("the broker credential expired at %s: run \"clusterset join\" again", expires.UTC().Format(time.RFC3339))
	}
}

// markDifferent marks the members whose merge options are not those of most; of equally many, those of the first member.
func (l *looking) markDifferent() {
	count := make(map[string]int)
	var most string
	for _, m := range l.state.Members {
		if m.MergeOptions != "" {
			count[m.MergeOptions]++
		}
	}
	for _, m := range l.state.Members {
		if count[m.MergeOptions] > count[most] {
			most = m.MergeOptions
		}
	}
	for i := range l.state.Members {
		m := &l.state.Members[i]
		if m.OptionsDiffer = m.MergeOptions != "" && m.MergeOptions != most; m.OptionsDiffer {
			l.warn("member %q merges by other options than most: it may see other imports", m.ClusterID)
		}
	}
}
