package wellknown

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// MembersLease is a Lease in the controller's namespace for [AnnotationMembers].
const MembersLease = "clusterset-members"

// AnnotationMembers on [MembersLease] has a [Noted] of the controller (docs/spec/controller.md 7.4).
const AnnotationMembers = "clusterset-dns.io/members"

// Noted holds the state of members that the controller remembers, in case the broker is restored to an older state.
type Noted struct {
	Broker  types.UID              `json:"broker"`            // of the kube-system of the broker
	Members map[string]NotedMember `json:"members,omitempty"` // by cluster ID
	Removed map[string]Mark        `json:"removed,omitempty"` // by broker namespace
}

// A NotedMember holds the networks that the newest known Member of a cluster declares.
type NotedMember struct {
	UID               string   `json:"uid"` // of the kube-system of the cluster
	Stamp             int64    `json:"stamp,omitempty"`
	PodCIDRs          []string `json:"podCIDRs,omitempty"`
	ServiceCIDRs      []string `json:"serviceCIDRs,omitempty"`
	LoadBalancerCIDRs []string `json:"loadBalancerCIDRs,omitempty"`
	VIPCIDRs          []string `json:"vipCIDRs,omitempty"`
}

// A Mark is a broker namespace that was seen marked as removed.
type Mark struct {
	Which string    `json:"which"` // its identity, which differs for each join
	At    time.Time `json:"at"`    // when it was seen
}

// ParseNoted parses the annotation. The result is empty if the text is malformed or belongs to another broker.
func ParseNoted(text string, broker types.UID) Noted {
	var n Noted
	if json.Unmarshal([]byte(text), &n) != nil || n.Broker != broker {
		return Noted{Broker: broker}
	}
	return n
}

// String is the text of the annotation.
func (n Noted) String() string {
	text, err := json.Marshal(n)
	if err != nil {
		panic("wellknown: a Noted that JSON does not take: " + err.Error())
	}
	return string(text)
}

// NotedOf returns the note of a Member.
func NotedOf(m *v1alpha1.Member) NotedMember {
	s := &m.Spec
	return NotedMember{s.KubeSystemUID, m.Stamp(), s.PodCIDRs, s.ServiceCIDRs, s.LoadBalancerCIDRs, s.VIPCIDRs}
}

// Replaces reports whether m is an older Member of the same cluster. A new cluster with the same id has its own stamps.
func (n NotedMember) Replaces(m *v1alpha1.Member) bool {
	return n.Stamp > m.Stamp() && n.UID == m.Spec.KubeSystemUID
}

// Declare sets the noted networks in s.
func (n NotedMember) Declare(s *v1alpha1.MemberSpec) {
	s.PodCIDRs, s.ServiceCIDRs = n.PodCIDRs, n.ServiceCIDRs
	s.LoadBalancerCIDRs, s.VIPCIDRs = n.LoadBalancerCIDRs, n.VIPCIDRs
}
