package statuspage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/identity"
	"github.com/clusterset-dns/clusterset/controller/importer"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/page"
	"github.com/clusterset-dns/clusterset/controller/safety"
)

// A Board has the contents of the page for this instance: its state, and while it leads the parts that know the rest.
// Several goroutines may call its methods.
type Board struct {
	instance, version string

	mu    sync.Mutex
	state page.State
	parts *Parts // nil while it does not lead, or waits
}

// Parts are what a Board reads while this instance leads. All are there.
type Parts struct {
	Member     *member.Cluster
	Broker     *broker.Broker
	Membership *identity.Membership
	Freezes    *safety.Freezes
	Expiry     *safety.Expiry
	Importer   *importer.Importer
	Policy     member.Policy
	Namespace  string               // of the controller, and of the DNS server
	TTL        func() time.Duration // the least that a heartbeat lives; 0 with "lease 0"
}

// NewBoard returns the Board of an instance that starts.
func NewBoard(instance, version string) *Board {
	b := &Board{instance: instance, version: version}
	b.Say(nil, "This instance starts.")
	return b
}

// Say sets what the instance does; p are its parts, nil while it has no parts.
func (b *Board) Say(p *Parts, detail string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state, b.parts = page.State{Leads: p != nil, Detail: detail, Since: time.Now()}, p
}

// Status returns the current state. It reads memory, and holds no lock of the parts for longer than one read.
func (b *Board) Status(q page.Query) page.Status {
	b.mu.Lock()
	s, p := page.Status{At: time.Now(), Instance: b.instance, Version: b.version, State: b.state}, b.parts
	b.mu.Unlock()
	if p == nil {
		return s
	}
	link := p.Broker.State()
	s.Cluster = p.Membership.Status().ClusterID
	s.Broker = page.Link{Connected: link.Link, Membership: link.Membership.String(), Detail: link.Detail}
	s.Broker.CredentialExpires, s.Broker.CredentialEnds = p.Membership.Credential.Expiry(s.At)
	s.DNS = p.dns()
	for _, f := range p.Freezes.InForce() {
		s.Frozen = append(s.Frozen, page.Freeze{Reason: f.Reason, Code: f.Code, Detail: f.Detail,
			Suspends: f.Suspends, Since: f.Since})
	}
	p.addServices(&s, q)
	p.addConflicts(&s)
	for _, c := range p.Importer.Selections() {
		s.Selections = append(s.Selections, page.Selection{
			Service: c.Service.String(), Port: c.Port, Clusters: c.Clusters, Why: c.Why, Since: c.Since, Prefers: c.Selectors,
		})
	}
	s.Counts.Selections = len(s.Selections)
	return s
}

// addServices adds one page of all services, with the exporting members.
func (p *Parts) addServices(s *page.Status, q page.Query) {
	exports, all := p.Member.Exports(), make(map[string]types.NamespacedName)
	imported := make(map[string]int)
	for _, svc := range slices.Concat(exports, p.Broker.Services()) {
		all[svc.String()] = svc
	}
	for _, svc := range p.Member.Imports() {
		imp := p.Member.Import(svc)
		if !member.IsOurs(imp) {
			continue
		}
		all[svc.String()] = svc
		s.Counts.Imports++
		for _, c := range imp.Status.Clusters {
			imported[c.Cluster]++
		}
	}
	s.Counts.Services, s.Counts.Exports = len(all), len(exports)
	sorted := slices.Sorted(maps.Keys(all))
	s.Services = q.Select(sorted)
	for i, row := range s.Services.Rows {
		s.Services.Rows[i] = p.service(all[row.Name], s.At)
	}
	for _, name := range sorted {
		if row := p.stateOf(all[name], s.At); row.Failed {
			s.Failed = append(s.Failed, row)
		}
	}
	s.Counts.Failed = len(s.Failed)
	p.addMembers(s, imported)
}

// addMembers adds all members, with the numbers of their imported exports.
func (p *Parts) addMembers(s *page.Status, imported map[string]int) {
	exported, offered, result, ttl := p.Broker.RecordCounts(), p.Broker.Offered(), p.Expiry.Result(), p.TTL()
	versions := make(map[string]string)
	for _, m := range p.Broker.Members.All() {
		versions[m.Name] = m.Status.Version
	}
	for _, l := range p.Broker.Heartbeats.Liveness() {
		m := page.Member{
			ID: l.Cluster, State: page.Live, Heartbeat: l.Seen, Version: versions[l.Cluster], Since: result.Since(l.Cluster),
			Exports: exported[l.Cluster], Imported: imported[l.Cluster], Offered: offered[l.Cluster],
		}
		if ttl > 0 {
			m.TTL = l.SilentAge(ttl)
		}
		switch {
		case l.Cluster == p.Membership.Identity.ClusterID:
			m.State = page.Self
		case result.Silent(l.Cluster):
			m.State = page.Expired
			s.Counts.Expired++
		case l.Seen.IsZero():
			m.State = page.NoHeartbeat
		}
		s.Members = append(s.Members, m)
	}
	s.Counts.Members = len(s.Members)
}

