package desired

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// Changes turn the existing objects into the desired ones. Deletions go first: slices, Service, import. Then import,
// Service and slices are created and updated. A slice that is deleted alone, and not made anew, goes last: others may
// have its endpoints.
type Changes struct {
	Create, Update, Delete Objects
	// Status is the import with the status to apply, or nil; conditions of others are not in it. A condition without a
	// LastTransitionTime changes now.
	Status *mcsv1beta1.ServiceImport
	// ServiceStatus is the derived Service, which exists, with the status to apply, or nil.
	ServiceStatus *corev1.Service
	// Foreign has, sorted, the foreign objects with the name of a desired one. They are left alone.
	Foreign []string
	// Blocked are the desired slices that Foreign names: endpoints that should be in one of them must not leave the slice
	// in which they are.
	Blocked []*discoveryv1.EndpointSlice
}

// Empty reports whether there is nothing to write.
func (c Changes) Empty() bool {
	none := func(o Objects) bool { return o.Import == nil && o.Service == nil && len(o.Slices) == 0 }
	return none(c.Create) && none(c.Update) && none(c.Delete) && c.Status == nil && c.ServiceStatus == nil
}

// Diff compares our fields and returns the necessary writes, sharing no memory with existing.
//
// existing may hold objects that are not ours; they are never changed nor deleted. To find a label or annotation that
// is ours no more, it has to have the managedFields of [wellknown.ManagerImporter]. An update is the desired object
// with the UID and the resource version of the one that was compared; [Patch] writes it. In place of the other it would
// lack what others own, and to apply it would leave what others have put into our fields. To be deleted are objects
// that exist, as they are.
func Diff(desired, existing Objects) Changes {
	var c Changes
	c.diffImport(desired.Import, existing.Import)
	c.diffService(desired.Service, existing.Service)
	c.diffSlices(desired.Slices, existing.Slices)
	slices.Sort(c.Foreign)
	return c
}

func (c *Changes) diffImport(desired, existing *mcsv1beta1.ServiceImport) {
	switch {
	case existing == nil && desired == nil:
	case existing == nil:
		c.Create.Import = desired.DeepCopy()
	case existing.Labels[broker.LabelManagedBy] != broker.ManagedBy:
		if desired != nil {
			c.addForeign("ServiceImport", existing)
		}
	case desired == nil:
		c.Delete.Import = existing.DeepCopy()
	default:
		if len(metaChanges(desired, existing)) > 0 || !equality.Semantic.DeepEqual(desired.Spec, existing.Spec) {
			c.Update.Import = desired.DeepCopy()
			follow(c.Update.Import, existing)
		}
		if status, same := nextStatus(desired.Status, existing.Status); !same {
			c.Status = desired.DeepCopy()
			c.Status.Status = status
			follow(c.Status, existing)
		}
	}
}

// nextStatus returns the desired status with the unchanged times of transition, and whether it equals existing.
func nextStatus(desired, existing mcsv1beta1.ServiceImportStatus) (mcsv1beta1.ServiceImportStatus, bool) {
	status := *desired.DeepCopy()
	same := status.EndpointSliceObjects == existing.EndpointSliceObjects &&
		slices.Equal(status.Clusters, existing.Clusters)
	for i := range status.Conditions {
		current := &status.Conditions[i]
		before := meta.FindStatusCondition(existing.Conditions, current.Type)
		if before != nil && before.Status == current.Status {
			current.LastTransitionTime = before.LastTransitionTime
		}
		same = same && before != nil && *before == *current
	}
	return status, same
}

