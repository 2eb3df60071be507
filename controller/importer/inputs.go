package importer

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/identity"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/protocol"
	"github.com/clusterset-dns/clusterset/controller/safety"
)

// inputs of a plan, read once and shared with the caches.
type inputs struct {
	service    types.NamespacedName
	now        time.Time
	own        ownExport                    // what this cluster exports
	namespace  *corev1.Namespace            // of the service; nil if it does not exist
	imported   *mcsv1beta1.ServiceImport    // of that name, whether it is ours or not; nil if it does not exist
	derived    *corev1.Service              // of that name, like imported
	notes      notes                        // of imported
	slices     []*discoveryv1.EndpointSlice // imported from all clusters
	properties map[string]string            // ClusterProperties of this cluster, by name
	families   []corev1.IPFamily            // of the Services with addresses here; empty while unknown
	silent     liveness.Result
	broker     broker.View
	entries    map[string]protocol.Entry // of other clusters with a record, and of imported ones that were not removed
	// of broker, with this cluster's own record; after follow without those that do not count
	records []merge.Record
	shares  map[string]share // of the other clusters, after follow
	// reach has the ClusterProperties by which exports reach members, by their ids: those of this cluster are the ones
	// that it has, as a broker that was restored may not have them for a moment. It is nil if all exports reach all
	// members.
	reach   map[string]map[string]string
	options merge.Options // for this service
}

// An ownExport is what this cluster exports of a service, read once.
type ownExport struct {
	export.Result
	exp     *mcsv1beta1.ServiceExport // nil if it does not exist
	cluster string                    // the id of this cluster
}

// A share is the part of one cluster in an import, as its owner wants it (package protocol).
type share struct {
	noted protocol.Noted // to note with the import
	due   bool           // the stamp of the record must be noted
	// unknown: the broker lacks the record, or has an older copy than was imported. All slices are kept.
	unknown bool
	slices  []*discoveryv1.EndpointSlice // from the broker
	kept    []*discoveryv1.EndpointSlice // imported slices that the broker lacks, or has in an older copy
}

// A reader reads inputs.
type reader struct {
	member    *member.Cluster
	broker    *broker.Broker
	expiry    *safety.Expiry
	clusterID string        // of this cluster
	options   merge.Options // VIPs and Reserved are not set
}

// read returns the inputs as they are now.
func (r reader) read(svc types.NamespacedName, own ownExport) inputs {
	in := inputs{
		service: svc, now: time.Now(), own: own, namespace: r.member.Namespace(svc.Namespace),
		imported: r.member.Import(svc), derived: r.member.Derived(svc),
		slices: r.member.ImportedSlices(svc), families: r.member.Families(), silent: r.expiry.Result(),
	}
	self := r.broker.Members.Get(r.clusterID)
	in.broker, in.options = r.broker.View(svc, r.options)
	if in.options.VIP == merge.CIDR && member.IsOurs(in.imported) {
		in.options.VIPs.Has = merge.AddressesOf(in.imported, r.options.VIPNetworks)
	}
	r.completeVIPs(svc, &in.options.VIPs)
	in.options.Reserved = r.member.ServiceCIDRs()
	if self != nil {
		in.options.Reserved = slices.Concat(self.OwnNetworks(), in.options.Reserved)
	}
	in.notes = notesOf(in.imported)
	in.entries = r.entries(in)
	in.records = r.broker.Replace(in.broker.Records, own.Record)
	published := r.published(self)
	in.properties = r.properties(published)
	if in.reach = r.broker.Selectable(in.records); in.reach != nil {
		in.reach[r.clusterID] = published
	}
	return in
}

// completeVIPs sets Removed and Taken.
func (r reader) completeVIPs(svc types.NamespacedName, v *merge.VIPs) {
	addTaken := func(ip netip.Addr, by func(other types.NamespacedName) bool) {
		if slices.ContainsFunc(r.member.ImportsWith(ip), func(other types.NamespacedName) bool {
			return other != svc && by(other)
		}) {
			v.Taken = append(v.Taken, ip)
		}
	}
	v.Removed = r.broker.Members.RemovedAmong(v.Has)
	for _, a := range v.Has {
		addTaken(a.IP, func(other types.NamespacedName) bool { return other.String() < svc.String() })
	}
	for _, c := range v.Claims {
		if !slices.ContainsFunc(v.Has, func(a merge.Address) bool { return a.IP == c.IP }) {
			addTaken(c.IP, func(types.NamespacedName) bool { return true })
		}
	}
}

// entries returns the service's entries in the inventories.
func (r reader) entries(in inputs) map[string]protocol.Entry {
	entries := make(map[string]protocol.Entry)
	for cluster, m := range in.broker.Members {
		entries[cluster] = r.broker.Entry(m, in.service)
	}
	for _, cluster := range importedFrom(in.imported, in.notes) {
		if _, known := entries[cluster]; known {
			continue
		}
		if m := r.broker.Members.Get(cluster); m != nil {
			entries[cluster] = r.broker.Entry(m, in.service)
		} else if !r.broker.Members.Removed(cluster) {
			entries[cluster] = protocol.Entry{}
		}
	}
	delete(entries, r.clusterID)
	return entries
}

// properties returns the ClusterProperties of this cluster by which it selects others: published, and those that others
// do not see. A property that does not decode has its last value in both sets.
func (r reader) properties(published map[string]string) map[string]string {
	own := make(map[string]string)
	for _, property := range r.member.Properties() {
		own[property.Name] = property.Spec.Value
	}
	maps.Copy(own, published)
	own[about.ClusterIDName] = r.clusterID
	return own
}

// published returns those of the ClusterProperties of this cluster that other members see, as they see them: which
// exports reach this cluster follows from these. own is its Member.
func (r reader) published(own *v1alpha1.Member) map[string]string {
	all, _ := identity.Published(r.member, own) // the Publication and the exports report the others
	properties := make(map[string]string, len(all))
	for _, property := range all {
		properties[property.Name] = property.Value
	}
	return properties
}
