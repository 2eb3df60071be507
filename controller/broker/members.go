package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// Members are the members of the clusterset as the broker has them: which namespace belongs to which cluster id, and
// the place of this cluster among them. What a broker lost stays noted.
type Members struct {
	link
	client              *apiserver.Client
	namespace           string    // of this member
	clusterID           string    // of this member
	brokerUID           types.UID // as joined
	namespaces, members cache.SharedIndexInformer
	memory              *memory
	validity            sync.Map // a validated for each id
}

// names reports whether a Member names a broker namespace.
func (ms *Members) names(namespace string) bool { return isIndexed(ms.members, byNamespace, namespace) }

// All returns the members with a broker namespace that has their id, sorted by id.
func (ms *Members) All() []v1alpha1.Member {
	stored := ms.stored()
	members := make([]v1alpha1.Member, len(stored))
	for i, m := range stored {
		members[i] = *m
	}
	slices.SortFunc(members, func(a, b v1alpha1.Member) int { return cmp.Compare(a.Name, b.Name) })
	return members
}

// stored returns [Members.All] as the cache has them, in any order.
func (ms *Members) stored() (members []*v1alpha1.Member) {
	for _, item := range ms.members.GetStore().List() {
		if m := item.(*v1alpha1.Member); ms.isMember(m) {
			members = append(members, m)
		}
	}
	return members
}

// Count returns how many Members the broker has, valid or not.
func (ms *Members) Count() int { return len(ms.members.GetStore().ListKeys()) }

// Get returns the member with this id among [Members.All], or nil.
func (ms *Members) Get(id string) *v1alpha1.Member {
	item, ok, _ := ms.members.GetStore().GetByKey(id)
	if !ok || !ms.isMember(item.(*v1alpha1.Member)) {
		return nil
	}
	return item.(*v1alpha1.Member)
}

// Removed reports whether an administrator took a cluster out of the clusterset, and it did not join again.
func (ms *Members) Removed(id string) bool {
	return ms.Get(id) == nil && slices.ContainsFunc(ms.namespaces.GetStore().List(), func(item any) bool {
		ns := item.(*corev1.Namespace)
		return ns.Labels[broker.LabelClusterID] == id && ms.memory.removed(ns)
	})
}

// RemovedAmong returns the clusters of addresses that were removed.
func (ms *Members) RemovedAmong(all []merge.Address) (removed []string) {
	for _, a := range all {
		if ms.Removed(a.Cluster) {
			removed = append(removed, a.Cluster)
		}
	}
	return removed
}

// A validated is a Member, which does not change, and why it is not valid.
type validated struct {
	member *v1alpha1.Member
	err    error
}

// validate returns why a Member is not valid. It remembers the answer, which takes hashes: [Members.All] asks for all
// of them every second.
func (ms *Members) validate(m *v1alpha1.Member) error {
	if last, ok := ms.validity.Load(m.Name); ok && last.(validated).member == m {
		return last.(validated).err
	}
	err := m.Validate()
	ms.validity.Store(m.Name, validated{m, err})
	return err
}

// properties returns the ClusterProperties of all members by their ids.
func (ms *Members) properties() map[string]map[string]string {
	properties := make(map[string]map[string]string)
	for _, m := range ms.All() {
		properties[m.Name], _ = m.Status.ValidProperties() // the watch reports the others
	}
	return properties
}

// HasOlder reports whether the Member of a cluster on the broker is older than the noted one, as after a restore. The
// noted networks still count.
func (ms *Members) HasOlder(clusterID string) bool {
	m := ms.Get(clusterID)
	return m != nil && ms.memory.older(m)
}

// NotedChanges counts the changes of [Members.Noted].
func (ms *Members) NotedChanges() int { return ms.memory.changed() }

// Noted returns the note for the next process.
func (ms *Members) Noted() wellknown.Noted {
	n := ms.memory.noted()
	n.Broker = ms.brokerUID
	return n
}

func (ms *Members) isMember(m *v1alpha1.Member) bool {
	id, _, err := ms.memberOf(m.Spec.Namespace)
	return err == nil && id == m.Name
}

