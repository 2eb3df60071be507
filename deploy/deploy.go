// Package deploy holds the manifests and policies that make a cluster a broker or a member, as YAML of several
// documents. Treat them as constants.
//
// Each is applied to a real API server by a test, and the tests of the controller run under exactly these rights.
package deploy

import (
	"bytes"
	_ "embed"
)

// Version is that of the CRDs, policies and rights that a join and the initialisation of a broker write. Each release
// that changes any of them raises it by one. Objects without its annotation have version 1.
const Version = 2

// Broker is what a broker needs once, besides the definitions in [github.com/clusterset-dns/clusterset/api/crd]: what
// members may read, the share of the API server that they have together, and the admission policies
// (docs/spec/controller.md 7.6). The policy clusterset-broker-addresses takes effect by a binding for each member, made
// as it joins.
//
//go:embed broker/broker.yaml
var Broker []byte

// Member is what a member needs once: the admission policies for ClusterProperties (KEP-2149, section 7). They expect
// about.k8s.io/v1beta1; see [MemberV1alpha1].
//
//go:embed member/policies.yaml
var Member []byte

// MemberV1alpha1 is [Member] for a cluster that serves ClusterProperty at v1alpha1 alone. There, the policies of Member
// would reject every change of the cluster id, as the API server could not find what they look up.
func MemberV1alpha1() []byte {
	return bytes.ReplaceAll(Member, []byte("about.k8s.io/v1beta1"), []byte("about.k8s.io/v1alpha1"))
}

// Namespace is the Namespace clusterset-system. All of the manifests below need it.
//
//go:embed namespace/namespace.yaml
var Namespace []byte

// The service accounts and their rights: of the DNS server, of the controller, and of both in one process.
var (
	//go:embed dns/rbac.yaml
	DNSRBAC []byte
	//go:embed controller/rbac.yaml
	ControllerRBAC []byte
	//go:embed all-in-one/rbac.yaml
	AllInOneRBAC []byte
)
