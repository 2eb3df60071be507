package memberenv

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// An Env is an API server that is a member and its own broker, without a controller.
type Env struct {
	*testing.T
	Server *controlplane.ControlPlane
	Admin  *apiserver.Client
	System types.UID    // of kube-system
	Kinds  member.Kinds // of the instances that start

	dir    string
	owners map[string]*owner // of the other members, by their namespaces
	last   int64             // stamp
}

// An owner stands for the controller of a member of [Env.AddMember]: it stamps the objects that a test writes, and
// keeps inventory and lists right (docs/spec/controller.md 2.6).
type owner struct {
	*Env
	namespace string
	parts     map[string]*v1alpha1.Inventory
	from      map[string]int64            // by record: the stamp of the inventory that ended it
	claims    map[string][]v1alpha1.Claim // by record
	uids      map[string]string           // of the listed ServiceExports, by record
}

// ownerOf returns the owner of a record or slice, or nil.
func (e *Env) ownerOf(o apiserver.Object) *owner {
	switch o.(type) {
	case *v1alpha1.ExportedService, *discoveryv1.EndpointSlice:
		return e.owners[o.GetNamespace()]
	}
	return nil
}

// stamp returns the next stamp.
func (e *Env) stamp() int64 {
	e.last = max(e.last+1, time.Now().UnixMicro())
	return e.last
}

// exportUID returns the UID of the ServiceExport of a record of another member.
func exportUID(namespace, record string) string {
	return "00000000-0000-4000-8000-" + apibroker.Hash(12, namespace, record)
}

// stampOn stamps an object before it is written.
func (w *owner) stampOn(o apiserver.Object) {
	switch o := o.(type) {
	case *v1alpha1.ExportedService:
		o.Spec.Stamp, o.Spec.ExportUID, o.Spec.Slices = w.stamp(), exportUID(w.namespace, o.Name), w.slicesOf(o.Name, "")
	case *discoveryv1.EndpointSlice:
		record, _ := split(o.Name)
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, apibroker.AnnotationStamp, strconv.FormatInt(w.stamp(), 10))
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, apibroker.AnnotationExportUID, exportUID(w.namespace, record))
	}
}

// slicesOf returns the ends of the names of the slices of a record, but for one.
func (w *owner) slicesOf(record, without string) (ends []string) {
	all := &discoveryv1.EndpointSliceList{}
	if err := w.Admin.List(w.Context(), &discoveryv1.EndpointSlice{}, all, w.namespace, ""); err != nil {
		w.Fatal(err)
	}
	for i := range all.Items {
		if of, hash := split(all.Items[i].Name); of == record && hash != without {
			ends = append(ends, hash)
		}
	}
	slices.Sort(ends)
	return ends
}

// split returns the name of the record of a slice, and the end of its name.
func split(slice string) (record, hash string) {
	hash = apibroker.SliceHash(slice)
	return strings.TrimSuffix(slice, "."+hash), hash
}

// list lists a record that is to be written.
func (w *owner) list(o apiserver.Object) {
	if r, ok := o.(*v1alpha1.ExportedService); ok && r.Name == apibroker.RecordName(r.Spec.Namespace, r.Spec.Name) {
		w.replace(r.Name, r.Spec.ExportUID)
	}
}

// end ends an export, or takes a slice off the list of its record, before it is deleted.
func (w *owner) end(o apiserver.Object) {
	switch o := o.(type) {
	case *v1alpha1.ExportedService:
		w.replace(o.Name, "")
		w.from[o.Name] = w.last
	case *discoveryv1.EndpointSlice:
		name, hash := split(o.Name)
		record := &v1alpha1.ExportedService{}
		switch err := w.Admin.Get(w.Context(), record, w.namespace, name); {
		case apierrors.IsNotFound(err):
		case err != nil:
			w.Fatal(err)
		default:
			record.Spec.Stamp, record.Spec.Slices = w.stamp(), w.slicesOf(name, hash)
			if err := w.Admin.Update(w.Context(), record); err != nil {
				w.Fatal(err)
			}
		}
	}
}

// replace sets the UID of a record in the inventory, or with "" ends its export. Claims stay.
func (w *owner) replace(record, uid string) {
	service, namespace, _ := strings.Cut(record, ".")
	name := apibroker.InventoryPart(namespace, service)
	part, exists := w.parts[name]
	if !exists {
		part = &v1alpha1.Inventory{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
		w.parts[name] = part
	}
	was := slices.Clone(part.Spec.Exports)
	all := slices.DeleteFunc(slices.Clone(was), func(e v1alpha1.InventoryEntry) bool { return e.Name == record })
	w.uids[record] = uid
	entry := v1alpha1.InventoryEntry{Name: record, UID: uid, Claims: w.claims[record]}
	if uid != "" {
		entry.From = w.from[record]
	}
	if uid != "" || len(entry.Claims) > 0 {
		all = append(all, entry)
	}
	slices.SortFunc(all, func(a, b v1alpha1.InventoryEntry) int { return strings.Compare(a.Name, b.Name) })
	if reflect.DeepEqual(was, all) {
		return
	}
	part.Spec.Exports, part.Spec.Stamp = all, w.stamp()
	err := w.Admin.Update(w.Context(), part)
	if !exists || apierrors.IsNotFound(err) { // see Lose
		part.ResourceVersion, part.UID = "", ""
		err = w.Admin.Create(w.Context(), part)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// Claim replaces the claims of a member for a service, in the inventory in its broker namespace.
func (e *Env) Claim(namespace string, svc types.NamespacedName, since time.Time, ips ...string) {
	e.Helper()
	w, record := e.owners[namespace], apibroker.RecordName(svc.Namespace, svc.Name)
	w.claims[record] = nil
	for _, ip := range ips {
		w.claims[record] = append(w.claims[record], v1alpha1.Claim{IP: ip, Since: since.UnixMicro()})
	}
	w.replace(record, w.uids[record])
}

// current gives a record or slice that is to be written the version that it has by now: the owner may have changed it.
func (w *owner) current(o apiserver.Object) {
	is := o.DeepCopyObject().(apiserver.Object)
	if err := w.Admin.Get(w.Context(), is, o.GetNamespace(), o.GetName()); err != nil {
		w.Fatal(err)
	}
	o.SetResourceVersion(is.GetResourceVersion())
	o.SetUID(is.GetUID())
}

// Lose deletes objects without a word of their owner, as a broker does that was restored.
func (e *Env) Lose(objects ...apiserver.Object) {
	e.Helper()
	for _, o := range objects {
		if err := e.Admin.Delete(e.Context(), o); err != nil {
			e.Fatal(err)
		}
	}
}
