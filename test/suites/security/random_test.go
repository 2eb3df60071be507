package security

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

var (
	attackTime = flag.Duration("attack", 10*time.Second, "how long TestRandomWrites writes")
	attackSeed = flag.Uint64("seed", 1, "what TestRandomWrites makes its writes from")
)

// TestRandomWrites lets mallory write at random what her credential lets her write, well formed or not. Meanwhile each
// answer about the others' services is as before, and afterwards no object of theirs is another one. `make attack` does
// so for ten minutes.
func TestRandomWrites(t *testing.T) {
	tier.All(t)
	t.Logf("for %s, -seed %d", *attackTime, *attackSeed)
	f := start(t)
	e, w, m := members(f)
	for _, v := range []*testclusterset.Member{e, w} {
		bank := testclusterset.Namespace("bank")
		bank.Annotations = map[string]string{broker.AnnotationAllowedSources: "east, west"}
		v.Put(t, testclusterset.Namespace("shop"), bank)
	}
	cidr := func(c *controller.Config) { c.VIP = merge.CIDR }
	east, west := run(t, e, cidr), run(t, w, cidr)
	exportService(t, e, "shop", "web", "10.21.0.1")
	exportService(t, w, "shop", "web", "10.22.0.1")
	exportService(t, e, "bank", "ledger", "10.21.0.2")
	db := testclusterset.Headless("bank", "db", testclusterset.Port("pg", 5432))
	e.Put(t, db, testclusterset.Slice(db, "db-1", testclusterset.Endpoint{Address: "10.21.0.3"}),
		testclusterset.Export("bank", "db"))
	for _, v := range []member{east, west} {
		imported(t, v.Member, "shop", "web", "10.21.0.1", "10.22.0.1")
		imported(t, v.Member, "bank", "ledger", "10.21.0.2")
		imported(t, v.Member, "bank", "db", "10.21.0.3")
	}
	joinMember(t, m)
	before := newSnapshot(t, f, east, west)
	observed := observe(t, testclusterset.StartDNS(t, e), testclusterset.StartDNS(t, w))

	wrote := func() float64 {
		return east.metric(t, "writes_total", "local") + west.metric(t, "writes_total", "local")
	}
	ctx, cancel := context.WithTimeout(t.Context(), *attackTime)
	defer cancel()
	already := wrote()
	stop := observed.watch(t)
	writer := randomWriter{attacker: newAttacker(t, f, m), Rand: rand.New(rand.NewPCG(*attackSeed, 7))}
	for ctx.Err() == nil {
		writer.write(t.Context())
	}
	until.True(t, "answers", func() bool { return observed.answers.Load() > 0 })
	stop()
	t.Logf("%d writes were accepted, %d rejected; %d answers were as before; the others wrote %.0f times to their own API servers", writer.accepted,
		writer.rejected, observed.answers.Load(), wrote()-already)
	if writer.accepted == 0 || writer.rejected == 0 {
		t.Errorf("%d writes were accepted and %d rejected, want some of both", writer.accepted, writer.rejected)
	}
	mark(t, e, w)
	before.undisturbed(t)
	writer.withdraw(t, e, w)
	for _, v := range []member{east, west} {
		imported(t, v.Member, "shop", "web", "10.21.0.1", "10.22.0.1")
	}
	mark(t, e, w)
	before.undisturbed(t)
	before.broker(t)
}

// broker fails the test if an object of the honest members on the broker has changed.
func (s *snapshot) broker(t *testing.T) {
	t.Helper()
	last := len(s.were) - 1
	compare(t, "broker", s.were[last], s.now(t)[last])
}

// answers are those about services of honest members, from the servers of each, before mallory writes.
type answers struct {
	servers []*testclusterset.DNS
	before  map[string]string
	answers atomic.Int64
}

