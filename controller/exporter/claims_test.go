package exporter

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/about"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// alpha is another member, which has precedence among equals.
const alpha = "alpha"

// alphaRecord is alpha's record of a service that wants a clusterset IP.
func alphaRecord(svc types.NamespacedName) *v1alpha1.ExportedService {
	return &v1alpha1.ExportedService{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: apibroker.NamespaceName("member", alpha), Name: apibroker.RecordName(svc.Namespace, svc.Name),
			Labels: map[string]string{
				mcsv1beta1.LabelServiceName: svc.Name, mcsv1beta1.LabelSourceCluster: alpha,
				apibroker.LabelSourceNamespace: svc.Namespace,
			},
		},
		Spec: v1alpha1.ExportedServiceSpec{
			Namespace: svc.Namespace, Name: svc.Name, Type: v1alpha1.ClusterSetIP,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []v1alpha1.ServicePort{{Name: "pg", Protocol: corev1.ProtocolTCP, Port: 5432}}, ExportCreated: earlier,
			VIP: &v1alpha1.VIP{Wanted: true},
		},
	}
}

// create creates Service and export, and reconciles them.
func (a *exporting) create(svc types.NamespacedName, annotation string) []string {
	a.Helper()
	exp := memberenv.NewExport(svc)
	if annotation != "" {
		exp.Annotations = map[string]string{apibroker.AnnotationUseVIP: annotation}
	}
	a.Create(memberenv.NewService(svc), exp)
	return a.do(svc, "export of "+svc.Name+" seen", func() bool {
		return a.Member.Export(svc) != nil && a.Member.Service(svc) != nil
	})
}

// end ends the export of a service.
func (a *exporting) end(svc types.NamespacedName) {
	a.Helper()
	a.Delete(memberenv.NewExport(svc))
	a.do(svc, "end of export seen", func() bool { return a.Member.Export(svc) == nil })
}

// again exports a service again, and reconciles it.
func (a *exporting) again(svc types.NamespacedName) {
	a.Helper()
	a.Create(memberenv.NewExport(svc))
	a.do(svc, "export seen again", func() bool { return a.Member.Export(svc) != nil })
}

// claimed returns the addresses that the inventory on the broker gives to a service, released ones in brackets, and
// whether the service is listed.
func (a *exporting) claimed(svc types.NamespacedName) (text string, listed bool) {
	a.Helper()
	part := &v1alpha1.Inventory{}
	if err := a.Admin.Get(a.Context(), part, memberenv.Namespace,
		apibroker.InventoryPart(svc.Namespace, svc.Name)); err != nil {
		a.Fatal(err)
	}
	var all []string
	for _, e := range part.Spec.Exports {
		if e.Name != apibroker.RecordName(svc.Namespace, svc.Name) {
			continue
		}
		listed = e.UID != ""
		for _, x := range e.Claims {
			if x.Released != 0 {
				x.IP = "(" + x.IP + ")"
			}
			all = append(all, x.IP)
		}
	}
	return strings.Join(all, " "), listed
}

