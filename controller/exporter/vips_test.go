package exporter

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/about"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// alpha is another member, which has precedence among equals.
const alpha = "alpha"

// alphaRecord is what alpha says about a service, with this VIP.
func alphaRecord(svc types.NamespacedName, vip *v1alpha1.VIP) *v1alpha1.ExportedService {
	return &v1alpha1.ExportedService{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: apibroker.NamespaceName("member", alpha), Name: apibroker.RecordName(svc.Namespace, svc.Name),
			Labels: map[string]string{
				mcsv1beta1.LabelServiceName: svc.Name, mcsv1beta1.LabelSourceCluster: alpha, apibroker.LabelSourceNamespace: svc.Namespace,
			},
		},
		Spec: v1alpha1.ExportedServiceSpec{
			Namespace: svc.Namespace, Name: svc.Name, Type: v1alpha1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []v1alpha1.ServicePort{{Name: "pg", Protocol: corev1.ProtocolTCP, Port: 5432}}, ExportCreated: earlier, VIP: vip,
		},
	}
}

// export creates Service and export, and reconciles them.
func (a *exporting) create(svc types.NamespacedName, annotation string) []string {
	a.Helper()
	exp := memberenv.NewExport(svc)
	if annotation != "" {
		exp.Annotations = map[string]string{apibroker.AnnotationUseVIP: annotation}
	}
	a.Create(memberenv.NewService(svc), exp)
	return a.do(svc, "export of "+svc.Name+" seen", func() bool { return a.Member.Export(svc) != nil && a.Member.Service(svc) != nil })
}

// vipOf returns what the broker has of ours about the clusterset IP of a service.
func (a *exporting) vipOf(svc types.NamespacedName) v1alpha1.VIP {
	a.Helper()
	record := &v1alpha1.ExportedService{}
	if err := a.Admin.Get(a.Context(), record, memberenv.Namespace, apibroker.RecordName(svc.Namespace, svc.Name)); err != nil {
		a.Fatal(err)
	}
	if record.Spec.VIP == nil {
		return v1alpha1.VIP{}
	}
	return *record.Spec.VIP
}

// readyOf returns status and reason of Ready.
func (a *exporting) readyOf(svc types.NamespacedName) string {
	a.Helper()
	exp := &mcsv1beta1.ServiceExport{}
	if err := a.Admin.Get(a.Context(), exp, svc.Namespace, svc.Name); err != nil {
		a.Fatal(err)
	}
	c := meta.FindStatusCondition(exp.Status.Conditions, "Ready")
	if c == nil {
		return "none"
	}
	return fmt.Sprint(c.Status, "/", c.Reason)
}

func now() bool { return true }

// docs/spec/controller.md 5, "VIP cidr": a pool of two addresses in its life.
func TestVIPs(t *testing.T) {
	b := newEnv(t)
	cidr := func(c *Config) { c.Merge.VIP = merge.CIDR }
	b.Create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: wellknown.ControllerNamespace, Name: wellknown.ControllerLease}})
	a := b.start(cidr)
	one, two, three := memberenv.Service("one"), memberenv.Service("two"), memberenv.Service("three")
	for _, svc := range []types.NamespacedName{one, two} {
		a.create(svc, "")
		if v := a.vipOf(svc); len(v.IPs) != 1 || v.AllocatedBy != memberenv.ID || v.At == nil || !v.Wanted {
			t.Errorf("vip of %s = %+v, want an address by %s", svc, v, memberenv.ID)
		}
		a.Expect("at once again", a.do(svc, "", now))
	}
	first, second := a.vipOf(one).IPs, a.vipOf(two).IPs
	if all := []string{first[0], second[0]}; !slices.Contains(all, "243.0.0.4") || !slices.Contains(all, "243.0.0.5") {
		t.Errorf("vips = %q, want both of 243.0.0.4/31", all)
	}
	exhausted := func() {
		t.Helper()
		if v := a.vipOf(three); len(v.IPs) > 0 || !v.Wanted {
			t.Errorf("vip = %+v of an exhausted pool, want none, and wanted", v)
		}
		if got := a.readyOf(three); got != "False/Failed" {
			t.Errorf("ready = %s with an exhausted pool, want False/Failed", got)
		}
	}
	a.create(three, "")
	exhausted()

	a.End()
	a = b.start(cidr)
	for _, svc := range []types.NamespacedName{three, two, one} {
		a.Expect("a restart", a.do(svc, "", now))
	}

	b.Delete(memberenv.NewExport(one))
	a.do(one, "end of export seen", func() bool { return a.Member.Export(one) == nil })
	a.Expect("in quarantine", a.do(three, "", now))
	exhausted()

	// The next instance goes on with the quarantine.
	if err := a.vips.save(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.End()
	a = b.start(cidr)
	a.Expect("in quarantine after a restart", a.do(three, "", now))
	exhausted()
	b.Create(memberenv.NewExport(one))
	a.do(one, "export seen again", func() bool { return a.Member.Export(one) != nil })
	if v := a.vipOf(one); !slices.Equal(v.IPs, first) {
		t.Errorf("vip = %q after a new export, want %q, which waits for it", v.IPs, first)
	}
	four := testQuarantineIsKept(a, two, three)

	// The cluster no longer wants clusterset IPs. An object that loses all of its fields would become null when it is applied, and be rejected.
	a.End()
	a = b.start(func(c *Config) { c.Merge.VIP = merge.Derived })
	a.do(four, "", now)
	if v := a.vipOf(four); v.Wanted || len(v.IPs) > 0 {
		t.Errorf("vip = %+v without clusterset IPs, want none", v)
	}
	a.Expect("at once again", a.do(four, "", now))
}

