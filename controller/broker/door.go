package broker

import (
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// The indexes of what is read.
const (
	byService   = "service"   // "<name>.<namespace>" of the service
	byAddress   = "address"   // each address of a VIP
	byNamespace = "namespace" // the broker namespace that a Member names
)

// dropUnused forgets what nobody reads of a record or slice: others wrote it, so it may be large.
func dropUnused(obj any) (any, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return obj, nil
	}
	m.SetManagedFields(nil)
	m.SetOwnerReferences(nil)
	m.SetFinalizers(nil)
	m.SetLabels(keep(m.GetLabels(), mcsv1beta1.LabelServiceName, mcsv1beta1.LabelSourceCluster, broker.LabelSourceNamespace,
		broker.LabelManagedBy, discoveryv1.LabelManagedBy))
	m.SetAnnotations(keep(m.GetAnnotations(), corev1.EndpointsLastChangeTriggerTime))
	return obj, nil
}

func keep(all map[string]string, keys ...string) map[string]string {
	var kept map[string]string
	for _, key := range keys {
		if value, ok := all[key]; ok {
			if kept == nil {
				kept = make(map[string]string)
			}
			kept[key] = value
		}
	}
	return kept
}

// memberNamespace indexes a Member.
func memberNamespace(obj any) ([]string, error) {
	return []string{obj.(*v1alpha1.Member).Spec.Namespace}, nil
}

// recordService indexes an export record by its name.
func recordService(obj any) ([]string, error) {
	return wellFormed(obj.(*v1alpha1.ExportedService).Name), nil
}

// sliceService indexes a slice by its labels.
func sliceService(obj any) ([]string, error) {
	s := obj.(*discoveryv1.EndpointSlice)
	return wellFormed(broker.RecordName(s.Labels[broker.LabelSourceNamespace], s.Labels[mcsv1beta1.LabelServiceName])), nil
}

func wellFormed(record string) []string {
	if _, ok := serviceOf(record); !ok {
		return nil
	}
	return []string{record}
}

// serviceOf returns the service whose export record has a name.
func serviceOf(record string) (types.NamespacedName, bool) {
	name, namespace, _ := strings.Cut(record, ".")
	return types.NamespacedName{Namespace: namespace, Name: name}, broker.IsLabel(name) && broker.IsLabel(namespace)
}

func recordOf(svc types.NamespacedName) string { return broker.RecordName(svc.Namespace, svc.Name) }

// recordAddresses indexes an export record by the canonical addresses of its VIP.
func recordAddresses(obj any) ([]string, error) {
	vip := obj.(*v1alpha1.ExportedService).Spec.VIP
	if vip == nil || vip.Validate() != nil {
		return nil, nil
	}
	return vip.IPs, nil
}

// admitted returns the cluster whose broker namespace has a name, and when that was made. The id is that of the namespace's
// label; it counts while the Member of that id names the namespace.
func (b *Broker) admitted(namespace string) (id string, since metav1.Time, err error) {
	item, ok, _ := b.namespaces.GetStore().GetByKey(namespace)
	if !ok {
		return "", since, fmt.Errorf("namespace %.80q: want the label %s", namespace, broker.LabelClusterID)
	}
	ns := item.(*corev1.Namespace)
	id = ns.Labels[broker.LabelClusterID]
	if !broker.IsClusterID(id) {
		return "", since, fmt.Errorf("cluster id %.80q: want one RFC 1123 label, or two joined by one dot", id)
	}
	item, ok, _ = b.members.GetStore().GetByKey(id)
	if !ok {
		return "", since, fmt.Errorf("cluster id %s: want that of a Member", id)
	}
	if m := item.(*v1alpha1.Member); m.Spec.Namespace != namespace || m.Validate() != nil {
		return "", since, fmt.Errorf("namespace %s: want that of Member %s", namespace, id)
	}
	return id, ns.CreationTimestamp, nil
}

