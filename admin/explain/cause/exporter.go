package cause

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/controller/selection"
)

// An exporter is a cluster that exports the service or rejects an export of it, or has endpoints that this cluster has
// imported.
type exporter struct {
	id        string
	own       bool // it is this cluster
	member    *v1alpha1.Member
	record    *v1alpha1.ExportedService
	invalid   string // why the record is not accepted
	admitted  bool   // the namespace here accepts the cluster
	elsewhere bool   // the export is for other clusters

	rejectedExport *v1alpha1.RejectedExport // of another cluster, or nil

	heartbeat      time.Duration // age
	beats, expired bool

	imported bool // status.clusters of the import names it
	there    endpoints
	here     endpoints
	rejected []cache.Rejection // of its slices here
}

// endpoints counts those of one cluster.
type endpoints struct {
	slices, all, ready int
	usable             int // ready ones with an address that counts
	undeclared         []string
	overlap            []string
}

// isExporting reports whether the record counts.
func (e *exporter) isExporting() bool {
	return e.record != nil && e.invalid == "" && e.admitted && !e.elsewhere
}

// isBehind reports whether this cluster should have imported something of it and has not.
func (e *exporter) isBehind() bool {
	return e.isExporting() && !e.expired && (!e.imported || e.here.usable == 0 && e.there.usable > 0)
}

// exporters returns the clusters that export the service, sorted by ID.
func exporters(in *Input, t Target, evaluated cache.Evaluation) []*exporter {
	byID := map[string]*exporter{}
	get := func(id string) *exporter {
		if byID[id] == nil {
			byID[id] = &exporter{id: id, own: id != "" && id == in.Here.ClusterID.Value.Value, admitted: isAllowed(in, id)}
		}
		return byID[id]
	}
	readRejected(in, t, get)
	readRecords(in, get)
	readBrokerSlices(in, get)
	if imp := in.Here.Import.Value.Object; imp != nil {
		for _, c := range imp.Status.Clusters {
			get(c.Cluster).imported = true
		}
	}
	for i, s := range in.Here.Slices.Value {
		e := get(sourceOf(s))
		e.here.addSlice(s)
		if i < len(evaluated.Slices) {
			e.here.usable += evaluated.Slices[i].Usable
			e.rejected = append(e.rejected, evaluated.Slices[i].Rejections...)
		}
	}
	var all []*exporter
	for _, e := range byID {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *exporter) int { return strings.Compare(a.id, b.id) })
	return all
}

// sourceOf is the cluster ID of an imported slice, "" without one that counts.
func sourceOf(s *discoveryv1.EndpointSlice) string {
	if id := strings.ToLower(s.Labels[mcsv1beta1.LabelSourceCluster]); broker.IsClusterID(id) {
		return id
	}
	return ""
}

// isAllowed reports whether the namespace here accepts exports of a cluster (docs/spec/controller.md 9.2).
func isAllowed(in *Input, id string) bool {
	ns := in.Here.Namespace.Value
	return ns == nil || broker.SourceAllowed(ns, id)
}

// memberIn returns the Member that owns a broker namespace, or nil.
func memberIn(b *Broker, namespace string) *v1alpha1.Member {
	for i := range b.Namespaces.Value {
		ns := &b.Namespaces.Value[i]
		if ns.Name != namespace {
			continue
		}
		for j := range b.Members.Value {
			m := &b.Members.Value[j]
			if m.Name == ns.Labels[broker.LabelClusterID] && m.Spec.Namespace == namespace {
				return m
			}
		}
	}
	return nil
}

// readRejected reads the exports that members reject. That of this cluster is read from its ServiceExport.
func readRejected(in *Input, t Target, get func(string) *exporter) {
	for i := range in.Broker.Members.Value {
		m := &in.Broker.Members.Value[i]
		r := m.Status.RejectedExport(broker.RecordName(t.Namespace, t.Service))
		if r != nil && memberIn(&in.Broker, m.Spec.Namespace) == m && !isThis(m, in.Here.UID) {
			get(m.Name).rejectedExport = r
		}
	}
}

func readRecords(in *Input, get func(string) *exporter) {
	var properties map[string]string
	if m := ownMember(in); m != nil {
		properties, _ = m.Status.ValidProperties() // the controller reports the others
	}
	for i := range in.Broker.Records.Value {
		r := &in.Broker.Records.Value[i]
		m := memberIn(&in.Broker, r.Namespace)
		if m == nil {
			continue // of no member: nothing follows from it
		}
		e := get(m.Name)
		e.record, e.member = r, m
		if err := cmp.Or(r.Validate(), r.ValidateNames(m.Name)); err != nil {
			e.invalid = err.Error()
		}
		e.elsewhere = e.invalid == "" && !selection.Reaches(m.Name, r.Spec.ToClusters, in.Here.ClusterID.Value.Value,
			properties)
		if lease := in.Broker.Heartbeats.Value[r.Namespace]; lease != nil && lease.RenewTime != nil {
			e.beats, e.heartbeat = true, max(in.Now.Sub(lease.RenewTime.Time), 0)
			e.expired = broker.HeartbeatExpired(lease, in.TTL, in.Now)
		}
	}
}

func readBrokerSlices(in *Input, get func(string) *exporter) {
	var reserved []netip.Prefix
	if m := ownMember(in); m != nil {
		reserved = m.OwnNetworks()
	}
	for i := range in.Broker.Slices.Value {
		s := &in.Broker.Slices.Value[i]
		m := memberIn(&in.Broker, s.Namespace)
		if m == nil {
			continue
		}
		e := get(m.Name)
		e.there.addSlice(s)
		own := reserved
		if e.own {
			own = nil
		}
		e.there.addUsable(s, m.Networks(), own)
	}
}

// ownMember returns the Member of this cluster, nil without one.
func ownMember(in *Input) *v1alpha1.Member {
	for i := range in.Broker.Members.Value {
		if m := &in.Broker.Members.Value[i]; isThis(m, in.Here.UID) {
			return m
		}
	}
	return nil
}

func isThis(m *v1alpha1.Member, uid Read[types.UID]) bool {
	return uid.State == Present && m.Spec.KubeSystemUID == string(uid.Value)
}

func (n *endpoints) addSlice(s *discoveryv1.EndpointSlice) {
	n.slices++
	n.all += len(s.Endpoints)
	for i := range s.Endpoints {
		if broker.IsReady(s.Endpoints[i].Conditions) {
			n.ready++
		}
	}
}

// addUsable counts the ready endpoints that importers take (docs/spec/controller.md 9.3).
func (n *endpoints) addUsable(s *discoveryv1.EndpointSlice, declared, reserved []netip.Prefix) {
	in := func(networks []netip.Prefix, a netip.Addr) bool {
		return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	for i := range s.Endpoints {
		if !broker.IsReady(s.Endpoints[i].Conditions) {
			continue
		}
		usable := false
		for _, text := range s.Endpoints[i].Addresses {
			a, err := broker.ParseAddress(text)
			switch {
			case err != nil:
			case !in(declared, a):
				n.undeclared = append(n.undeclared, text)
			case in(reserved, a):
				n.overlap = append(n.overlap, text)
			default:
				usable = true
			}
		}
		if usable {
			n.usable++
		}
	}
}

// idsOf lists the cluster IDs that hold.
func idsOf(all []*exporter, holds func(*exporter) bool) string {
	var list []string
	for _, e := range all {
		if holds(e) {
			list = append(list, e.id)
		}
	}
	return strings.Join(list, ", ")
}