// testQuarantineIsKept ends the export of two, whose address is then in quarantine: it stays there while the VIP CIDR is away for a moment and
// what was saved is lost. While the quarantine cannot be read, nothing else waits for it. It returns a service whose record has no address.
func testQuarantineIsKept(a *exporting, two, three types.NamespacedName) (four types.NamespacedName) {
	a.Helper()
	// free reports whether three gets the address.
	free := func() bool {
		a.do(three, "", now)
		return len(a.vipOf(three).IPs) > 0
	}
	drop := func() {
		a.vips.mu.Lock()
		defer a.vips.mu.Unlock()
		a.vips.drop()
	}
	addr := func(svc types.NamespacedName) netip.Addr { return netip.MustParseAddr(a.vipOf(svc).IPs[0]) }
	one, gone := addr(memberenv.Service("one")), addr(two)
	a.Delete(memberenv.NewExport(two))
	a.do(two, "end of export seen", func() bool { return a.Member.Export(two) == nil })
	a.Await("the records as they are now", func() bool {
		all := a.vips.broker.VIPs()
		return len(all[one]) > 0 && len(all[gone]) == 0
	})
	drop()
	if free() {
		a.Error("an address leaves quarantine with the VIP CIDR, and is not saved yet")
	}

	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: wellknown.ControllerNamespace, Name: wellknown.ControllerLease}}
	saved := func() string {
		read := &coordinationv1.Lease{}
		if err := errors.Join(a.vips.save(a.Context()), a.Admin.Get(a.Context(), read, lease.Namespace, lease.Name)); err != nil {
			a.Fatal(err)
		}
		return read.Annotations[wellknown.AnnotationQuarantine]
	}
	before := saved()
	a.Delete(lease)
	a.Create(lease)
	a.vips.saved = time.Time{} // a minute later
	if after := saved(); before == "" || after != before {
		a.Errorf("quarantine = %q in a new Lease, want %q", after, before)
	}

	drop()
	a.vips.mu.Lock()
	a.vips.dropped = nil
	a.vips.mu.Unlock()
	a.vips.quarantine.note.Namespace = "no/namespace"
	if free() {
		a.Error("an address is allocated while the quarantine cannot be read")
	}
	four = memberenv.Service("four")
	a.create(four, "")
	if v := a.vipOf(four); len(v.IPs) > 0 || !v.Wanted {
		a.Errorf("vip = %+v while the quarantine cannot be read, want a record without one", v)
	}
	a.vips.quarantine.note.Namespace = wellknown.ControllerNamespace
	if free() {
		a.Error("an address has left quarantine")
	}
	return four
}