// admitRecord returns a record as it counts, or says why it does not.
func (b *Broker) admitRecord(r *v1alpha1.ExportedService) (merge.Record, *merge.Refusal) {
	refuse := func(cluster string, reason merge.Reason, err error) (merge.Record, *merge.Refusal) {
		return merge.Record{}, &merge.Refusal{Cluster: cluster, Object: r.Name, Reason: reason, Detail: err.Error()}
	}
	id, since, err := b.admitted(r.Namespace)
	if err != nil {
		return refuse("", merge.BadCluster, err)
	}
	if err := r.Spec.Validate(); err != nil {
		return refuse(id, merge.BadRecord, err)
	}
	svc := types.NamespacedName{Namespace: r.Spec.Namespace, Name: r.Spec.Name}
	if want := recordOf(svc); r.Name != want {
		return refuse(id, merge.BadName, fmt.Errorf("record %.80q: want %s, as it says itself", r.Name, want))
	}
	if err := agree(r.Labels, svc, id); err != nil {
		return refuse(id, merge.BadName, err)
	}
	return merge.Record{Cluster: id, Admitted: since, Created: r.CreationTimestamp, Spec: r.Spec}, nil
}

// admitSlice says why a slice does not count, or returns the cluster whose it is. What it holds is the merge's to check.
func (b *Broker) admitSlice(s *discoveryv1.EndpointSlice) (string, *merge.Refusal) {
	refuse := func(cluster string, reason merge.Reason, err error) (string, *merge.Refusal) {
		return "", &merge.Refusal{Cluster: cluster, Object: s.Name, Reason: reason, Detail: err.Error()}
	}
	id, _, err := b.admitted(s.Namespace)
	if err != nil {
		return refuse("", merge.BadCluster, err)
	}
	svc := types.NamespacedName{Namespace: s.Labels[broker.LabelSourceNamespace], Name: s.Labels[mcsv1beta1.LabelServiceName]}
	if !broker.IsLabel(svc.Namespace) || !broker.IsLabel(svc.Name) {
		return refuse(id, merge.BadName, fmt.Errorf("labels of service %.80q: want one RFC 1123 label each of namespace and name", svc.String()))
	}
	hash, ok := strings.CutPrefix(s.Name, recordOf(svc)+".")
	if !ok || len(hash) != 16 || strings.Trim(hash, "0123456789abcdef") != "" {
		return refuse(id, merge.BadName, fmt.Errorf("slice %.80q: want %s and 16 hex digits", s.Name, recordOf(svc)+"."))
	}
	if err := agree(s.Labels, svc, id); err != nil {
		return refuse(id, merge.BadName, err)
	}
	return id, nil
}

// agree compares what labels say with what the place of an object says.
func agree(labels map[string]string, svc types.NamespacedName, cluster string) error {
	for _, want := range [][2]string{
		{mcsv1beta1.LabelSourceCluster, cluster},
		{mcsv1beta1.LabelServiceName, svc.Name},
		{broker.LabelSourceNamespace, svc.Namespace},
	} {
		if got := labels[want[0]]; got != want[1] {
			return fmt.Errorf("label %s %.80q: want %s", want[0], got, want[1])
		}
	}
	return nil
}

// refusals tells of each version of an object once.
type refusals struct {
	mu   sync.Mutex
	told map[string]string // version and reason by kind and key; only of what is there and refused
}

// judge tells of a refusal, or with nil forgets an earlier one.
func (b *Broker) judge(obj metav1.Object, kind string, r *merge.Refusal) {
	key := kind + "/" + obj.GetNamespace() + "/" + obj.GetName()
	b.refusals.mu.Lock()
	if r == nil {
		delete(b.refusals.told, key)
		b.refusals.mu.Unlock()
		return
	}
	verdict := string(obj.GetUID()) + " " + obj.GetResourceVersion() + " " + string(r.Reason)
	news := b.refusals.told[key] != verdict
	b.refusals.told[key] = verdict
	b.refusals.mu.Unlock()
	if news {
		b.cfg.Refused(*r)
	}
}

// The kinds that judge tells apart.
const (
	aRecord = "ExportedService"
	aSlice  = "EndpointSlice"
)

// judgeRecord returns a record as it counts, and whether it does; if not, it tells.
func (b *Broker) judgeRecord(r *v1alpha1.ExportedService) (merge.Record, bool) {
	record, refused := b.admitRecord(r)
	b.judge(r, aRecord, refused)
	return record, refused == nil
}

// judgeSlice returns the cluster whose slice counts, and whether it does; if not, it tells.
func (b *Broker) judgeSlice(s *discoveryv1.EndpointSlice) (string, bool) {
	id, refused := b.admitSlice(s)
	b.judge(s, aSlice, refused)
	return id, refused == nil
}