// questions are about services to which mallory cannot contribute: she may not export to bank, and shop/web has names
// of one cluster.
var questions = []struct {
	name  string
	qtype uint16
}{
	{"web.shop", dns.TypeA}, {"web.shop", dns.TypeAAAA}, {"east.web.shop", dns.TypeA}, {"west.web.shop", dns.TypeA},
	{"_http._tcp.web.shop", dns.TypeSRV},
	{"_http._tcp.east.web.shop", dns.TypeSRV}, {"ledger.bank", dns.TypeA}, {"ledger.bank", dns.TypeSRV},
	{"db.bank", dns.TypeA}, {"db.bank", dns.TypeSRV},
	{"10-21-0-3.east.db.bank", dns.TypeA}, {"mallory.ledger.bank", dns.TypeA}, {"mallory.db.bank", dns.TypeA},
	{"none.bank", dns.TypeA},
}

func (a *answers) each(t *testing.T, then func(key, answer string)) {
	t.Helper()
	for i, server := range a.servers {
		for _, q := range questions {
			got, err := server.Ask(t.Context(), q.name, q.qtype)
			if err != nil {
				t.Error(err)
				continue
			}
			then(fmt.Sprintf("server %d: %s %s", i, q.name, dns.TypeToString[q.qtype]), got)
		}
	}
}

// observe returns the answers that there are now. They have what the services have.
func observe(t *testing.T, servers ...*testclusterset.DNS) *answers {
	t.Helper()
	a := &answers{servers: servers, before: map[string]string{}}
	for _, server := range servers {
		server.Answers(t, "east.web.shop", dns.TypeA, "NOERROR 10.21.0.1")
		server.Answers(t, "west.web.shop", dns.TypeA, "NOERROR 10.22.0.1")
		server.Answers(t, "db.bank", dns.TypeA, "NOERROR 10.21.0.3")
	}
	a.each(t, func(key, answer string) { a.before[key] = answer })
	return a
}

// watch compares all answers with those of before, again and again, until stop is called.
func (a *answers) watch(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil && !t.Failed() {
			a.each(t, func(key, answer string) {
				if a.answers.Add(1); answer != a.before[key] {
					t.Errorf("%s: %s, want %s as before", key, answer, a.before[key])
				}
			})
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// A randomWriter writes objects that are valid but for some random changes.
type randomWriter struct {
	attacker
	*rand.Rand
	accepted, rejected int
}

func (r *randomWriter) choose(from ...string) string { return from[r.IntN(len(from))] }

// write writes once.
func (r *randomWriter) write(ctx context.Context) {
	o, verb := r.object(), "apply"
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err) // They are all typed objects.
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	for range r.IntN(4) {
		r.change(u.Object)
	}
	switch {
	case u.GetKind() == "TokenRequest":
		err = r.token(ctx, u)
	case u.GetKind() == "Member" || r.IntN(8) == 0:
		err = r.patch(ctx, u)
	default:
		if r.IntN(6) == 0 {
			verb = "delete"
		}
		err = r.do(ctx, verb, u)
	}
	if err != nil {
		r.rejected++
		return
	}
	r.accepted++
}

// object returns an object as an honest controller would write it.
func (r *randomWriter) object() runtime.Object {
	namespace, name := r.choose("shop", "shop", "bank", "kube-system", "other"),
		r.choose("web", "web", "ledger", "db", "x", "y", "kubernetes")
	address := fmt.Sprintf("10.2%d.0.%d", 1+r.IntN(3), r.IntN(4))
	if r.IntN(2) == 0 {
		address = fmt.Sprintf("10.23.0.%d", 1+r.IntN(200))
	}
	record, slice := r.export(namespace, name, address)
	switch r.IntN(14) {
	case 0, 1, 2, 3:
		r.vary(&record.Spec)
		return record
	case 4, 5, 6, 7:
		slice.Name = fmt.Sprintf("%s.%s.%016x", name, namespace, r.IntN(20))
		for _, key := range []string{broker.LabelForZone, broker.LabelForRegion} {
			if r.IntN(4) == 0 {
				slice.Labels[key] = r.choose("a", "b", "zone a")
			}
		}
		return slice
	case 8:
		return r.heartbeat()
	case 9:
		return &v1alpha1.Member{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Member"},
			ObjectMeta: metav1.ObjectMeta{Name: r.ID},
			Status:     r.status(),
		}
	case 10:
		seconds := int64([]int{600, 3600, 1 << 30}[r.IntN(3)])
		return &authenticationv1.TokenRequest{
			TypeMeta:   metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
			ObjectMeta: metav1.ObjectMeta{Namespace: r.BrokerNamespace(), Name: broker.ServiceAccount},
			Spec:       authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
		}
	case 11, 12:
		return r.part(namespace, name, record.Spec.ExportUID)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImport",
		"metadata": map[string]any{"namespace": r.BrokerNamespace(), "name": record.Name},
		"spec": map[string]any{"type": "ClusterSetIP", "ips": []any{"10.23.0.1"},
			"ports": []any{map[string]any{"port": int64(80), "protocol": "TCP"}}},
	}}
}