// docs/spec/controller.md 5: what another allocated is copied, and stays when that one goes; who is not the oldest does not allocate.
func TestVIPsOfOthers(t *testing.T) {
	b := newEnv(t)
	b.AddMember(alpha, "243.7.0.0/16")
	copied, plain := memberenv.Service("copied"), memberenv.Service("plain")
	given := &v1alpha1.VIP{IPs: []string{"243.7.0.9"}, AllocatedBy: alpha, At: &earlier, Wanted: true}
	record := alphaRecord(copied, given)
	b.Create(record, alphaRecord(plain, nil))
	a := b.start(func(c *Config) { c.Merge.VIP = merge.CIDR })
	b.Await("alpha seen", func() bool { return len(a.Broker.Members()) == 2 && len(a.Broker.Records(plain)) == 1 })

	a.create(copied, "")
	if v := a.vipOf(copied); !slices.Equal(v.IPs, given.IPs) || v.AllocatedBy != alpha || !v.At.Equal(&earlier) {
		t.Errorf("vip = %+v, want a copy of alpha's", v)
	}
	b.Delete(record)
	a.Expect("alpha's record gone", a.do(copied, "alpha's record gone", func() bool { return len(a.Broker.Records(copied)) == 1 }))

	a.create(plain, "")
	if v := a.vipOf(plain); len(v.IPs) > 0 || !v.Wanted {
		t.Errorf("vip = %+v, want none: the oldest export has none", v)
	}
	if got := a.readyOf(plain); got != "True/Exported" {
		t.Errorf("ready = %s, want True/Exported: it is not for this cluster to allocate", got)
	}
	b.Delete(alphaRecord(plain, nil))
	a.do(plain, "alpha's record gone", func() bool { return len(a.Broker.Records(plain)) == 1 })
	if v := a.vipOf(plain); len(v.IPs) != 1 || v.AllocatedBy != memberenv.ID {
		t.Errorf("vip = %+v, want one of our own once ours is the oldest export", v)
	}

	b.Delete(&v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: alpha}})
	a.Expect("alpha left", a.do(copied, "alpha left", func() bool { return len(a.Broker.Members()) == 1 }))
	if v := a.vipOf(copied); !slices.Equal(v.IPs, given.IPs) || v.AllocatedBy != alpha {
		t.Errorf("vip = %+v, want still a copy of that of alpha, which left", v)
	}
	r := a.exported(copied)
	if imp := a.merged(copied, r.Record); !slices.Equal(imp.Spec.IPs, given.IPs) {
		t.Errorf("ips of the import = %q, want %q", imp.Spec.IPs, given.IPs)
	}
}

// docs/spec/controller.md 5.7: an address that only records say a cluster which is no member has allocated counts while they are there, and comes into no
// other record.
func TestVIPOfNoMember(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(c *Config) { c.Merge.VIP = merge.CIDR })
	b.AddMember(alpha, "")
	at := metav1.Now().Rfc3339Copy()
	record := alphaRecord(db, &v1alpha1.VIP{Wanted: true, IPs: []string{"243.200.0.1"}, AllocatedBy: "ghost", At: &at})
	b.Create(record)
	a.Await("alpha's record", func() bool { return len(a.Broker.Records(db)) == 1 })
	a.create(db, "")
	if v := a.vipOf(db); len(v.IPs) > 0 || !v.Wanted {
		t.Errorf("vip = %+v, want no copy of what no member has allocated", v)
	}
	if got := a.readyOf(db); got != "True/Exported" {
		t.Errorf("ready = %s, want True/Exported: the service has an address", got)
	}
	// A cluster that has to allocate is not kept from it by such a record, such as one that is Headless and reaches no other cluster.
	own := memberenv.Service("own")
	ghost := alphaRecord(own, record.Spec.VIP)
	ghost.Spec.Type = v1alpha1.Headless
	ghost.Spec.ToClusters = []v1alpha1.ClusterSelector{{MatchProperties: []v1alpha1.Property{{Name: about.ClusterIDName, Value: alpha}}}}
	b.Create(ghost)
	a.Await("alpha's record of its own", func() bool { return len(a.Broker.Records(own)) == 1 })
	a.create(own, "")
	if v := a.vipOf(own); len(v.IPs) != 1 || v.AllocatedBy != memberenv.ID {
		t.Errorf("vip = %+v beside an address that no member has allocated: want one of this cluster", v)
	}

	b.Delete(record)
	a.do(db, "alpha's record gone", func() bool { return len(a.Broker.Records(db)) == 1 })
	if v := a.vipOf(db); len(v.IPs) != 1 || v.AllocatedBy != memberenv.ID {
		t.Errorf("vip = %+v without such records, want an address of this cluster", v)
	}
}