// diffService changes a Service in place, also its type: one that is deleted first is gone if a quota or a policy
// denies the other one. It keeps the primary family of an existing Service, which cannot change: made anew, the Service
// would have other addresses. It stays although no export has it any more, and the others are added. A Service without
// addresses, or a load balancer of another class, cannot be changed in place and is recreated.
func (c *Changes) diffService(desired, existing *corev1.Service) {
	switch {
	case existing == nil && desired == nil:
	case existing == nil:
		c.Create.Service = desired.DeepCopy()
	case !IsDerived(existing):
		if desired != nil {
			c.addForeign("Service", existing)
		}
	case desired == nil:
		if ImportName(existing) != "" {
			c.Delete.Service = existing.DeepCopy()
		}
	default:
		next := desired.DeepCopy()
		otherClass := existing.Spec.Type == corev1.ServiceTypeLoadBalancer && next.Spec.Type == existing.Spec.Type &&
			ptr.Deref(existing.Spec.LoadBalancerClass, "") != ptr.Deref(next.Spec.LoadBalancerClass, "")
		if existing.Spec.Type == corev1.ServiceTypeExternalName || existing.Spec.ClusterIP == corev1.ClusterIPNone ||
			otherClass {
			c.Delete.Service, c.Create.Service = existing.DeepCopy(), next
			return
		}
		keepPrimary(&next.Spec, &existing.Spec)
		if len(metaChanges(next, existing)) > 0 || !sameService(&next.Spec, &existing.Spec) {
			follow(next, existing)
			c.Update.Service = next
		}
		if !sameIngress(next.Status.LoadBalancer.Ingress, existing.Status.LoadBalancer.Ingress) {
			c.ServiceStatus = next.DeepCopy()
			follow(c.ServiceStatus, existing)
		}
	}
}

// sameIngress compares addresses of a load balancer. Without a mode the mode is VIP, as in Kubernetes before 1.30.
func sameIngress(desired, existing []corev1.LoadBalancerIngress) bool {
	return slices.EqualFunc(desired, existing, func(a, b corev1.LoadBalancerIngress) bool {
		return a.IP == b.IP && b.Hostname == "" && (b.IPMode == nil || *b.IPMode == corev1.LoadBalancerIPModeVIP)
	})
}

// IsDerived reports whether an importer has derived the Service from an import: it has our mark, and the label of the
// import that its name follows from; the import may be gone. Without the label it still counts as derived where an
// import wants that name, but is not deleted.
func IsDerived(s *corev1.Service) bool {
	imp := ImportName(s)
	return s.Labels[broker.LabelManagedBy] == broker.ManagedBy && (imp == "" || DerivedName(s.Namespace, imp) == s.Name)
}

// IsImported reports whether an importer has made the slice: it has our mark, and is no slice of the broker, which has
// the same mark.
func IsImported(e *discoveryv1.EndpointSlice) bool {
	_, exported := e.Labels[broker.LabelSourceNamespace]
	return e.Labels[discoveryv1.LabelManagedBy] == broker.ManagedBy && !exported
}

// ImportName returns the name of the import that o, a slice or a Service, has the label of, "" without one.
//
// There is no owner reference: if the CRD of ServiceImport is deleted, the garbage collector would delete slices and
// Services, with their addresses.
func ImportName(o metav1.Object) string { return o.GetLabels()[mcsv1beta1.LabelServiceName] }

// keepPrimary gives next the primary family of existing.
func keepPrimary(next, existing *corev1.ServiceSpec) {
	if len(existing.IPFamilies) == 0 {
		return
	}
	primary := existing.IPFamilies[0]
	others := slices.DeleteFunc(slices.Clone(next.IPFamilies), func(f corev1.IPFamily) bool { return f == primary })
	next.IPFamilies = append([]corev1.IPFamily{primary}, others...)
	next.IPFamilyPolicy = policyOf(next.IPFamilies)
}

// sameService compares specs without the fields that the API server allocates.
func sameService(desired, existing *corev1.ServiceSpec) bool {
	return equality.Semantic.DeepEqual(defaulted(desired), defaulted(existing))
}

// defaulted returns a spec without the fields that the API server allocates, and with its defaults in the others. No
// proxy reads the target ports of a Service without selector.
func defaulted(spec *corev1.ServiceSpec) *corev1.ServiceSpec {
	s := spec.DeepCopy()
	s.ClusterIP, s.ClusterIPs, s.HealthCheckNodePort = "", nil, 0
	for i := range s.Ports {
		p := &s.Ports[i]
		p.NodePort, p.TargetPort = 0, intstr.IntOrString{}
		if ptr.Deref(p.AppProtocol, "") == "" {
			p.AppProtocol = nil
		}
	}
	s.SessionAffinity = cmp.Or(s.SessionAffinity, corev1.ServiceAffinityNone)
	if c := s.SessionAffinityConfig; s.SessionAffinity == corev1.ServiceAffinityClientIP &&
		(c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil) {
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(corev1.DefaultClientIPServiceAffinitySeconds)},
		}
	}
	s.InternalTrafficPolicy = cmp.Or(s.InternalTrafficPolicy, new(corev1.ServiceInternalTrafficPolicyCluster))
	return s
}