// addConflicts adds the services with conflicting exports.
func (p *Parts) addConflicts(s *page.Status) {
	conflicts := p.Importer.Conflicts()
	for svc, found := range conflicts {
		c := merge.Condition(found, 0)
		s.Conflicts = append(s.Conflicts, page.Conflict{Service: svc.String(), Reasons: c.Reason, Detail: c.Message})
	}
	slices.SortFunc(s.Conflicts, func(a, b page.Conflict) int { return cmp.Compare(a.Service, b.Service) })
	s.Counts.Conflicts = len(conflicts)
}

// dns returns the Service of the DNS server of the clusterset: the one in the controller's namespace with a port "dns".
func (p *Parts) dns() *page.DNS {
	for _, svc := range p.Member.Services() {
		s := p.Member.Service(svc)
		if svc.Namespace != p.Namespace || s == nil ||
			!slices.ContainsFunc(s.Spec.Ports, func(port corev1.ServicePort) bool { return port.Name == "dns" }) {
			continue
		}
		d := &page.DNS{Service: svc.String()}
		for _, e := range p.Member.SourceSlices(svc) {
			d.Ready += readyEndpoints(e)
		}
		return d
	}
	return nil
}

// service returns the row of one service.
func (p *Parts) service(svc types.NamespacedName, now time.Time) page.Service {
	row := p.stateOf(svc, now)
	for _, r := range p.Broker.Records(svc) {
		row.Exporters = append(row.Exporters, r.Cluster)
	}
	if imp := p.Member.Import(svc); member.IsOurs(imp) {
		row.Type, row.Addresses = string(imp.Spec.Type), imp.Spec.IPs
		for _, e := range p.Member.ImportedSlices(svc) {
			row.Ready += readyEndpoints(e)
		}
	}
	return row
}

// pendingExport is the time after which an export that is pending has failed, such as for a load balancer.
const pendingExport = 5 * time.Minute

// stateOf returns the fault of a service in this cluster in a few words, or that it is ready.
func (p *Parts) stateOf(svc types.NamespacedName, now time.Time) page.Service {
	row := page.Service{Name: svc.String()}
	fault := func(of string, pending time.Duration, conditions []metav1.Condition, names ...string) bool {
		for _, name := range names {
			c := meta.FindStatusCondition(conditions, name)
			if c != nil && c.Status != metav1.ConditionTrue {
				row.State = fmt.Sprintf("%s: %s: %s", of, c.Reason, c.Message)
				row.Failed = c.Reason != string(mcsv1beta1.ServiceImportReasonPending) ||
					now.Sub(c.LastTransitionTime.Time) >= pending
				return true
			}
		}
		return false
	}
	if exp := p.Member.Export(svc); exp != nil && fault("export", pendingExport, exp.Status.Conditions,
		string(mcsv1beta1.ServiceExportConditionValid), string(mcsv1beta1.ServiceExportConditionReady)) {
		return row
	}
	ns, imp := p.Member.Namespace(svc.Namespace), p.Member.Import(svc)
	switch {
	case imp != nil && !member.IsOurs(imp):
		row.State = "not imported: the ServiceImport is not that of the controller"
	case imp == nil && ns == nil:
		row.State = "not imported: this cluster has no namespace of the name"
	case imp == nil && p.Policy.Of(ns) != export.Allowed:
		row.State = "not imported: the namespace does not take part"
	case imp == nil:
		row.State = "not imported"
	case !fault("import", wellknown.PendingImport, imp.Status.Conditions,
		string(mcsv1beta1.ServiceImportConditionReady)):
		row.State, row.OK = "ready", true
	}
	return row
}

// readyEndpoints returns how many endpoints of a slice are ready.
func readyEndpoints(e *discoveryv1.EndpointSlice) (n int) {
	for _, ep := range e.Endpoints {
		if apibroker.IsReady(ep.Conditions) {
			n++
		}
	}
	return n
}