// expectClaims fails the test if the inventory gives other addresses to a service.
func (a *exporting) expectClaims(what string, svc types.NamespacedName, want string) {
	a.Helper()
	if got, _ := a.claimed(svc); got != want {
		a.Errorf("%s: %s has %q, want %q", what, svc.Name, got, want)
	}
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

// after makes it later.
func (a *exporting) after(d time.Duration) {
	a.claims.now = func() time.Time { return time.Now().Add(d) }
}

// docs/spec/controller.md 5.7: a VIP CIDR of two addresses in its life.
func TestClaims(t *testing.T) {
	b := newEnv(t)
	cidr := func(c *Config) { c.Merge.VIP = merge.CIDR }
	a := b.start(cidr)
	one, two, three := memberenv.Service("one"), memberenv.Service("two"), memberenv.Service("three")
	for _, svc := range []types.NamespacedName{one, two} {
		a.create(svc, "")
		a.Expect("at once again", a.do(svc, "", now))
	}
	first, listed := a.claimed(one)
	second, _ := a.claimed(two)
	if all := []string{first, second}; !listed || !slices.Contains(all, "243.0.0.4") ||
		!slices.Contains(all, "243.0.0.5") {
		t.Errorf("claims = %q, want both of 243.0.0.4/31", all)
	}
	exhausted := func(what string) {
		t.Helper()
		a.expectClaims(what, three, "")
		if got := a.readyOf(three); got != "False/Failed" {
			t.Errorf("%s: ready = %s with an exhausted pool, want False/Failed", what, got)
		}
	}
	a.create(three, "")
	exhausted("new")
	a.claims.count()

	a.End()
	a = b.start(cidr)
	for _, svc := range []types.NamespacedName{three, two, one} {
		a.Expect("a restart", a.do(svc, "", now))
	}
	a.end(one)
	a.expectClaims("ended", one, "("+first+")")
	a.after(2 * retryPool)
	a.Expect("in quarantine", a.do(three, "", now))
	exhausted("in quarantine")
	a.again(one)
	a.expectClaims("exported again", one, first)

	a.end(two)
	a.End()
	a = b.start(cidr)
	a.do(three, "", now)
	exhausted("in quarantine after a restart")
	a.after(2 * quarantine)
	a.do(two, "", now)
	a.expectClaims("after the quarantine", two, "")
	a.do(three, "", now)
	a.expectClaims("after the quarantine", three, second)
	if got := a.readyOf(three); got != "True/Exported" {
		t.Errorf("ready = %s with an address, want True/Exported", got)
	}
}

// docs/spec/controller.md 5.7: a claim of another member is enough; of two the older stays.
func TestClaimsOfOthers(t *testing.T) {
	b := newEnv(t)
	if err := b.Admin.Patch(t.Context(), &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: memberenv.ID}}, []byte(`{"spec":{"vipCIDRs":["243.0.0.0/24"]}}`)); err != nil {
		t.Fatal(err)
	}
	alphas := b.AddMember(alpha, "243.7.0.0/16")
	given, plain, older := memberenv.Service("given"), memberenv.Service("plain"), memberenv.Service("older")
	alone := alphaRecord(older)
	alone.Spec.ToClusters = []v1alpha1.ClusterSelector{{MatchProperties: []v1alpha1.Property{{Name: about.ClusterIDName,
		Value: alpha}}}}
	b.Create(alphaRecord(given), alphaRecord(plain), alone)
	b.Claim(alphas, given, earlier.Time, "243.7.0.9")
	a := b.start(func(c *Config) { c.Merge.VIP = merge.CIDR })
	b.Await("alpha seen", func() bool {
		return len(a.Broker.Members.All()) == 2 && len(a.Broker.Records(plain)) == 1 && len(a.Broker.Records(older)) == 1
	})

	a.create(given, "")
	a.expectClaims("another claim", given, "")
	never := memberenv.Service("never")
	b.Claim(alphas, never, earlier.Time, "243.7.0.7")
	a.Await("alpha's claim for what it does not export", func() bool { return len(a.vips(never).Claims) == 1 })
	a.create(never, "")
	if is, _ := a.claimed(never); is == "" {
		t.Error("no claim beside one of a member that does not export the service")
	}
	a.create(plain, "")
	a.expectClaims("an older export", plain, "")
	if got := a.readyOf(plain); got != "True/Exported" {
		t.Errorf("ready = %s, want True/Exported: it is not for this cluster to claim", got)
	}
	b.Delete(alphaRecord(plain))
	a.do(plain, "alpha's record gone", func() bool { return len(a.Broker.Records(plain)) == 1 })
	if is, _ := a.claimed(plain); is == "" {
		t.Error("no claim, though this cluster has the oldest export")
	}

	a.create(older, "")
	own, _ := a.claimed(older)
	// Alpha has the oldest export, for its own cluster alone, and claims an address all the same.
	b.Claim(alphas, older, earlier.Time, "243.7.0.8")
	a.do(older, "alpha's claim", func() bool { return len(a.vips(older).Claims) == 2 })
	a.expectClaims("an older claim", older, "("+own+")")
	b.Claim(alphas, older, earlier.Time)
	a.do(older, "alpha's claim gone", func() bool { return len(a.vips(older).Claims) == 0 })
	a.expectClaims("no other claim", older, own)

	// Where the namespace does not accept alpha, neither its older export nor its claim counts.
	closed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: older.Namespace}}
	if err := b.Admin.Patch(t.Context(), closed, []byte(`{"metadata":{"annotations":{"`+apibroker.AnnotationAllowedSources+`":"`+memberenv.ID+`"}}}`)); err != nil {
		t.Fatal(err)
	}
	shut := memberenv.Service("shut")
	b.Create(alphaRecord(shut))
	b.Claim(alphas, shut, earlier.Time, "243.7.0.6")
	a.Await("alpha's export and claim", func() bool {
		return len(a.Broker.Records(shut)) == 1 && len(a.vips(shut).Claims) == 1 &&
			a.Member.Namespace(older.Namespace).Annotations != nil
	})
	a.create(shut, "")
	if is, _ := a.claimed(shut); is == "" {
		t.Error("no claim beside an export and a claim that the namespace does not accept")
	}
}