// docs/spec/controller.md 5, "freed only when the last record is gone": whatever of our own addresses a record of another names is taken, and
// no longer, though nothing of ours changes.
func TestVIPsFollowCopies(t *testing.T) {
	b := newEnv(t)
	b.AddMember(alpha, "243.7.0.0/16")
	a := b.start(func(c *Config) { c.Merge.VIP = merge.CIDR })
	one := memberenv.Service("one")
	a.create(one, "")
	copied := a.vipOf(one)
	usage := func(what string, used, quarantined int) {
		t.Helper()
		a.Await(what, func() bool {
			a.vips.mu.Lock()
			defer a.vips.mu.Unlock()
			u, q, _ := a.vips.pools.Of(true).Usage(time.Now())
			return u == used && q == quarantined
		})
	}
	usage("ours", 1, 0)
	b.Delete(memberenv.NewExport(one))
	a.do(one, "end of export seen", func() bool { return a.Member.Export(one) == nil })
	usage("freed", 0, 1)
	b.Create(alphaRecord(one, &copied))
	usage("a copy that came late", 1, 0)
	b.Delete(alphaRecord(one, nil))
	usage("the last copy is gone", 0, 1)

	// Another member takes what is left of the pool. Who has an address keeps it, and who gets none learns why.
	b.Create(memberenv.NewExport(one))
	a.do(one, "export seen again", func() bool { return a.Member.Export(one) != nil })
	other := copied
	other.IPs = []string{"243.0.0.4"}
	if slices.Equal(copied.IPs, other.IPs) {
		other.IPs = []string{"243.0.0.5"}
	}
	b.Create(alphaRecord(memberenv.Service("flood"), &other))
	usage("ours, and what alpha has taken", 2, 0)
	two := memberenv.Service("two")
	a.create(two, "")
	exp := &mcsv1beta1.ServiceExport{}
	if err := a.Admin.Get(a.Context(), exp, two.Namespace, two.Name); err != nil {
		t.Fatal(err)
	}
	const want = `Records of other clusters alone have 1 addresses of it, 1 of them those of "alpha".`
	if c := meta.FindStatusCondition(exp.Status.Conditions, "Ready"); c == nil || c.Reason != "Failed" || !strings.Contains(c.Message, want) {
		t.Errorf("Ready = %+v, want that the pool is exhausted, and %s", c, want)
	}
	a.do(one, "", now)
	if v := a.vipOf(one); !slices.Equal(v.IPs, copied.IPs) {
		t.Errorf("vip = %q, want %q as before", v.IPs, copied.IPs)
	}
}

// docs/spec/controller.md 1, "vip cidr CIDR": a VIP CIDR that is no part of it does not count.
func TestVIPsOutsideOfThePool(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(c *Config) {
		c.Merge.VIP, c.Merge.VIPNetworks = merge.CIDR, merge.DefaultVIPNetworks.With(netip.MustParsePrefix("10.200.0.0/14"))
	})
	one := memberenv.Service("one")
	a.create(one, "")
	if v := a.vipOf(one); len(v.IPs) > 0 || !v.Wanted {
		t.Errorf("vip = %+v, want none of 243.0.0.4/31", v)
	}
	if got := a.readyOf(one); got != "False/Failed" {
		t.Errorf("ready = %s, want False/Failed", got)
	}
	a.Expect("again", a.do(one, "", now))

	// docs/spec/controller.md 3.8: who allocates does not follow from the option of one member. Here alpha has another one, by which its VIP CIDR counts.
	a.End()
	b.AddMember(alpha, "10.200.0.0/16")
	b.AddMember("beta", "")
	two := memberenv.Service("two")
	record := alphaRecord(two, &v1alpha1.VIP{Wanted: true})
	record.Spec.ToClusters = []v1alpha1.ClusterSelector{{MatchProperties: []v1alpha1.Property{{Name: "cluster.clusterset.k8s.io", Value: "beta"}}}}
	b.Create(record)
	a = b.start(func(c *Config) { c.Merge.VIP = merge.CIDR })
	b.Await("alpha and beta seen", func() bool { return len(a.Broker.Members()) == 3 && len(a.Broker.Records(two)) == 1 })
	a.create(two, "")
	if v, ready := a.vipOf(two), a.readyOf(two); len(v.IPs) > 0 || ready != "True/Exported" {
		t.Errorf("vip = %+v, ready = %s; want none and True/Exported: it is for alpha to allocate", v, ready)
	}
}

// docs/spec/controller.md 5: on for all, or by annotation where a VIP CIDR was given.
func TestVIPByAnnotation(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(c *Config) { c.Merge.VIP = merge.Derived })
	a.create(memberenv.Service("silent"), "")
	a.create(memberenv.Service("asks"), "true")
	if v := a.vipOf(memberenv.Service("silent")); len(v.IPs) > 0 || v.Wanted {
		t.Errorf("vip = %+v without an annotation, want none", v)
	}
	if v := a.vipOf(memberenv.Service("asks")); len(v.IPs) != 1 || !v.Wanted {
		t.Errorf("vip = %+v with the annotation, want one", v)
	}
	a.End()
	a = b.start(func(c *Config) { c.Merge.VIP = merge.CIDR })
	a.create(memberenv.Service("declines"), "false")
	if v := a.vipOf(memberenv.Service("declines")); len(v.IPs) > 0 || v.Wanted {
		t.Errorf("vip = %+v with an annotation against it, want none", v)
	}
	if got := a.readyOf(memberenv.Service("declines")); got != "True/Exported" {
		t.Errorf("ready = %s, want True/Exported", got)
	}
}

