package join

import (
	"cmp"
	"strconv"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// Names of objects on a broker. Init creates the first three; every member refers to them.
const (
	memberRole      = "clusterset-member"           // ClusterRole: read what all members write
	priorityLevel   = "clusterset-members"          // PriorityLevelConfiguration
	addressesPolicy = "clusterset-broker-addresses" // ValidatingAdmissionPolicy, bound once for each member

	perMember     = "member"         // Role, RoleBinding and ResourceQuota in each broker namespace
	removedMember = "removed-member" // Role and RoleBinding in the broker namespace of a cluster that was removed

	mcsGroup    = "multicluster.x-k8s.io" // of ServiceImport
	slicesGroup = "discovery.k8s.io"      // of EndpointSlice
	leasesGroup = "coordination.k8s.io"   // of Lease
	rbacGroup   = rbacv1.GroupName        // of Role

	flowPrecedence = 1000 // before "service-accounts" (9000), after the FlowSchemas of the control plane
)

// wantClusterID completes the errors about a cluster id that is not valid.
const wantClusterID = "want one RFC 1123 label, or two joined by a dot, of at most 63 octets"

// Quota limits how many objects a member may have on the broker. Each limit is at least 1. In [Options], 0 keeps
// the limit of the member, or is that of [DefaultQuota].
type Quota struct {
	Exports int64 // ExportedServices, and as many ServiceImports with "aggregate_view on"
	Slices  int64 // EndpointSlices
	Leases  int64 // a member needs one
}

// DefaultQuota is near what members need: every controller holds the objects of all members in memory. A slice has at
// most 1,000 endpoints, and most have at most 100. So many of the largest slices and records fit into the memory that
// deploy/controller gives a controller (docs/spec/controller.md 9.6).
func DefaultQuota() Quota { return Quota{Exports: 1000, Slices: 2000, Leases: 1} }

// The resources that a quota counts.
const (
	countRecords = "count/exportedservices." + broker.GroupName
	countImports = "count/serviceimports." + mcsGroup
	countSlices  = "count/endpointslices." + slicesGroup
	countLeases  = "count/leases." + leasesGroup
)

// or completes q with the limits of an existing quota (nil: no quota), and with the defaults.
func (q Quota) or(existing *corev1.ResourceQuota) Quota {
	has := func(name corev1.ResourceName) int64 {
		if existing == nil {
			return 0
		}
		limit := existing.Spec.Hard[name]
		return limit.Value()
	}
	usual := DefaultQuota()
	return Quota{
		Exports: cmp.Or(q.Exports, has(countRecords), usual.Exports),
		Slices:  cmp.Or(q.Slices, has(countSlices), usual.Slices),
		Leases:  cmp.Or(q.Leases, has(countLeases), usual.Leases),
	}
}

// An Admission describes one member to the broker: its id, its networks and its limits.
type Admission struct {
	ClusterID  string
	ClusterSet string // name of the clusterset, for an annotation of the Member; no annotation if empty
	Spec       v1alpha1.MemberSpec
	Stamp      int64 // of the Member
	Quota      Quota
	Grant      broker.Grant // of tokens
	Joined     string       // distinguishes this join from earlier ones; "" where the namespace does
}

// Objects returns all objects of a member on the broker, in the order in which they have to be written.
//
// The Member reserves the cluster id and the VIP CIDR. Limits come before rights. Deleting in the opposite order takes
// the rights away before the limits.
func (a Admission) Objects() []runtime.Object {
	return []runtime.Object{
		a.member(), a.namespace(), a.policyBinding(), a.quota(), a.flowSchema(),
		a.serviceAccount(), a.role(), a.statusRole(), a.roleBinding(),
		a.clusterRoleBinding(a.clusterName(), a.clusterName()),
		a.clusterRoleBinding("clusterset-read-"+a.Spec.Namespace, memberRole),
	}
}

// clusterName is the name of the cluster-scoped objects of this member.
func (a Admission) clusterName() string { return "clusterset-" + a.Spec.Namespace }

func (a Admission) meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
		broker.LabelManagedBy: broker.ManagedBy, broker.LabelClusterID: a.ClusterID,
	}}
}

func (a Admission) local() metav1.ObjectMeta { return a.meta(a.Spec.Namespace, perMember) }

func (a Admission) member() *v1alpha1.Member {
	m := &v1alpha1.Member{
		TypeMeta:   typeMeta(v1alpha1.GroupVersion.String(), "Member"),
		ObjectMeta: metav1.ObjectMeta{Name: a.ClusterID},
		Spec:       *a.Spec.DeepCopy(),
	}
	m.Annotations = map[string]string{broker.AnnotationStamp: strconv.FormatInt(a.Stamp, 10)}
	if a.ClusterSet != "" {
		m.Annotations[broker.AnnotationClusterSet] = a.ClusterSet
	}
	return m
}

