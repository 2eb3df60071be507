// Package identity knows which cluster this is, whether it is a member of the clusterset, and how it proves that to the
// broker.
//
//	ClusterProperty objects --\                      +------------+     id, known
//	state of the broker -------+--> evaluate(...) -> | Membership | --> exporter, importer, Heartbeat, Publication
//	Member of the same id ----/      (a table)       +------------+
//
//	kubeconfig file --> Link --> Credential --> transport of the broker's client
//	token file, Secret ------------^   ^
//	                                   +-- Renewal: TokenRequest once a day, or at half of the token's life
//
// An [Identity] never changes: if the properties or the kubeconfig name another cluster or broker, the controller ends
// all that was built for this one and starts again. [Membership] changes as the broker answers, and is evaluated every
// second.
package identity

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/about/v1beta1"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// An Identity is what the parts of the controller are built for.
type Identity struct {
	ClusterID string    // "" if it is missing or not valid
	BrokerUID types.UID // UID of kube-system of the broker at the join; "" if unknown
	Digest    string    // of the kubeconfig, "" if no kubeconfig can be used
}

// Of returns the identity of a cluster that reaches the broker by l.
func Of(c *member.Cluster, l Link) Identity {
	p := readProperties(c)
	i := Identity{BrokerUID: p.brokerUID, Digest: l.Digest}
	if apibroker.IsClusterID(p.clusterID) {
		i.ClusterID = p.clusterID
	}
	return i
}

// properties are what the ClusterProperty objects of this cluster say.
type properties struct {
	clusterID  string // cluster.clusterset.k8s.io, "" if absent; may be invalid
	joined     bool   // clusterset.k8s.io exists
	leaving    bool   // clusterset.k8s.io has the annotation of a cluster that leaves
	unreadable string // the name of one of the two that exists and does not decode, else ""
	brokerUID  types.UID
}

func readProperties(c *member.Cluster) (p properties) {
	for _, name := range []string{about.ClusterIDName, about.ClusterSetName} {
		if c.UnreadableProperty(name) {
			p.unreadable = name
		}
	}
	if id := c.Property(about.ClusterIDName); id != nil {
		p.clusterID = id.Spec.Value
	}
	if set := c.Property(about.ClusterSetName); set != nil {
		p.joined = true
		_, p.leaving = set.Annotations[apibroker.AnnotationLeaving]
		p.brokerUID = types.UID(set.Annotations[apibroker.AnnotationBrokerUID])
	}
	return p
}

// Leaving reports whether this cluster is being taken out of the clusterset: everything is withdrawn.
func Leaving(c *member.Cluster) bool { return readProperties(c).leaving }

// SetClusterID creates the ClusterProperty of the cluster id if it is missing (docs/spec/controller.md 7), and reports
// whether it did. An id that differs from want is an error.
func SetClusterID(ctx context.Context, c *member.Cluster, want string) (created bool, err error) {
	if p := c.Property(about.ClusterIDName); p != nil {
		if p.Spec.Value != want {
			return false, fmt.Errorf("%q: ClusterProperty %s has %q; to rename a cluster, leave the clusterset and join again",
				want, about.ClusterIDName, p.Spec.Value)
		}
		return false, nil
	}
	p := &v1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: about.ClusterIDName},
		Spec: v1beta1.ClusterPropertySpec{Value: want}}
	if err := c.Client().Create(ctx, p); err != nil {
		return false, err
	}
	c.Wrote(p)
	return true, nil
}
