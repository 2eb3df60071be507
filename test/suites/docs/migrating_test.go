package docs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

const migratingDoc = "docs/migrating.md"

// migrated are questions that every server on the way answers alike, with the records, sorted.
var migrated = []struct {
	name  string
	qtype uint16
	want  string
}{
	{web, dns.TypeA, "10.200.0.10"},
	{"_http._tcp." + web, dns.TypeSRV, "80 " + web},
	{"db.shop.svc.clusterset.local.", dns.TypeA, "10.1.0.20 10.1.0.21 10.2.0.20 10.3.0.20"},
	{"db-0.east.db.shop.svc.clusterset.local.", dns.TypeA, "10.1.0.20"},
	{"db-0.west.db.shop.svc.clusterset.local.", dns.TypeAAAA, "fd00:2::20"},
	{"none.shop.svc.clusterset.local.", dns.TypeA, "NXDOMAIN"},
	{"kubernetes.default.svc.cluster.local.", dns.TypeA, "10.96.0.1"},
}

// TestMigrateFromKubernetes puts the Corefiles of the way from the option multicluster into use, one after the other:
// each of them answers the same.
func TestMigrateFromKubernetes(t *testing.T) {
	tier.All(t)
	need(t)
	steps := blocks(section(t, migratingDoc, "The option multicluster of kubernetes"), "corefile")
	if len(steps) != 4 {
		t.Fatalf("%d Corefiles, want that of before and one for each of three steps", len(steps))
	}
	for i, text := range steps {
		t.Run(fmt.Sprintf("step %d", i), func(t *testing.T) {
			c := localize(t, text, api.Kubeconfig())
			s := c.launch(t) // start asks what kubernetes does not answer
			for _, q := range migrated {
				awaitRecords(t, s, c.dns, q.name, q.qtype, q.want)
			}
		})
	}
}

// TestMigrateFromMulticluster starts the Corefile that replaces one of the plugin multicluster.
func TestMigrateFromMulticluster(t *testing.T) {
	tier.All(t)
	need(t)
	part := section(t, migratingDoc, "The plugin multicluster")
	before, after := blocks(part, "txt"), blocks(part, "corefile")
	if len(before) != 1 || len(after) != 1 {
		t.Fatalf("%d Corefiles of multicluster and %d of clusterset, want one each", len(before), len(after))
	}
	for _, option := range strings.Split(before[0], "\n") {
		option = strings.TrimSpace(option)
		if option != "}" && !strings.HasPrefix(option, "multicluster ") && !strings.Contains(after[0], option) {
			t.Errorf("the new Corefile lacks %q", option)
		}
	}
	c := localize(t, after[0], api.Kubeconfig())
	s := c.start(t)
	for _, q := range migrated {
		// no plugin behind takes what falls through
		if strings.HasSuffix(q.name, ".clusterset.local.") && q.want != "NXDOMAIN" {
			awaitRecords(t, s, c.dns, q.name, q.qtype, q.want)
		}
	}
}