func (a Admission) namespace() *corev1.Namespace {
	n := &corev1.Namespace{TypeMeta: typeMeta("v1", "Namespace"), ObjectMeta: a.meta("", a.Spec.Namespace)}
	n.Annotations = a.Grant.Annotations()
	if a.Joined != "" {
		n.Annotations[broker.AnnotationJoined] = a.Joined
	}
	return n
}

// policyBinding restricts the addresses that the member writes to the networks that its Member declares.
func (a Admission) policyBinding() *admissionv1.ValidatingAdmissionPolicyBinding {
	deny := admissionv1.DenyAction
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   typeMeta("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
		ObjectMeta: a.meta("", a.clusterName()),
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        addressesPolicy,
			ParamRef:          &admissionv1.ParamRef{Name: a.ClusterID, ParameterNotFoundAction: &deny},
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{broker.LabelClusterID: a.ClusterID},
			}},
		},
	}
}

func (a Admission) quota() *corev1.ResourceQuota {
	count := func(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
	return &corev1.ResourceQuota{
		TypeMeta: typeMeta("v1", "ResourceQuota"), ObjectMeta: a.local(),
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			countRecords: count(a.Quota.Exports), countImports: count(a.Quota.Exports),
			countSlices: count(a.Quota.Slices), countLeases: count(a.Quota.Leases),
		}},
	}
}

// flowSchema gives all requests of the member to the broker a queue of their own.
func (a Admission) flowSchema() *flowcontrolv1.FlowSchema {
	all := []string{"*"}
	return &flowcontrolv1.FlowSchema{
		TypeMeta:   typeMeta("flowcontrol.apiserver.k8s.io/v1", "FlowSchema"),
		ObjectMeta: a.meta("", a.clusterName()),
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: priorityLevel},
			MatchingPrecedence:         flowPrecedence,
			DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{
				Type: flowcontrolv1.FlowDistinguisherMethodByUserType,
			},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{
					Kind:           flowcontrolv1.SubjectKindServiceAccount,
					ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: a.Spec.Namespace, Name: broker.ServiceAccount},
				}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: all, APIGroups: all, Resources: all, Namespaces: all, ClusterScope: true,
				}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
			}},
		},
	}
}

func (a Admission) serviceAccount() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta: typeMeta("v1", "ServiceAccount"), ObjectMeta: a.meta(a.Spec.Namespace, broker.ServiceAccount),
	}
}

// role lets the member write in its own namespace and renew its own credential.
func (a Admission) role() *rbacv1.Role {
	records := []string{"get", "list", "watch", "create", "patch", "delete"}
	return &rbacv1.Role{
		TypeMeta: typeMeta(rbacGroup+"/v1", "Role"), ObjectMeta: a.local(),
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{broker.GroupName}, Resources: []string{"exportedservices", "inventories"}, Verbs: records},
			{APIGroups: []string{slicesGroup}, Resources: []string{"endpointslices"}, Verbs: records},
			{APIGroups: []string{mcsGroup}, Resources: []string{"serviceimports"}, Verbs: records},
			{APIGroups: []string{mcsGroup}, Resources: []string{"serviceimports/status"}, Verbs: []string{"patch"}},
			// RBAC cannot restrict the name of an object that is created. The quota allows one Lease.
			{APIGroups: []string{leasesGroup}, Resources: []string{"leases"}, Verbs: []string{"create"}},
			{
				APIGroups: []string{leasesGroup}, Resources: []string{"leases"}, ResourceNames: []string{broker.HeartbeatName},
				Verbs: []string{"get", "patch"},
			},
			{
				APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"},
				ResourceNames: []string{broker.ServiceAccount}, Verbs: []string{"create"},
			},
		},
	}
}

// statusRole lets the member write the status of its own Member.
func (a Admission) statusRole() *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta: typeMeta(rbacGroup+"/v1", "ClusterRole"), ObjectMeta: a.meta("", a.clusterName()),
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{broker.GroupName}, Resources: []string{"members/status"},
			ResourceNames: []string{a.ClusterID}, Verbs: []string{"patch"},
		}},
	}
}

func (a Admission) subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.Spec.Namespace, Name: broker.ServiceAccount}}
}

func (a Admission) roleBinding() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta: typeMeta(rbacGroup+"/v1", "RoleBinding"), ObjectMeta: a.local(),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacGroup, Kind: "Role", Name: perMember}, Subjects: a.subjects(),
	}
}

// readMark lets a cluster that was removed read that, and nothing else.
func (a Admission) readMark() (*rbacv1.Role, *rbacv1.RoleBinding) {
	role, binding := a.role(), a.roleBinding()
	role.Name, binding.Name, binding.RoleRef.Name = removedMember, removedMember, removedMember
	role.Rules = []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{a.Spec.Namespace},
		Verbs: []string{"get"},
	}}
	return role, binding
}

func (a Admission) clusterRoleBinding(name, role string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta: typeMeta(rbacGroup+"/v1", "ClusterRoleBinding"), ObjectMeta: a.meta("", name),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacGroup, Kind: "ClusterRole", Name: role}, Subjects: a.subjects(),
	}
}