// docs/spec/controller.md 5.7: an address of each family that the service has and the member has a VIP CIDR of; one that is allocated stays when
// the member gets a CIDR of the other family, and both are copied.
func TestVIPsOfBothFamilies(t *testing.T) {
	b := newEnv(t)
	alphas := b.AddMember(alpha, "243.7.0.0/16")
	a := b.start(func(c *Config) { c.Merge.VIP = merge.CIDR })
	both, copied := memberenv.Service("both"), memberenv.Service("copied")
	service := memberenv.NewService(both)
	service.Spec.IPFamilyPolicy, service.Spec.IPFamilies = ptr.To(corev1.IPFamilyPolicyRequireDualStack), []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	b.Create(service, memberenv.NewExport(both))
	a.do(both, "export seen", func() bool { return a.Member.Export(both) != nil && a.Member.Service(both) != nil })
	first := a.vipOf(both)
	if len(first.IPs) != 1 || first.Second != nil || a.readyOf(both) != "True/Exported" {
		t.Errorf("vip = %+v and Ready = %s with an IPv4 CIDR, want one address, and exported", first, a.readyOf(both))
	}

	patch := func(id, second string) {
		if err := a.Admin.Patch(a.Context(), &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: id}}, fmt.Appendf(nil, `{"spec":{"secondVIPCIDR":%q}}`, second)); err != nil {
			t.Fatal(err)
		}
	}
	patch(memberenv.ID, "fd17:87d8:f436::4/126")
	a.do(both, "second VIP CIDR seen", func() bool { return len(a.vips.current()) == 2 })
	v := a.vipOf(both)
	if !slices.Equal(v.IPs, first.IPs) || !v.At.Equal(first.At) || v.Second == nil || v.Second.AllocatedBy != memberenv.ID {
		t.Fatalf("vip = %+v with a CIDR of each family, want %q as before and a second by %s", v, first.IPs, memberenv.ID)
	}
	a.Expect("at once again", a.do(both, "", now))
	r := a.exported(both)
	imp := a.merged(both, r.Record)
	if want := []string{v.Second.IP, v.IPs[0]}; !slices.Equal(imp.Spec.IPs, want) {
		t.Errorf("ips of the import = %q, want %q, in the order of the families of the Service", imp.Spec.IPs, want)
	}

	patch(alpha, "fd17:87d8:f436::7:0/112")
	given := &v1alpha1.VIP{
		IPs: []string{"243.7.0.9"}, AllocatedBy: alpha, At: &earlier, Wanted: true,
		Second: &v1alpha1.SecondVIP{IP: "fd17:87d8:f436::7:9", AllocatedBy: alpha, At: earlier},
	}
	record := alphaRecord(copied, given)
	record.Namespace = alphas
	b.Create(record)
	b.Await("alpha seen", func() bool {
		return len(a.Broker.Records(copied)) == 1 && len(merge.Pools(a.Broker.Members(), merge.VIPNetworks{})) == 4
	})
	a.create(copied, "")
	if v := a.vipOf(copied); !slices.Equal(v.IPs, given.IPs) || v.Second == nil || v.Second.IP != given.Second.IP || v.Second.AllocatedBy != alpha {
		t.Errorf("vip = %+v, want copies of both of alpha's", v)
	}

	// Who names addresses of one pool is not blamed for the other.
	taken := given.DeepCopy()
	taken.Second.IP, taken.Second.AllocatedBy = "fd17:87d8:f436::6", memberenv.ID
	flood := alphaRecord(memberenv.Service("flood"), taken)
	flood.Namespace = alphas
	b.Create(flood)
	b.Await("the record of alpha", func() bool { return len(a.Broker.Records(memberenv.Service("flood"))) == 1 })
	a.vips.mu.Lock()
	defer a.vips.mu.Unlock()
	if blame := a.vips.takenByOthers(a.vips.pools.Of(true), time.Now()); blame != "" {
		t.Errorf("said of the IPv4 pool: %q, want nothing", blame)
	}
	if blame := a.vips.takenByOthers(a.vips.pools.Of(false), time.Now()); !strings.Contains(blame, "have 1 addresses of it") {
		t.Errorf("said of the IPv6 pool: %q, want one address", blame)
	}
}