// awaitRecords waits for an answer with these records.
func awaitRecords(t *testing.T, s *server.Server, address, name string, qtype uint16, want string) {
	t.Helper()
	err := s.Await(t.Context(), func(ctx context.Context) error {
		reply, err := server.Ask(ctx, address, name, qtype)
		if err != nil {
			return err
		}
		var values []string
		for _, rr := range reply.Answer {
			if srv, ok := rr.(*dns.SRV); ok { // weights differ
				values = append(values, fmt.Sprintf("%d %s", srv.Port, srv.Target))
				continue
			}
			values = append(values, strings.TrimPrefix(rr.String(), rr.Header().String()))
		}
		slices.Sort(values)
		got := strings.Join(values, " ")
		if reply.Rcode != dns.RcodeSuccess {
			got = dns.RcodeToString[reply.Rcode]
		}
		if got != want {
			return fmt.Errorf("%s %s = %q, want %q", name, dns.TypeToString[qtype], got, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestMigrateFromLighthouse takes a service through both steps: first our DNS server answers from the objects of
// Lighthouse, then our controllers, which ran beside it, replace them.
func TestMigrateFromLighthouse(t *testing.T) {
	tier.All(t)
	part := section(t, migratingDoc, "Lighthouse")
	c, err := testclusterset.Start(t.Context(), testclusterset.Options{IDs: []string{"east", "west"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	east, west := c.Members[0], c.Members[1]
	vips := map[*testclusterset.Member]string{}
	for _, m := range c.Members {
		vips[m] = offer(t, m)
	}
	for _, m := range c.Members {
		m.Put(t, lighthouseImport())
		for _, of := range c.Members {
			m.Put(t, lighthouseSlice(of.ID, vips[of]))
		}
	}
	if err := east.ApplyYAML(t.Context(), []byte(blocks(part, "yaml")[0])); err != nil {
		t.Fatal(err)
	}

	// 1. DNS
	d := testclusterset.StartDNS(t, east)
	answers := func() {
		t.Helper()
		d.Answers(t, "web.shop", dns.TypeA, "NOERROR "+vips[east])
		d.Answers(t, "west.web.shop", dns.TypeA, "NOERROR "+vips[west])
	}
	answers()

	// 2. Objects
	for _, m := range c.Members {
		if _, err := m.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.Run(t)
		m.Put(t, testclusterset.Export("shop", "web"))
	}
	replaceImports(t, c, part, answers)
	imp, err := east.Import(t.Context(), "shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	d.Answers(t, "web.shop", dns.TypeA, "NOERROR "+imp.Spec.IPs[0])
	d.Answers(t, "west.web.shop", dns.TypeA, "NOERROR "+west.PodIP(1, corev1.IPv4Protocol))
}

// offer creates the Service web with a Pod, and returns its cluster IP.
func offer(t *testing.T, m *testclusterset.Member) (clusterIP string) {
	t.Helper()
	service := testclusterset.Service("shop", "web", testclusterset.Port("http", 80))
	m.Put(t, testclusterset.Namespace("shop"), service,
		testclusterset.Slice(service, "web-1", testclusterset.Endpoint{Address: m.PodIP(1, corev1.IPv4Protocol)}))
	u, err := m.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"}).Namespace("shop").
		Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u.Object["spec"].(map[string]any)["clusterIP"].(string)
}

const lighthouseAgent = "lighthouse-agent.submariner.io"

// lighthouseImport is what Lighthouse keeps for a service that two clusters export.
func lighthouseImport() *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{
		TypeMeta:   metav1.TypeMeta{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: "ServiceImport"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type:  mcsv1beta1.ClusterSetIP,
			Ports: []mcsv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
		Status: mcsv1beta1.ServiceImportStatus{Clusters: []mcsv1beta1.ClusterStatus{{Cluster: "east"}, {Cluster: "west"}}},
	}
}

// lighthouseSlice is what it keeps of one cluster: the cluster IP of the Service there.
func lighthouseSlice(cluster, clusterIP string) *discoveryv1.EndpointSlice {
	s := testclusterset.Slice(testclusterset.Service("shop", "web", testclusterset.Port("http", 80)), "web-"+cluster,
		testclusterset.Endpoint{Address: clusterIP})
	s.Labels = map[string]string{
		discoveryv1.LabelManagedBy: lighthouseAgent, mcsv1beta1.LabelServiceName: "web",
		mcsv1beta1.LabelSourceCluster:              cluster,
		"lighthouse.submariner.io/sourceNamespace": "shop", "lighthouse.submariner.io/is-headless": "false",
	}
	return s
}

// replaceImports waits until exports report the import that is in the way, deletes it as the part of the document has
// it, and waits for that of our controller.
func replaceImports(t *testing.T, c *testclusterset.Clusterset, part string, meanwhile func()) {
	t.Helper()
	for _, m := range c.Members {
		until.OK(t, "the export in "+m.ID, func(ctx context.Context) error { return awaitsForeign(ctx, m) })
	}
	meanwhile()
	for _, m := range c.Members {
		deleteCollections(t, m, part)
	}
	for _, m := range c.Members {
		until.OK(t, "the import in "+m.ID, func(ctx context.Context) error {
			imp, err := m.Import(ctx, "shop", "web")
			if err == nil && (len(imp.Spec.IPs) == 0 || !member.IsOurs(imp)) {
				err = errors.New("it has no IP, or is not ours")
			}
			return err
		})
	}
}

// awaitsForeign returns nil if the export is on the broker and its condition names the import that is in the way.
func awaitsForeign(ctx context.Context, m *testclusterset.Member) error {
	exp, err := m.ServiceExport(ctx, "shop", "web")
	if err != nil {
		return err
	}
	ready := meta.FindStatusCondition(exp.Status.Conditions, "Ready")
	if ready != nil && ready.Status == metav1.ConditionTrue &&
		strings.Contains(ready.Message, "A ServiceImport of this name that is not ours exists") {
		return nil
	}
	return fmt.Errorf("conditions %+v, want Ready=True that tells of the ServiceImport", exp.Status.Conditions)
}

// deleteCollections runs the commands "kubectl -n shop delete" of the document.
func deleteCollections(t *testing.T, m *testclusterset.Member, part string) {
	t.Helper()
	commands := regexp.MustCompile(`(?m)^kubectl -n shop delete (\S+) (?:--all|-l (\S+))$`).FindAllStringSubmatch(part, -1)
	if len(commands) == 0 {
		t.Fatal("the document deletes nothing")
	}
	for _, command := range commands {
		r, ok := map[string]schema.GroupVersionResource{
			"serviceimports.multicluster.x-k8s.io": {Group: "multicluster.x-k8s.io", Version: "v1beta1", Resource: "serviceimports"},
			"services":                             {Version: "v1", Resource: "services"},
			"endpointslices":                       {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
		}[command[1]]
		if !ok {
			t.Fatalf("%s: this test does not know the kind", command[0])
		}
		if err := m.Dynamic().Resource(r).Namespace("shop").DeleteCollection(t.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: command[2]}); err != nil {
			t.Fatalf("%s: %v", m.ID, err)
		}
	}
}

// TestMigrateFromCilium has the objects of Cilium for an exported service, and for a global one. Ours replace them with
// the affinity, and exports of a global Service have its own endpoints alone.
func TestMigrateFromCilium(t *testing.T) {
	tier.All(t)
	part := section(t, migratingDoc, "Cilium")
	c := testclusterset.StartT(t, "east", "west")
	for i, m := range c.Members {
		other := c.Members[1-i]
		objects := strings.NewReplacer("MINE", m.ID, "THEIRS", other.ID, "10.0.0.1", m.PodIP(1, corev1.IPv4Protocol),
			"10.0.0.2", other.PodIP(1, corev1.IPv4Protocol)).Replace(read(t, "test/suites/docs/testdata/cilium.yaml"))
		if err := m.ApplyYAML(t.Context(), []byte(objects)); err != nil {
			t.Fatal(err)
		}
		m.Run(t)
	}
	replaceImports(t, c, part, func() {
		for _, m := range c.Members {
			m.Put(t, testclusterset.Export("shop", "api"))
		}
	})
	for _, m := range c.Members {
		until.OK(t, "the imports in "+m.ID, func(ctx context.Context) error {
			imp, err := m.Import(ctx, "shop", "web")
			if err == nil && !strings.Contains(imp.Annotations[broker.AnnotationSelectors], "@SameAsImporter@") {
				err = fmt.Errorf("annotations %v, want the selector of local", imp.Annotations)
			}
			if err != nil {
				return err
			}
			return globalService(ctx, c, m)
		})
	}
}

// globalService returns nil if each member has exported its own endpoint of the service api and nothing else.
func globalService(ctx context.Context, c *testclusterset.Clusterset, m *testclusterset.Member) error {
	exp, err := m.ServiceExport(ctx, "shop", "api")
	if err != nil {
		return err
	}
	if ready := meta.FindStatusCondition(exp.Status.Conditions, "Ready"); ready == nil || ready.Reason != "Exported" {
		return fmt.Errorf("conditions %+v, want Ready with the reason Exported", exp.Status.Conditions)
	}
	imported, err := m.Imported(ctx, "shop", "api")
	if err != nil {
		return err
	}
	var got, want []string
	for _, s := range imported {
		for _, e := range s.Endpoints {
			got = append(got, s.Labels[mcsv1beta1.LabelSourceCluster]+" "+e.Addresses[0])
		}
	}
	for _, of := range c.Members {
		want = append(want, of.ID+" "+of.PodIP(1, corev1.IPv4Protocol))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		return fmt.Errorf("endpoints %q, want %q", got, want)
	}
	return nil
}
