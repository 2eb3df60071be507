package join

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// A joinInput decides whether a cluster can join, and with which id, clusterset name, broker namespace and networks.
// joiner reads it from both clusters. The methods compute from it and contact no API server; an error names the reason
// and the remedy (docs/spec/controller.md 7).
type joinInput struct {
	options   Options
	local     read.Local
	brokerUID types.UID
	members   []v1alpha1.Member
	noted     wellknown.Noted // by the controller of this cluster

	clustersetVIP     merge.VIPSetting // the zero value if it is not set
	vip               merge.VIPSetting // by chooseVIP
	vipFromClusterset bool             // neither flags nor what the cluster has decided
	merge             merge.Mode       // of the clusterset

	pods, services, balancers []netip.Prefix   // networks that the cluster will declare
	found                     networks.Found   // in the cluster
	podsOutside               networks.Outside // of all that will be declared
	podsUnread                string           // why that is not known; "" if it is
}

// admission returns what the cluster is admitted with, without its networks.
func (in *joinInput) admission() (a Admission, err error) {
	id, err := in.clusterID()
	if err != nil {
		return a, err
	}
	if err := in.checkBroker(); err != nil {
		return a, err
	}
	if err := in.checkID(id); err != nil {
		return a, err
	}
	a = Admission{ClusterID: id, Spec: v1alpha1.MemberSpec{KubeSystemUID: string(in.local.UID)}, Quota: in.options.Quota}
	if a.ClusterSet, err = in.clusterSet(id); err != nil {
		return a, err
	}
	a.Spec.Namespace, err = in.namespace(id)
	return a, err
}

// clusterID returns the id that the cluster will have.
func (in *joinInput) clusterID() (string, error) {
	have, want := in.local.ClusterID(), in.options.ClusterID
	if want == ByKubeSystem {
		want = string(in.local.UID)
	}
	switch {
	case want == "" && have == "":
		return "", fmt.Errorf("no cluster id: want --cluster-id; --cluster-id=%s uses the UID of Namespace kube-system",
			ByKubeSystem)
	case want == "":
		want = have
	case have != "" && want != have && in.local.Membership != nil:
		return "", fmt.Errorf(
			"cluster id %q: this cluster is a member with the id %q; run \"clusterset leave\" first, or join with that id",
			want, have)
	}
	if !broker.IsClusterID(want) {
		return "", fmt.Errorf("cluster id %q: %s", want, wantClusterID)
	}
	return want, nil
}

// checkBroker returns an error if the cluster cannot join this broker with any id.
func (in *joinInput) checkBroker() error {
	joined := in.local.BrokerUID()
	switch {
	case in.brokerUID == in.local.UID && !in.options.AllowSameCluster:
		return errors.New("broker and member are the same cluster, whose EndpointSlices all members could read: " +
			"want a control plane of its own as the broker, or --allow-same-cluster")
	case in.local.Membership != nil && !read.IsManaged(in.local.Membership):
		return fmt.Errorf(
			"this cluster is a member of clusterset %q, which is not managed by clusterset: leave that clusterset first, so that "+
				"ClusterProperty %s no longer exists", in.local.ClusterSet(), in.local.Membership.GetName())
	case joined != "" && joined != in.brokerUID && !in.options.ReplaceBroker:
		return fmt.Errorf("this cluster joined the broker with kube-system UID %s, and this broker has UID %s: "+
			"run \"clusterset leave\" with the old broker first (--force if it no longer exists), or join with --replace-broker if this broker replaces it",
			joined, in.brokerUID)
	case in.options.ClusterSet != "" && in.local.Membership != nil && in.local.ClusterSet() != in.options.ClusterSet:
		return fmt.Errorf("clusterset %q: this cluster is a member of %q; run \"clusterset leave\" first",
			in.options.ClusterSet, in.local.ClusterSet())
	}
	return nil
}