// part returns an inventory that lists a service or not, and may claim addresses for it, also those of others.
func (r *randomWriter) part(namespace, name, uid string) runtime.Object {
	entry := v1alpha1.InventoryEntry{Name: broker.RecordName(namespace, name), UID: uid, From: int64(r.IntN(3)),
		Behind: int64(r.IntN(3))}
	for range r.IntN(3) {
		claim := v1alpha1.Claim{IP: r.choose("243.0.0.1", "243.0.0.2", "10.11.0.1", "fd00::1"), Since: 1 + int64(r.IntN(3)),
			Released: int64(r.IntN(2))}
		entry.Claims = append(entry.Claims, claim)
	}
	i := r.inventory(int64(r.IntN(100)), entry)
	i.Name = broker.InventoryPart(namespace, name)
	if r.IntN(3) == 0 {
		i.Spec.Exports = nil
	}
	return i
}

// vary gives a record random values of the fields that merge, DNS and the choice of clusters depend on.
func (r *randomWriter) vary(spec *v1alpha1.ExportedServiceSpec) {
	spec.VIP = []*v1alpha1.VIP{nil, {}, {Wanted: true}}[r.IntN(3)]
	spec.Type = []v1alpha1.ServiceType{v1alpha1.ClusterSetIP, v1alpha1.Headless}[r.IntN(2)]
	spec.IPFamilies = [][]corev1.IPFamily{{corev1.IPv4Protocol}, {corev1.IPv6Protocol},
		{corev1.IPv6Protocol, corev1.IPv4Protocol}}[r.IntN(3)]
	spec.Ports[0].Port = []int32{80, 81, 5432}[r.IntN(3)]
	if r.IntN(2) == 0 {
		spec.SessionAffinity = corev1.ServiceAffinityClientIP
		seconds := []int32{1, 10_800, 86_400}[r.IntN(3)]
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	if r.IntN(2) == 0 {
		spec.TrafficDistribution = new(r.choose(corev1.ServiceTrafficDistributionPreferClose, "PreferSameZone",
			"PreferSameNode", "Else"))
	}
	if r.IntN(2) == 0 {
		spec.ClusterSelectors = r.selectors()
	}
	if r.IntN(2) == 0 {
		spec.ToClusters = r.selectors()
	}
}

// selectors returns up to two random selectors of clusters.
func (r *randomWriter) selectors() (all []v1alpha1.ClusterSelector) {
	for range r.IntN(3) {
		key, value := r.choose(about.ClusterIDName, "region.topology.k8s.io", "x"),
			r.choose("east", "west", "mallory", "@SameAsImporter@")
		selector := v1alpha1.ClusterSelector{MatchProperties: []v1alpha1.Property{{Name: key, Value: value}}}
		switch r.IntN(4) {
		case 0:
			selector = v1alpha1.ClusterSelector{MatchExpressions: []v1alpha1.PropertyExpression{{Key: key, Operator: "NotIn",
				Values: []string{value}}}}
		case 1:
			selector = v1alpha1.ClusterSelector{MatchExpressions: []v1alpha1.PropertyExpression{{Key: key, Operator: "Exists"}}}
		}
		all = append(all, selector)
	}
	return all
}

// heartbeat returns a Lease of any time, TTL and holder. Members read those with the label.
func (r *randomWriter) heartbeat() *coordinationv1.Lease {
	seconds := int32([]int{0, 1, 30, 1 << 30}[r.IntN(4)])
	holder, now := r.choose("mallory", "east"), metav1.NewMicroTime(time.Now().Add(time.Duration(r.IntN(
		100)-50)*time.Hour))
	l := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: r.BrokerNamespace(), Name: broker.HeartbeatName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	if r.IntN(4) > 0 {
		l.Labels = map[string]string{broker.LabelManagedBy: broker.ManagedBy}
	}
	return l
}

// status returns the status of a Member: the properties by which exports reach it, and its options.
func (r *randomWriter) status() (s v1alpha1.MemberStatus) {
	s.Version, s.Merge = r.choose("", "0.1.0", "9.9.9"), r.choose("", "kep", "first")
	s.VIP = r.choose("", "derived", "none", "cidr 243.0.0.0/8", "cidr 0.0.0.0/0")
	if r.IntN(2) == 0 {
		s.Rejected = []v1alpha1.RejectedExport{{Name: r.choose("web.shop", "web"), Reason: r.choose("NoService", "x\n")}}
	}
	for _, name := range []string{about.ClusterIDName, "region.topology.k8s.io", "x"} {
		if r.IntN(2) == 0 {
			s.Properties = append(s.Properties, v1alpha1.Property{Name: name, Value: r.choose("east", "west", "mallory")})
		}
	}
	return s
}

// change changes one random field below o: it gets another value, is deleted, or is there twice.
func (r *randomWriter) change(o map[string]any) {
	keys := slices.Sorted(maps.Keys(o))
	if len(keys) == 0 {
		return
	}
	key := keys[r.IntN(len(keys))]
	if r.IntN(40) == 0 {
		key = r.choose("x", "status", "finalizers", "ownerReferences", "managedFields", "metadata", "spec")
	}
	switch v := o[key].(type) {
	case map[string]any:
		if r.IntN(20) > 0 {
			r.change(v)
			return
		}
	case []any:
		if len(v) > 0 && r.IntN(4) > 0 {
			at := r.IntN(len(v))
			if below, ok := v[at].(map[string]any); ok && r.IntN(3) > 0 {
				r.change(below)
				return
			}
			o[key] = slices.Concat(v, []any{r.value()})
			return
		}
	}
	switch r.IntN(4) {
	case 0:
		delete(o, key)
	default:
		o[key] = r.value()
	}
}

func (r *randomWriter) value() any {
	switch r.IntN(6) {
	case 0:
		return nil
	case 1:
		return []any{r.choose("10.21.0.1", "127.0.0.1", "fd00::1", "x")}
	case 2:
		return map[string]any{r.choose("x", "name", "broker.clusterset-dns.io/cluster-id"): r.choose("east", "", "x")}
	case 3:
		return []any{int64(0), int64(-1), int64(65536), int64(1) << 40, true, 1.5}[r.IntN(6)]
	}
	return r.choose("east", "west", "mallory", "10.21.0.1", "10.23.0.9", "Headless", "ClusterSetIP", "IPv6", "FQDN",
		"TCP", "ledger.bank", "bank", "web",
		"2001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "", "\u0000", string(make([]byte, 70_000)), "\u202e")
}

func (r *randomWriter) token(ctx context.Context, u *unstructured.Unstructured) error {
	_, err := r.client.Resource(accounts).Namespace(r.BrokerNamespace()).Create(ctx, u, metav1.CreateOptions{}, "token")
	return err
}

// patch merges the object into that of its name; of a Member only the status can be written.
func (r *randomWriter) patch(ctx context.Context, u *unstructured.Unstructured) error {
	text, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	var sub []string
	resource := map[string]schema.GroupVersionResource{"ExportedService": records, "EndpointSlice": exported,
		"Inventory": inventories, "ServiceImport": imports}[u.GetKind()]
	if u.GetKind() == "Member" || resource.Resource == "" {
		resource, sub = joined, []string{"status"}
		_, err = r.client.Resource(resource).Patch(ctx, r.ID, types.MergePatchType, text, metav1.PatchOptions{}, sub...)
		return err
	}
	_, err = r.client.Resource(resource).Namespace(r.BrokerNamespace()).Patch(ctx, u.GetName(), types.MergePatchType,
		text, metav1.PatchOptions{})
	return err
}