// diffSlices matches slices by name. The address type of a slice cannot change, so such a slice is made anew.
func (c *Changes) diffSlices(desired, existing []*discoveryv1.EndpointSlice) {
	byName := make(map[string]*discoveryv1.EndpointSlice, len(existing))
	for _, e := range existing {
		byName[e.Name] = e
	}
	for _, d := range desired {
		e := byName[d.Name]
		delete(byName, d.Name)
		switch {
		case e == nil:
			c.Create.Slices = append(c.Create.Slices, d.DeepCopy())
		case !IsImported(e):
			c.addForeign("EndpointSlice", e)
			c.Blocked = append(c.Blocked, d.DeepCopy())
		case e.AddressType != d.AddressType:
			c.Delete.Slices = append(c.Delete.Slices, e.DeepCopy())
			c.Create.Slices = append(c.Create.Slices, d.DeepCopy())
		case !sameSlice(d, e):
			next := d.DeepCopy()
			follow(next, e)
			c.Update.Slices = append(c.Update.Slices, next)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if e := byName[name]; IsImported(e) {
			c.Delete.Slices = append(c.Delete.Slices, e.DeepCopy())
		}
	}
}

// sliceLabels and sliceAnnotations are the keys that are ours on an imported slice, set or not.
var (
	sliceLabels = []string{
		mcsv1beta1.LabelServiceName, mcsv1beta1.LabelSourceCluster, discoveryv1.LabelManagedBy,
		discoveryv1.LabelServiceName, corev1.IsHeadlessService, labelProxyName, broker.LabelForZone, broker.LabelForRegion,
	}
	sliceAnnotations = []string{corev1.EndpointsLastChangeTriggerTime}
)

func sameSlice(desired, existing *discoveryv1.EndpointSlice) bool {
	return sameKeys(desired.Labels, existing.Labels, sliceLabels) &&
		sameKeys(desired.Annotations, existing.Annotations, sliceAnnotations) &&
		sameSource(desired.Annotations[broker.AnnotationSource], existing.Annotations[broker.AnnotationSource]) &&
		equality.Semantic.DeepEqual(desired.Ports, existing.Ports) &&
		equality.Semantic.DeepEqual(desired.Endpoints, existing.Endpoints)
}

// sameSource compares notes without the stamp, their last word: a higher stamp alone causes no write.
func sameSource(desired, existing string) bool {
	export := func(note string) string { return note[:max(0, strings.LastIndexByte(note, ' '))] }
	return export(desired) == export(existing)
}

func sameKeys(desired, existing map[string]string, keys []string) bool {
	for _, key := range keys {
		want, wanted := desired[key]
		if got, found := existing[key]; got != want || found != wanted {
			return false
		}
	}
	return true
}

// metaChanges returns the values of "labels" and "annotations" that an update sets, and null for those of ours that it
// takes away.
func metaChanges(desired, existing metav1.Object) map[string]map[string]*string {
	owned := map[string][]string{"f:labels": sliceLabels, "f:annotations": sliceAnnotations}
	if _, slice := desired.(*discoveryv1.EndpointSlice); !slice {
		owned = ownedKeys(existing.GetManagedFields())
	}
	all := make(map[string]map[string]*string)
	if c := changes(desired.GetLabels(), existing.GetLabels(), owned["f:labels"]); len(c) > 0 {
		all["labels"] = c
	}
	if c := changes(desired.GetAnnotations(), existing.GetAnnotations(), owned["f:annotations"]); len(c) > 0 {
		all["annotations"] = c
	}
	return all
}

// changes returns the desired values that differ, and null for each of the keys that exists and is not desired.
func changes(desired, existing map[string]string, keys []string) map[string]*string {
	changed := make(map[string]*string)
	for key, want := range desired {
		if got, found := existing[key]; got != want || !found {
			changed[key] = &want
		}
	}
	for _, key := range keys {
		_, wanted := desired[key]
		if _, found := existing[key]; found && !wanted {
			changed[key] = nil
		}
	}
	return changed
}

// ownedKeys returns the keys of labels ("f:labels") and annotations ("f:annotations") that [wellknown.ManagerImporter]
// has set.
//
// fieldpath.Set of structured-merge-diff parses the same text into a tree of all fields, of which two maps of strings
// are needed here: measured on an import, it takes 1.4 times as long and 4 times the memory, for every object that is
// compared.
func ownedKeys(entries []metav1.ManagedFieldsEntry) map[string][]string {
	owned := make(map[string][]string)
	for _, e := range entries {
		if e.Manager != wellknown.ManagerImporter || e.Subresource != "" || e.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Metadata map[string]map[string]json.RawMessage `json:"f:metadata"`
		}
		if json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for _, kind := range []string{"f:labels", "f:annotations"} {
			for field := range fields.Metadata[kind] {
				if key, ok := strings.CutPrefix(field, "f:"); ok {
					owned[kind] = append(owned[kind], key)
				}
			}
		}
	}
	return owned
}