// vips returns what decides on the clusterset IPs of a service.
func (a *exporting) vips(svc types.NamespacedName) merge.VIPs {
	_, o := a.Broker.View(svc, merge.Options{VIP: merge.CIDR})
	return o.VIPs
}

// docs/spec/controller.md 5.7: who has claimed an address keeps it for others that export the service, until they all
// say that they do not.
func TestClaimOutlivesTheExport(t *testing.T) {
	b := newEnv(t)
	b.AddMember(alpha)
	silent := false
	a := b.start(func(c *Config) {
		c.Merge.VIP, c.Silent = merge.CIDR, func(string) bool { return silent }
	})
	a.create(db, "")
	is, _ := a.claimed(db)
	b.Create(alphaRecord(db))
	a.Await("alpha's record", func() bool { return len(a.Broker.Records(db)) == 2 })
	a.end(db)
	if got, listed := a.claimed(db); got != is || listed {
		t.Errorf("claims = %q, listed %t; want %q of a service that is not listed", got, listed, is)
	}
	silent = true
	b.Delete(alphaRecord(db))
	a.do(db, "alpha's record gone", func() bool { return len(a.Broker.Records(db)) == 0 })
	a.expectClaims("alpha is silent", db, is)
	silent = false
	imp := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: db.Namespace, Name: db.Name,
			Labels: map[string]string{apibroker.LabelManagedBy: apibroker.ManagedBy}},
		Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}},
	}
	b.Create(imp)
	a.do(db, "import", func() bool { return a.Member.Import(db) != nil })
	a.expectClaims("this cluster still imports it", db, is)
	b.Delete(imp)
	betas := b.AddMember("beta")
	a.do(db, "no import, and a new member", func() bool {
		return a.Member.Import(db) == nil && len(a.Broker.Members.All()) == 3
	})
	a.expectClaims("nothing is known of beta", db, is)
	b.Delete(&v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "beta"}})
	a.do(db, "beta gone", func() bool { return len(a.Broker.Members.All()) == 2 })
	a.expectClaims("beta was not removed", db, is)
	mark := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, apibroker.AnnotationRemoved, time.Now().Format(time.RFC3339))
	if err := b.Admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: betas}}, mark); err != nil {
		t.Fatal(err)
	}
	a.do(db, "beta removed", func() bool { return a.Broker.Members.Removed("beta") })
	a.expectClaims("nobody exports it", db, "("+is+")")
}

// docs/spec/controller.md 5.7: claims that the broker lost are made again by the notes of the own imports, and no other
// service gets the address before.
func TestClaimsAreLost(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(c *Config) { c.Merge.VIP = merge.CIDR })
	a.create(db, "")
	is, _ := a.claimed(db)
	other := map[string]string{"243.0.0.4": "243.0.0.5", "243.0.0.5": "243.0.0.4"}[is] // than the hash chooses
	note, err := json.Marshal([]merge.Address{{IP: netip.MustParseAddr(other), Cluster: memberenv.ID,
		Stamp: time.Now().UnixMicro()}})
	if err != nil {
		t.Fatal(err)
	}
	b.Create(&mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: db.Namespace, Name: db.Name, Labels: map[string]string{apibroker.LabelManagedBy: apibroker.ManagedBy},
			Annotations: map[string]string{apibroker.AnnotationVIPs: string(note)},
		},
		Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}},
	})
	a.End()
	part := &v1alpha1.Inventory{ObjectMeta: metav1.ObjectMeta{Namespace: memberenv.Namespace,
		Name: apibroker.InventoryPart(db.Namespace, db.Name)}}
	b.Delete(part)

	a = b.start(func(c *Config) { c.Merge.VIP = merge.CIDR })
	for n := range 8 {
		a.create(memberenv.Service(fmt.Sprint("other-", n)), "")
		if got, _ := a.claimed(memberenv.Service(fmt.Sprint("other-", n))); got == other {
			t.Errorf("another service has %s, which the import of db notes", got)
		}
	}
	a.do(db, "", now)
	a.expectClaims("lost", db, other)
}

