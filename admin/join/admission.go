package join

import (
	"bytes"
	"cmp"
	_ "embed"
	"strconv"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
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

// completedBy completes q with the limits of an existing quota (nil: no quota), and with the defaults.
func (q Quota) completedBy(existing *corev1.ResourceQuota) Quota {
	has := func(name corev1.ResourceName) int64 {
		if existing == nil {
			return 0
		}
		limit := existing.Spec.Hard[name]
		return limit.Value()
	}
	usual := DefaultQuota()
	return Quota{
		Exports: cmp.Or(q.Exports, has("count/exportedservices."+broker.GroupName), usual.Exports),
		Slices:  cmp.Or(q.Slices, has("count/endpointslices.discovery.k8s.io"), usual.Slices),
		Leases:  cmp.Or(q.Leases, has("count/leases.coordination.k8s.io"), usual.Leases),
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
// The Member reserves the cluster id and the VIP CIDRs. Limits come before rights. Deleting in the opposite order takes
// the rights away before the limits.
func (a Admission) Objects() []runtime.Object {
	all := a.rendered()
	return append([]runtime.Object{a.member(), a.namespace()}, all[:len(all)-2]...)
}

// readMark returns what lets a cluster that was removed read that, and nothing else.
func (a Admission) readMark() []runtime.Object {
	all := a.rendered()
	return all[len(all)-2:]
}

//go:embed admission.yaml
var manifest string

var admissionTemplate = template.Must(template.New("admission").Funcs(template.FuncMap{
	"count": func(n int64) string { return resource.NewQuantity(n, resource.DecimalSI).String() },
}).Parse(manifest))

// rendered returns the objects of admission.yaml.
func (a Admission) rendered() (all []runtime.Object) {
	var text bytes.Buffer
	if err := admissionTemplate.Execute(&text, a); err != nil {
		panic("join: the template has fields of Admission only: " + err.Error())
	}
	for _, o := range read.Parse(text.Bytes()) {
		o.SetLabels(a.labels())
		all = append(all, o)
	}
	return all
}

func (a Admission) labels() map[string]string {
	return map[string]string{broker.LabelManagedBy: broker.ManagedBy, broker.LabelClusterID: a.ClusterID}
}

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
	n := &corev1.Namespace{TypeMeta: typeMeta("v1", "Namespace"), ObjectMeta: metav1.ObjectMeta{
		Name: a.Spec.Namespace, Labels: a.labels(), Annotations: a.Grant.Annotations(),
	}}
	if a.Joined != "" {
		n.Annotations[broker.AnnotationJoined] = a.Joined
	}
	return n
}