// follow makes an update fail if the object is no longer the one that was compared.
func follow(update, existing metav1.Object) {
	update.SetUID(existing.GetUID())
	update.SetResourceVersion(existing.GetResourceVersion())
}

func (c *Changes) addForeign(kind string, o metav1.Object) {
	c.Foreign = append(c.Foreign, kind+" "+o.GetNamespace()+"/"+o.GetName())
}

// The fields of a spec that are ours, set or not. Of a Service the API server allocates the others.
var (
	importFields = []string{
		"type", "ports", "ips", "ipFamilies", "sessionAffinity", "sessionAffinityConfig", "internalTrafficPolicy",
		"trafficDistribution",
	}
	serviceFields = []string{
		"type", "ports", "selector", "ipFamilies", "ipFamilyPolicy", "sessionAffinity", "sessionAffinityConfig",
		"internalTrafficPolicy", "trafficDistribution", "externalIPs", "loadBalancerClass", "allocateLoadBalancerNodePorts",
		"externalTrafficPolicy", "loadBalancerSourceRanges", "loadBalancerIP", "publishNotReadyAddresses", "externalName",
	}
)

// Patch returns the JSON merge patch that sets our fields of existing as in update, and leaves all others alone. update
// is one of [Changes], and existing the object that it was compared with; a status is no part of it.
//
// It has the UID and the resource version of update, so it fails where the object is no longer the one that was
// compared. Unlike server-side apply it takes away what someone else has put into our fields.
func Patch(update, existing metav1.Object) []byte {
	metadata := map[string]any{"uid": update.GetUID(), "resourceVersion": update.GetResourceVersion()}
	patch := map[string]any{"metadata": metadata}
	switch u := update.(type) {
	case *mcsv1beta1.ServiceImport:
		patch["spec"] = fields(u.Spec, importFields)
	case *corev1.Service:
		patch["spec"] = fields(u.Spec, serviceFields)
	case *discoveryv1.EndpointSlice:
		patch["ports"], patch["endpoints"] = u.Ports, append([]discoveryv1.Endpoint{}, u.Endpoints...)
	default:
		panic("desired: Patch wants an import, a Service or a slice")
	}
	for key, changed := range metaChanges(update, existing) {
		metadata[key] = changed
	}
	return encode(patch)
}

// fields returns those fields of a spec, with null for one that is not set.
func fields(spec any, names []string) map[string]json.RawMessage {
	var set map[string]json.RawMessage
	if err := json.Unmarshal(encode(spec), &set); err != nil {
		panic("desired: a spec is no JSON object: " + err.Error())
	}
	all := make(map[string]json.RawMessage, len(names))
	for _, name := range names {
		all[name] = set[name]
	}
	return all
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return nil // a time of a year that RFC 3339 cannot say
	}
	return text
}
