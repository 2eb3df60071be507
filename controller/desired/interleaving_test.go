package desired

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/exportspec"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

var interleavingSeed = flag.Uint64("interleaving", 1, "the first seed of TestAnyDeliveryEndsInTheSameBytes")

// A local is what a cluster has of its own: the truth about its export.
type local struct {
	exp     *mcsv1beta1.ServiceExport
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
	random  *uint64 // the seed of properties that no Service has together; nil for those of the Service
}

// An event is what a watch of the broker delivers of one object: it is there, or, without a value, it is gone.
type event struct {
	cluster string
	record  *v1alpha1.ExportedService
	slice   *discoveryv1.EndpointSlice
	name    string
	isSlice bool
}

// A valueMember is a member of a clusterset of values. It sees the broker by two watches, of records and of slices,
// that are late by any number of events.
type valueMember struct {
	id       string
	local    local
	queues   [2][]event // of records, of slices
	records  map[string]*v1alpha1.ExportedService
	slices   map[string]map[string]*discoveryv1.EndpointSlice
	existing Objects
	uids     int // how many objects were made
}

// A valueClusterset runs export, broker, watches, merge and diff of up to five members on values, one step at a time.
type valueClusterset struct {
	generator
	members []*valueMember
	records map[string]*v1alpha1.ExportedService // on the broker, by cluster
	created map[string]metav1.Time
	slices  map[string]map[string]*discoveryv1.EndpointSlice
	now     time.Time
	options merge.Options
}

// networksOf returns what a member declares.
func networksOf(i int) []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", i)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/32", i))}
}

// undeclared begins addresses that members export, although they did not declare them.
const undeclared = "8.8.8."

// newLocal makes what a cluster may have of its own after its nth operation.
func (g generator) newLocal(i, n int) local {
	if g.IntN(5) == 0 {
		return local{}
	}
	name := metaOf(shop.Namespace, shop.Name)
	exp := &mcsv1beta1.ServiceExport{ObjectMeta: name}
	exp.CreationTimestamp, exp.Generation = metav1.NewTime(hour(0).Add(time.Duration(n/5)*time.Minute)), int64(n)
	s := &corev1.Service{ObjectMeta: name}
	exp.UID, s.UID = uid(n/5), uid(n/3) // made anew from time to time
	s.Spec.Type, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeClusterIP, "10.96.0.5", []string{"10.96.0.5"}
	s.Spec.IPFamilies = pick(g, [][]corev1.IPFamily{{v4}, {v6}, {v4, v6}}...)
	s.Spec.SessionAffinity = pick(g, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP)
	if g.IntN(4) == 0 {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	}
	for j, name := range []string{"http", "dns", "pg"} {
		if g.IntN(2) == 0 {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP,
				Port: int32(1 + (j+g.IntN(2))*10)})
		}
	}
	l := local{exp: exp, service: s}
	if g.IntN(2) == 0 {
		l.random = new(g.Uint64())
	}
	l.slices = g.newSlices(i, s)
	return l
}

// newSlices makes those of the Service of a cluster.
func (g generator) newSlices(i int, s *corev1.Service) (all []*discoveryv1.EndpointSlice) {
	for j := range 1 + g.IntN(3) {
		sl := &discoveryv1.EndpointSlice{ObjectMeta: metaOf(shop.Namespace, fmt.Sprintf("%s-%d", shop.Name, j)),
			AddressType: discoveryv1.AddressTypeIPv4}
		address := pick(g, fmt.Sprintf("10.%d.0.", i), fmt.Sprintf("10.%d.0.", i), undeclared)
		if g.IntN(4) == 0 {
			sl.AddressType, address = discoveryv1.AddressTypeIPv6, fmt.Sprintf("fd00:%d::", i)
		}
		sl.Labels = map[string]string{discoveryv1.LabelServiceName: shop.Name}
		for range g.IntN(4) {
			sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{fmt.Sprint(address, 1+g.IntN(5))},
				Conditions: discoveryv1.EndpointConditions{Ready: new(g.IntN(3) > 0)},
			})
		}
		for _, p := range s.Spec.Ports {
			sl.Ports = append(sl.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol})
		}
		all = append(all, sl)
	}
	return all
}

func uid(n int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n)) }