// checkID returns an error if another cluster has the id, or if this cluster has another id on the broker.
func (in *joinInput) checkID(id string) error {
	for i := range in.members {
		m := &in.members[i]
		own := m.Spec.KubeSystemUID == string(in.local.UID)
		if m.Name == id && !own {
			return fmt.Errorf(
				"cluster id %q is taken by the cluster with kube-system UID %s: run \"clusterset leave\" in that cluster first "+
					"(\"clusterset broker remove %s\" if it no longer exists), or choose another id", id, m.Spec.KubeSystemUID, id)
		}
		if m.Name != id && own {
			return fmt.Errorf(
				"cluster id %q: this cluster has the id %q on the broker; run \"clusterset leave\" first, or join with that id",
				id, m.Name)
		}
	}
	return nil
}

// member returns the Member with this id, or nil.
func (in *joinInput) member(id string) *v1alpha1.Member {
	i := slices.IndexFunc(in.members, func(m v1alpha1.Member) bool { return m.Name == id })
	if i < 0 {
		return nil
	}
	return &in.members[i]
}

// declared returns the networks of this cluster with their stamp: from its Member, or from the controller's note if
// that is newer.
func (in *joinInput) declared(id string) (spec v1alpha1.MemberSpec, since int64) {
	if m := in.member(id); m != nil {
		spec, since = m.Spec, m.Stamp()
	}
	if noted := in.noted.Members[id]; noted.Stamp > since && noted.UID == string(in.local.UID) {
		noted.Declare(&spec)
		since = noted.Stamp
	}
	return spec, since
}

// stamp returns the stamp of the Member: a new one if the Member changes, or is older than the note.
func (in *joinInput) stamp(a Admission) int64 {
	m := in.member(a.ClusterID)
	declared, since := in.declared(a.ClusterID)
	if m != nil && since == m.Stamp() && since > 0 && reflect.DeepEqual(declared, a.Spec) {
		return since
	}
	return max(in.options.Now().UnixMicro(), since+1)
}

// otherClusterSet returns the name of the clusterset that the other members are in, and one of them; "" if no Member
// has a name. If they disagree, the oldest Member decides.
func (in *joinInput) otherClusterSet(id string) (name, member string) {
	var oldest *v1alpha1.Member
	for i := range in.members {
		m := &in.members[i]
		if m.Name == id || m.Annotations[broker.AnnotationClusterSet] == "" {
			continue
		}
		if oldest == nil || m.CreationTimestamp.Before(&oldest.CreationTimestamp) {
			oldest = m
		}
	}
	if oldest == nil {
		return "", ""
	}
	return oldest.Annotations[broker.AnnotationClusterSet], oldest.Name
}

// clusterSet returns the name of the clusterset that the cluster will be in. All members of a broker have one name; a
// member keeps the name that it has.
func (in *joinInput) clusterSet(id string) (string, error) {
	others, member := in.otherClusterSet(id)
	has := in.local.ClusterSet()
	if m := in.member(id); has == "" && m != nil { // an interrupted join wrote the Member and not the ClusterProperty
		has = m.Annotations[broker.AnnotationClusterSet]
	}
	if in.options.ClusterSet != "" && others != "" && in.options.ClusterSet != others && in.options.ClusterSet != has {
		return "", fmt.Errorf(
			"clusterset %q: member %q of this broker is in clusterset %q; want that name, or no --clusterset",
			in.options.ClusterSet, member, others)
	}
	return cmp.Or(in.options.ClusterSet, has, others, DefaultClusterSet), nil
}

// namespace returns the broker namespace that the cluster will have.
func (in *joinInput) namespace(id string) (string, error) {
	prefix, m := in.options.Prefix, in.member(id)
	if prefix == "" {
		if m != nil {
			return m.Spec.Namespace, nil
		}
		prefix = DefaultPrefix
	}
	if !broker.IsLabel(prefix) || len(prefix) > 40 {
		return "", fmt.Errorf("namespace prefix %q: want an RFC 1123 label of at most 40 octets", prefix)
	}
	namespace := broker.NamespaceName(prefix, id)
	if m != nil && m.Spec.Namespace != namespace {
		return "", fmt.Errorf(
			"namespace prefix %q: the broker namespace of this member is %s; run \"clusterset leave\" first", prefix,
			m.Spec.Namespace)
	}
	return namespace, nil
}
