package broker

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// The indexes for reads.
const (
	byService   = "service"   // "<name>.<namespace>" of the service
	byNamespace = "namespace" // the broker namespace that a Member names
	byOwner     = "owner"     // "<broker namespace>/<name>.<namespace>" of the service of a slice
)

// dropUnused removes the fields of a record or slice that the controller does not read: other members wrote them, so
// they may be large.
func dropUnused(obj any) (any, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return obj, nil
	}
	m.SetManagedFields(nil)
	m.SetOwnerReferences(nil)
	m.SetFinalizers(nil)
	m.SetLabels(onlyKeys(m.GetLabels(), mcsv1beta1.LabelServiceName, mcsv1beta1.LabelSourceCluster,
		broker.LabelSourceNamespace,
		broker.LabelManagedBy, discoveryv1.LabelManagedBy, broker.LabelForZone, broker.LabelForRegion))
	m.SetAnnotations(onlyKeys(m.GetAnnotations(), corev1.EndpointsLastChangeTriggerTime, broker.AnnotationStamp,
		broker.AnnotationExportUID))
	return obj, nil
}

// maxZones is how many zones the endpoints of one slice of another member have. Kubernetes divides endpoints into
// slices of 100.
const maxZones = 100

// dropUnusedOfSlice is dropUnused for slices. Own slices stay complete: exports are compared with them.
func dropUnusedOfSlice(own string) cache.TransformFunc {
	return func(obj any) (any, error) {
		if s, ok := obj.(*discoveryv1.EndpointSlice); ok && s.Namespace != own {
			shrink(s)
		}
		return dropUnused(obj)
	}
}

// shrink drops application protocols, which the record has, spare capacity, and zones beyond maxZones. Endpoints of one
// zone share its name.
func shrink(s *discoveryv1.EndpointSlice) {
	s.Endpoints = slices.Clone(s.Endpoints)
	zones := make(map[string]*string)
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if e.Zone == nil {
			continue
		}
		if zones[*e.Zone] == nil && len(zones) < maxZones {
			zones[*e.Zone] = e.Zone
		}
		e.Zone = zones[*e.Zone]
	}
	for i := range s.Ports {
		s.Ports[i].AppProtocol = nil
	}
}

func onlyKeys(all map[string]string, keys ...string) map[string]string {
	var retained map[string]string
	for _, key := range keys {
		if value, ok := all[key]; ok {
			if retained == nil {
				retained = make(map[string]string)
			}
			retained[key] = value
		}
	}
	return retained
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

// sliceOwner indexes a slice by its namespace and its labels: the slices of one member must not cost those of others a
// look.
func sliceOwner(obj any) ([]string, error) {
	record, err := sliceService(obj)
	if len(record) > 0 {
		record[0] = obj.(*discoveryv1.EndpointSlice).Namespace + "/" + record[0]
	}
	return record, err
}

func wellFormed(record string) []string {
	if _, ok := ServiceOf(record); !ok {
		return nil
	}
	return []string{record}
}

// ServiceOf parses the name of an export record.
func ServiceOf(record string) (types.NamespacedName, bool) {
	name, namespace, _ := strings.Cut(record, ".")
	return types.NamespacedName{Namespace: namespace, Name: name}, broker.IsLabel(name) && broker.IsLabel(namespace)
}

func recordOf(svc types.NamespacedName) string { return broker.RecordName(svc.Namespace, svc.Name) }

// indexed returns the objects that an index has under value.
func indexed[T any](informer cache.SharedIndexInformer, index, value string) []T {
	items, err := informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		panic("broker: " + err.Error())
	}
	objects := make([]T, len(items))
	for i, item := range items {
		objects[i] = item.(T)
	}
	return objects
}

func isIndexed(informer cache.SharedIndexInformer, index, value string) bool {
	keys, err := informer.GetIndexer().IndexKeys(index, value)
	return err == nil && len(keys) > 0
}

func sortServices(services []types.NamespacedName) []types.NamespacedName {
	slices.SortFunc(services, func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(services)
}
