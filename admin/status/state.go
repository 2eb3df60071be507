package status

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// A State is the state of a clusterset as one cluster, the broker, or both show it. The JSON form is stable: fields are
// only added. Lists are sorted.
type State struct {
	Cluster   *ClusterState  `json:"cluster,omitempty"` // nil if only the broker was read
	Broker    *BrokerState   `json:"broker,omitempty"`  // nil if there is no access to the broker
	Members   []MemberState  `json:"members"`
	Conflicts []ServiceState `json:"conflicts"`
	read.Result
}

// ClusterState is what the API server of a cluster shows about the cluster itself.
type ClusterState struct {
	ClusterID         string      `json:"clusterID,omitempty"`
	ClusterSet        string      `json:"clusterSet,omitempty"` // empty if the cluster is not a member
	Leaving           bool        `json:"leaving,omitempty"`
	Removed           string      `json:"removed,omitempty"`   // when an administrator of the broker removed the cluster
	BrokerUID         types.UID   `json:"brokerUID,omitempty"` // kube-system UID of the broker that the cluster joined
	CredentialExpires *time.Time  `json:"credentialExpires,omitempty"`
	Leader            string      `json:"leader,omitempty"` // identity of the controller that last held the Lease
	LeaderRenewed     *time.Time  `json:"leaderRenewed,omitempty"`
	LeaderExpired     bool        `json:"leaderExpired,omitempty"` // the Lease was not renewed in time: there is no leader now
	Exports           ExportState `json:"exports"`

	broker string // see [read.Cluster.BrokerText]; "" for a member

	// CRDs describes each CRD that is missing or unusable. A controller that starts waits for them.
	CRDs []string `json:"crds,omitempty"`

	// NotReadyImports are those that cannot be used, except those that are pending for less than 10 s. The reason is
	// Foreign if another program created the import and this cluster would import a service of that name.
	NotReadyImports []ServiceState `json:"notReadyImports,omitempty"`

	// Frozen has the reasons for which the leader has suspended operations.
	Frozen []wellknown.Freeze `json:"frozen,omitempty"`

	// Selection has the services with preferred clusters.
	Selection []SelectionState `json:"selection,omitempty"`

	// Outside is about addresses outside of the networks that the cluster declared; nil if these are not known.
	Outside *OutsideState `json:"outside,omitempty"`
}

// SelectionState is a service with preferred clusters, and where its traffic goes.
type SelectionState struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Preferred string     `json:"preferred"`        // "east, then east north"
	InUse     []string   `json:"inUse"`            // clusters, sorted
	Hidden    []string   `json:"hidden,omitempty"` // the others
	Since     *time.Time `json:"since,omitempty"`  // nothing has changed since, if not for longer
}

// OutsideState counts the addresses outside of the networks that a cluster declared.
type OutsideState struct {
	Pods     networks.Outside    `json:"pods"`               // that run
	Networks []networks.Declared `json:"networks,omitempty"` // that join would declare now
	Unread   string              `json:"unread,omitempty"`   // why Pods is not known
	declared []string            // for Pods
}

// ExportState counts the ServiceExports of a cluster.
type ExportState struct {
	Total    int `json:"total"`
	Ready    int `json:"ready"`
	NotReady int `json:"notReady"`

	Unread string `json:"unread,omitempty"` // why they could not be counted

	// Reasons counts the exports that are not ready by the reason of their condition Valid or, if that is True, Ready. The
	// reason is NotReconciled if the controller has not set these conditions for the current generation.
	Reasons map[string]int `json:"reasons,omitempty"`

	// Undeclared names the exports that lack addresses outside of the networks that the cluster declared:
	// "<namespace>/<name>".
	Undeclared []string `json:"undeclared,omitempty"`

	NotReadyExports []ServiceState `json:"notReadyExports,omitempty"` // with the reason as in Reasons
}

// ServiceState is an export, an import or a service with conflicting exports, with reason and message of the condition.
type ServiceState struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

func (s ServiceState) compare(other ServiceState) int {
	return cmp.Or(cmp.Compare(s.Namespace, other.Namespace), cmp.Compare(s.Name, other.Name))
}

// BrokerState identifies the broker.
type BrokerState struct {
	Server  string    `json:"server"`
	UID     types.UID `json:"uid"`               // of its Namespace kube-system
	VIP     string    `json:"vip,omitempty"`     // the option that members shall have; "" if nothing is said
	Merge   string    `json:"merge,omitempty"`   // likewise; "" if it could not be read
	Version int       `json:"version,omitempty"` // of the oldest of its CRDs and policies; 0 if they could not be read
}

// MemberState is what the broker shows about one member.
type MemberState struct {
	ClusterID         string     `json:"clusterID"`
	Namespace         string     `json:"namespace"`
	Version           string     `json:"version,omitempty"`
	Heartbeat         *time.Time `json:"heartbeat,omitempty"`
	HeartbeatAge      string     `json:"heartbeatAge,omitempty"` // our clock minus the member's clock
	Expired           bool       `json:"expired"`                // the heartbeat is older than the TTL, or there is no heartbeat
	Services          int        `json:"services"`
	PodCIDRs          []string   `json:"podCIDRs,omitempty"`
	ServiceCIDRs      []string   `json:"serviceCIDRs,omitempty"`
	LoadBalancerCIDRs []string   `json:"loadBalancerCIDRs,omitempty"`
	VIPCIDRs          []string   `json:"vipCIDRs,omitempty"`
	VIP               string     `json:"vip,omitempty"`   // the option of its controller, "" if unknown
	Merge             string     `json:"merge,omitempty"` // likewise
	KubeSystemUID     string     `json:"kubeSystemUID"`
	This              bool       `json:"this,omitempty"` // the cluster that was read
}

// add counts one export.
func (s *ExportState) add(e *mcsv1beta1.ServiceExport) {
	s.Total++
	if c := cause.CurrentCondition(e, mcsv1beta1.ServiceExportConditionReady); c != nil &&
		c.Status == metav1.ConditionTrue {
		s.Ready++
		if c.Reason == wellknown.ReasonUndeclaredAddresses {
			s.Undeclared = append(s.Undeclared, e.Namespace+"/"+e.Name)
		}
		return
	}
	s.NotReady++
	reason, message := cause.ExportReason(e)
	if s.Reasons == nil {
		s.Reasons = make(map[string]int)
	}
	s.Reasons[reason]++
	s.NotReadyExports = append(s.NotReadyExports, ServiceState{e.Namespace, e.Name, reason, message})
}