func metaOf(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// exported is what the export of a cluster comes to.
func (l *local) exported(i int, id string) export.Result {
	if l.exp == nil {
		return export.Result{}
	}
	result := export.From(l.exp, l.service, l.slices, export.Options{
		ClusterID: id, BrokerNamespace: broker.NamespaceName("member", id), Namespace: export.Allowed,
		Networks: append(networksOf(i), netip.MustParsePrefix(undeclared+"0/24")),
	})
	if l.random != nil && result.Record != nil {
		exportspec.Randomize(rand.New(rand.NewPCG(*l.random, 1)), &result.Record.Spec)
	}
	return result
}

// publish writes what a member exports to the broker, and what differs from before to all watches.
func (c *valueClusterset) publish(i int) {
	m := c.members[i]
	result := m.local.exported(i, m.id)
	if old := c.records[m.id]; (old == nil) != (result.Record == nil) || old != nil &&
		fmt.Sprint(old.Spec) != fmt.Sprint(result.Record.Spec) {
		if old == nil {
			c.now = c.now.Add(time.Second)
			c.created[m.id] = metav1.NewTime(c.now)
		}
		c.records[m.id] = result.Record
		c.deliver(event{cluster: m.id, record: result.Record})
	}
	next := map[string]*discoveryv1.EndpointSlice{}
	for _, s := range result.Slices {
		next[s.Name] = s
		c.deliver(event{cluster: m.id, slice: s, name: s.Name, isSlice: true})
	}
	for _, name := range slices.Sorted(maps.Keys(c.slices[m.id])) {
		if next[name] == nil {
			c.deliver(event{cluster: m.id, name: name, isSlice: true})
		}
	}
	c.slices[m.id] = next
}

// deliver queues an event for each member, sometimes twice.
func (c *valueClusterset) deliver(e event) {
	for _, m := range c.members {
		for range 1 + c.IntN(10)/9 {
			if e.isSlice {
				m.queues[1] = append(m.queues[1], e)
			} else {
				m.queues[0] = append(m.queues[0], e)
			}
		}
	}
}

// receive takes up to n events of one watch.
func (m *valueMember) receive(watch, n int) {
	n = min(n, len(m.queues[watch]))
	for _, e := range m.queues[watch][:n] {
		switch {
		case e.isSlice && e.slice == nil:
			delete(m.slices[e.cluster], e.name)
		case e.isSlice:
			if m.slices[e.cluster] == nil {
				m.slices[e.cluster] = map[string]*discoveryv1.EndpointSlice{}
			}
			m.slices[e.cluster][e.name] = e.slice
		case e.record == nil:
			delete(m.records, e.cluster)
		default:
			m.records[e.cluster] = e.record
		}
	}
	m.queues[watch] = m.queues[watch][n:]
}

// relist loses what a watch has not delivered, and lists the broker: one kind, as each kind has its own watch.
func (c *valueClusterset) relist(m *valueMember, watch int) {
	m.queues[watch] = nil
	if watch == 0 {
		m.records = maps.Clone(c.records)
		maps.DeleteFunc(m.records, func(_ string, r *v1alpha1.ExportedService) bool { return r == nil })
		return
	}
	m.slices = map[string]map[string]*discoveryv1.EndpointSlice{}
	for cluster, list := range c.slices {
		m.slices[cluster] = maps.Clone(list)
	}
}

// reconcile compares and writes, as the importer of a member does: first an import, so that all others have its UID.
func (c *valueClusterset) reconcile(t *testing.T, i int) {
	t.Helper()
	m := c.members[i]
	for range 2 {
		desired, existing := c.desired(i), m.existing
		if existing.Import == nil && desired.Import != nil {
			existing = Objects{}
		}
		m.existing.apply(Diff(desired, existing))
		m.identify()
	}
	if again := Diff(c.desired(i), m.existing); !again.Empty() {
		t.Fatalf("after its own changes the diff of %s is %s, want none", m.id, mustJSON(t, again))
	}
}

// identify gives a UID to objects that were made, as an API server does.
func (m *valueMember) identify() {
	identify := func(o metav1.Object) {
		if o.GetUID() == "" {
			m.uids++
			o.SetUID(uid(1_000_000 + m.uids)) // no export has it
		}
	}
	if m.existing.Import != nil {
		identify(m.existing.Import)
	}
	if m.existing.Service != nil {
		identify(m.existing.Service)
	}
	for _, s := range m.existing.Slices {
		identify(s)
	}
}

// anew makes objects of a member anew, with another UID, or deletes them, as other people do.
func (c *valueClusterset) anew(m *valueMember) {
	e := &m.existing
	switch c.IntN(5) {
	case 0: // slices and Service stay
		e.Import = nil
	case 1:
		*e = Objects{}
	case 2:
		if e.Import != nil {
			e.Import = e.Import.DeepCopy()
			e.Import.UID = ""
		}
	case 3:
		e.Service = nil
	case 4:
		if len(e.Slices) > 0 {
			e.Slices = e.Slices[1:]
		}
	}
	m.identify()
}

// text shows objects of a member without what differs between interleavings.
func (m *valueMember) text(t *testing.T, o Objects) string {
	t.Helper()
	text := stripped(t, o)
	if m.existing.Import != nil {
		text = strings.ReplaceAll(text, string(m.existing.Import.UID), "uid of the import")
	}
	return text
}

// desired is what a member wants, by its own export and by what it sees of the others.
func (c *valueClusterset) desired(i int) Objects {
	m := c.members[i]
	own := m.local.exported(i, m.id)
	cluster := ImportingCluster{Families: []corev1.IPFamily{v4, v6}}
	var all []merge.Record
	for j, other := range c.members {
		record, source := m.records[other.id], Source{Cluster: other.id, Declared: networksOf(j), Reserved: networksOf(i)}
		if i == j {
			record = own.Record
			source.Slices, source.Local, source.Reserved = own.Local, true, nil
		} else {
			for _, name := range slices.Sorted(maps.Keys(m.slices[other.id])) {
				source.Slices = append(source.Slices, m.slices[other.id][name])
			}
		}
		if record == nil {
			continue
		}
		all = append(all, merge.Record{Cluster: other.id, Admitted: hour(0), Created: c.created[other.id], Spec: record.Spec})
		cluster.Sources = append(cluster.Sources, source)
	}
	c.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
	desired, _ := ObjectsOf(merge.Merge(shop, all, c.options), cluster)
	if m.existing.Import == nil {
		desired.Service, desired.Slices = nil, nil
	}
	return desired
}

// play applies the operations of each member in their order, in any interleaving with all other steps, and returns what
// each member has in the end.
func (c *valueClusterset) play(t *testing.T, todo [][]local) []string {
	t.Helper()
	next, left := make([]int, len(c.members)), 0
	for _, list := range todo {
		left += len(list)
	}
	for left > 0 {
		i := c.IntN(len(c.members))
		m := c.members[i]
		switch c.IntN(8) {
		case 0, 1:
			if next[i] < len(todo[i]) {
				m.local = todo[i][next[i]]
				next[i]++
				left--
			}
		case 2:
			c.publish(i)
		case 3, 4:
			m.receive(c.IntN(2), 1+c.IntN(5))
		case 5:
			switch c.IntN(10) {
			case 0:
				c.relist(m, c.IntN(2))
			case 1:
				c.anew(m)
			}
		default:
			c.reconcile(t, i)
		}
	}
	var ends []string
	for i := range c.members {
		c.publish(i)
	}
	for i, m := range c.members {
		if c.IntN(4) == 0 {
			c.relist(m, c.IntN(2)) // a watch that breaks at the very end
		}
		for watch := range m.queues {
			m.receive(watch, len(m.queues[watch]))
		}
		if c.IntN(4) == 0 {
			c.anew(m)
		}
		c.reconcile(t, i)
		ends = append(ends, m.text(t, m.existing))
		if direct := m.text(t, c.desired(i)); direct != ends[i] {
			t.Fatalf("%s has\n%s\nmade at once\n%s", m.id, ends[i], direct)
		}
	}
	return ends
}

// TestAnyDeliveryEndsInTheSameBytes plays the same 200 operations of up to five members in several interleavings:
// exports are random and late, watches deliver late, twice, and lose what a new list then has, importers compare and
// write at any moment, and objects are made anew with another UID. In the end each member has the same bytes, and the
// oldest export is the same one for all (docs/spec/controller.md 4.1).
func TestAnyDeliveryEndsInTheSameBytes(t *testing.T) {
	t.Logf("-interleaving %d", *interleavingSeed)
	imported := false
	for seed := *interleavingSeed; seed < *interleavingSeed+uint64(tier.Size(5, 20)); seed++ {
		g := newGenerator(seed)
		o := g.options()
		count := 2 + g.IntN(len(clusters)-1)
		todo := make([][]local, count)
		for i := range todo {
			for n := range 200 / count {
				l := g.newLocal(i, n)
				if n > 0 && todo[i][n-1].exp != nil && g.IntN(2) == 0 { // only endpoints change
					l = todo[i][n-1]
					l.slices = g.newSlices(i, l.service)
				}
				todo[i] = append(todo[i], l)
			}
		}
		var want []string
		for round := range uint64(4) {
			c := valueClusterset{
				generator: generator{rand.New(rand.NewPCG(seed, 2+round))}, options: o, now: hour(12).Time,
				records: map[string]*v1alpha1.ExportedService{}, created: map[string]metav1.Time{},
				slices: map[string]map[string]*discoveryv1.EndpointSlice{},
			}
			for _, id := range clusters[:count] {
				c.members = append(c.members, &valueMember{
					id: id, records: map[string]*v1alpha1.ExportedService{},
					slices: map[string]map[string]*discoveryv1.EndpointSlice{},
				})
			}
			got := c.play(t, todo)
			if round == 0 {
				want = got
			}
			for i := range got {
				imported = imported || strings.Contains(got[i], importedPrefix)
				if got[i] != want[i] {
					t.Fatalf("-interleaving %d: %s has\n%s\nin another interleaving\n%s", seed, clusters[i], want[i], got[i])
				}
			}
		}
	}
	if !imported {
		t.Error("no member imported anything")
	}
}