// errRemoved: an administrator removed the cluster of a namespace from the clusterset, and the rest there is being
// deleted.
var errRemoved = errors.New("the cluster was removed from the clusterset")

// memberOf returns the cluster that a broker namespace belongs to, and when the namespace was created. The id is in the
// label of the namespace; it counts while the Member of that id names the namespace.
func (ms *Members) memberOf(namespace string) (id string, since metav1.Time, err error) {
	item, ok, _ := ms.namespaces.GetStore().GetByKey(namespace)
	if !ok {
		return "", since, fmt.Errorf("namespace %.80q: want the label %s", namespace, broker.LabelClusterID)
	}
	ns := item.(*corev1.Namespace)
	id = ns.Labels[broker.LabelClusterID]
	if ms.memory.removed(ns) {
		return "", since, errRemoved
	}
	if !broker.IsClusterID(id) {
		return "", since, fmt.Errorf("cluster id %.80q: want one RFC 1123 label, or two joined by one dot", id)
	}
	item, ok, _ = ms.members.GetStore().GetByKey(id)
	if !ok {
		return "", since, fmt.Errorf("cluster id %s: want that of a Member", id)
	}
	m := item.(*v1alpha1.Member)
	if m.Spec.Namespace != namespace {
		return "", since, fmt.Errorf("namespace %s: want that of Member %s", namespace, id)
	}
	if err := ms.validate(m); err != nil {
		return "", since, fmt.Errorf("%s %s: %w", kindMember, id, err)
	}
	return id, ns.CreationTimestamp, nil
}

// present reports whether the namespace of this member is known to be there, and not marked as that of a cluster that
// was removed.
func (ms *Members) present() bool {
	item, ok, _ := ms.namespaces.GetStore().GetByKey(ms.namespace)
	if !ok {
		return false
	}
	ns := item.(*corev1.Namespace)
	return ns.Labels[broker.LabelClusterID] == ms.clusterID && !ms.memory.removed(ns)
}

// Registered returns the one of [Members.All] that has the broker namespace of this cluster. It returns nil if no
// Member has it, and if this cluster was removed. It works without the id of the cluster.
func (ms *Members) Registered() *v1alpha1.Member {
	if item, ok, _ := ms.namespaces.GetStore().GetByKey(ms.namespace); !ok ||
		ms.memory.removed(item.(*corev1.Namespace)) || !ms.synced() {
		return nil
	}
	for _, m := range indexed[*v1alpha1.Member](ms.members, byNamespace, ms.namespace) {
		if ms.isMember(m) {
			return m
		}
	}
	return nil
}

// others reports whether another member has a namespace.
func (ms *Members) others() bool {
	for _, m := range ms.All() {
		if m.Name != ms.clusterID {
			return true
		}
	}
	return false
}

// SetStatus writes the status of this member if it differs from the known one.
func (ms *Members) SetStatus(ctx context.Context, status v1alpha1.MemberStatus) error {
	item, ok, _ := ms.members.GetStore().GetByKey(ms.clusterID)
	if !ok {
		return fmt.Errorf("broker: Member %s: not there", ms.clusterID)
	}
	if equality.Semantic.DeepEqual(item.(*v1alpha1.Member).Status, status) {
		return nil
	}
	m := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: ms.clusterID}, Status: status}
	if err := ms.client.Apply(ctx, m, wellknown.ManagerExporter, "status"); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	return nil
}

// Grant asks the broker which tokens this member may request.
func (ms *Members) Grant(ctx context.Context) (broker.Grant, error) {
	ns := &corev1.Namespace{}
	if err := ms.client.Get(ctx, ns, "", ms.namespace); err != nil {
		return broker.Grant{}, fmt.Errorf("broker: %w", err)
	}
	return broker.GrantOf(ns.Annotations), nil
}

// Token returns a new token of this member's service account, valid until expires: for ttl, or for what the broker
// grants.
func (ms *Members) Token(ctx context.Context, ttl time.Duration, audiences ...string) (token string, expires time.Time,
	err error) {
	token, expires, err = ms.client.Token(ctx, ms.namespace, broker.ServiceAccount, ttl, audiences...)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("broker: %w", err)
	}
	return token, expires, nil
}