// docs/spec/controller.md 1, "vip cidr CIDR": a VIP CIDR that is no part of it does not count.
func TestVIPsOutsideOfThePool(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(c *Config) {
		c.Merge.VIP, c.Merge.VIPNetworks = merge.CIDR, merge.DefaultVIPNetworks.WithNetwork(netip.MustParsePrefix("10.200.0.0/14"))
	})
	one := memberenv.Service("one")
	a.create(one, "")
	a.expectClaims("outside", one, "")
	if got := a.readyOf(one); got != "False/Failed" {
		t.Errorf("ready = %s, want False/Failed", got)
	}
	a.Expect("again", a.do(one, "", now))

	// docs/spec/controller.md 3.8: who claims does not follow from the option of one member. Here alpha has another one,
	// by which its VIP CIDR counts.
	a.End()
	b.AddMember(alpha, "10.200.0.0/16")
	b.AddMember("beta")
	two := memberenv.Service("two")
	record := alphaRecord(two)
	record.Spec.ToClusters = []v1alpha1.ClusterSelector{{MatchProperties: []v1alpha1.Property{{Name: "cluster.clusterset.k8s.io", Value: "beta"}}}}
	b.Create(record)
	a = b.start(func(c *Config) { c.Merge.VIP = merge.CIDR })
	b.Await("alpha and beta seen", func() bool {
		return len(a.Broker.Members.All()) == 3 && len(a.Broker.Records(two)) == 1
	})
	a.create(two, "")
	a.expectClaims("alpha's to claim", two, "")
	if ready := a.readyOf(two); ready != "True/Exported" {
		t.Errorf("ready = %s; want True/Exported: it is for alpha to claim", ready)
	}
}

// docs/spec/controller.md 5.7: on for all, or by annotation where a VIP CIDR was given.
func TestVIPByAnnotation(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(c *Config) { c.Merge.VIP = merge.Derived })
	a.create(memberenv.Service("silent"), "")
	a.create(memberenv.Service("asks"), "true")
	a.expectClaims("without an annotation", memberenv.Service("silent"), "")
	if got, _ := a.claimed(memberenv.Service("asks")); got == "" {
		t.Error("no address with the annotation, want one")
	}
	a.End()
	a = b.start(func(c *Config) { c.Merge.VIP = merge.CIDR })
	a.create(memberenv.Service("declines"), "false")
	a.expectClaims("an annotation against it", memberenv.Service("declines"), "")
	if got := a.readyOf(memberenv.Service("declines")); got != "True/Exported" {
		t.Errorf("ready = %s, want True/Exported", got)
	}
}

// docs/spec/controller.md 5.7: a service has an address of each of its families with a VIP CIDR. A claimed address
// stays when the member gets a CIDR of the other family, and goes with its CIDR.
func TestVIPsOfBothFamilies(t *testing.T) {
	b := newEnv(t)
	a := b.start(func(c *Config) { c.Merge.VIP = merge.CIDR })
	both := memberenv.Service("both")
	service := memberenv.NewService(both)
	service.Spec.IPFamilyPolicy, service.Spec.IPFamilies = ptr.To(corev1.IPFamilyPolicyRequireDualStack),
		[]corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	b.Create(service, memberenv.NewExport(both))
	a.do(both, "export seen", func() bool { return a.Member.Export(both) != nil && a.Member.Service(both) != nil })
	first, _ := a.claimed(both)
	if !strings.HasPrefix(first, "243.0.0.") || a.readyOf(both) != "True/Exported" {
		t.Errorf("claims = %q and Ready = %s with an IPv4 CIDR, want one address, and exported", first, a.readyOf(both))
	}
	patch := func(spec string) {
		t.Helper()
		if err := a.Admin.Patch(a.Context(), &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: memberenv.ID}}, []byte(`{"spec":`+spec+`}`)); err != nil {
			t.Fatal(err)
		}
	}
	pools := func() []merge.Pool {
		return a.claims.own(merge.Pools(a.Broker.Members.All(), merge.DefaultVIPNetworks))
	}
	patch(`{"vipCIDRs":["243.0.0.4/31","fd17:87d8:f436::4/126"]}`)
	a.do(both, "second VIP CIDR seen", func() bool { return len(pools()) == 2 })
	second, _ := a.claimed(both)
	if !strings.HasPrefix(second, first+" fd17:87d8:f436::") {
		t.Fatalf("claims = %q with a CIDR of each family, want %s as before and a second", second, first)
	}
	a.Expect("at once again", a.do(both, "", now))
	patch(`{"vipCIDRs":["243.9.0.0/16","fd17:87d8:f436::4/126"]}`)
	a.do(both, "another VIP CIDR seen", func() bool {
		return len(pools()) == 2 && strings.HasPrefix(pools()[0].Prefix.String(), "243.9.")
	})
	if got, _ := a.claimed(both); !strings.Contains(got, "243.9.") || strings.Contains(got, first) ||
		!strings.Contains(second, strings.Fields(got)[0]) {
		t.Errorf("claims = %q with another VIP CIDR, want one of it beside the IPv6 one of %q", got, second)
	}
	patch(`{"vipCIDRs":null}`) // as on a broker from before the join
	before, _ := a.claimed(both)
	a.do(both, "no VIP CIDR", func() bool { return len(pools()) == 0 })
	a.expectClaims("without a VIP CIDR", both, before)
}
