// Package explain seeds faults in real clusters and asks for the verdict of clusterset explain on each
// (docs/spec/explain.md).
package explain

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	clusterdns "github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/admin/explain"
	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/kubelet"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// within fails verdicts that take longer; it is for a machine that does nothing else.
var within = flag.Duration("within", 0, "most time that one verdict may take; 0 is no limit")

// An env is a broker with the members east and west, and north, which is not a member: its imports are those of another
// implementation. Users ask in west or north. No controller runs while faults are seeded by hand.
type env struct {
	*testing.T
	broker            *controlplane.ControlPlane
	east, west, north *testclusterset.Member
	slowest           *slowest
}

// slowest is the verdict that took longest.
type slowest struct {
	name string
	took time.Duration
}

// ttl is far more than the test takes: what is to be expired is made so by hand.
const ttl = time.Hour

func (w *env) explain(ctx context.Context, in *rest.Config, name string, qtype uint16,
	servers ...string) (cause.Report, error) {
	o := explain.Defaults()
	o.Type, o.TTL, o.Servers = qtype, ttl, servers
	// A server that does not reply is one of the faults, and each other answer comes at once or after a busy machine has
	// time.
	o.Timeout = time.Minute
	if o.Name = name; !strings.HasSuffix(name, ".") {
		o.Name += ".svc.clusterset.local."
	}
	return explain.Run(ctx, nil, in, o)
}

// verdict fails the test unless the verdict has the code.
func (w *env) verdict(in *rest.Config, name string, qtype uint16, want reason.Code, servers ...string) {
	w.Helper()
	began := time.Now()
	r, err := w.explain(w.Context(), in, name, qtype, servers...)
	if err != nil {
		w.Fatal(err)
	}
	w.took(string(want), time.Since(began))
	if r.Verdict.Code != want {
		w.Errorf("%s: verdict %s (%s), want %s; chain:\n%s", name, r.Verdict.Code, r.Verdict.Sentence, want, chain(r))
	}
	if strings.Contains(fmt.Sprint(r), "eyJ") {
		w.Errorf("%s: the report has a token:\n%s", name, chain(r))
	}
}

// took notes how long a verdict took.
func (w *env) took(name string, d time.Duration) {
	w.Helper()
	if d > w.slowest.took {
		*w.slowest = slowest{name, d}
	}
	if *within > 0 && d > *within {
		w.Errorf("verdict %s took %s, want at most %s", name, d, *within)
	}
}

func chain(r cause.Report) string {
	var b strings.Builder
	for _, s := range r.Chain {
		fmt.Fprintf(&b, "  %-8s %s: %s\n", s.Mark, s.Name, s.Evidence)
	}
	return b.String()
}

// A fault has one cause and its verdict.
type fault struct {
	code  reason.Code
	name  string // "<service>.<namespace>", or absolute
	qtype uint16
	seed  func(*env) // its effects end with the test
}

// TestVerdicts seeds each fault in real clusters. The others of the chain are as they should be, so a verdict with
// another code is wrong.
func TestVerdicts(t *testing.T) {
	c, err := testclusterset.Start(t.Context(), testclusterset.Options{IDs: []string{"east", "west", "north"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &env{T: t, broker: c.Broker, east: c.Members[0], west: c.Members[1], north: c.Members[2], slowest: &slowest{}}
	defer func() { t.Logf("the slowest verdict, %s, took %s", w.slowest.name, w.slowest.took) }()
	for _, m := range c.Members[:2] {
		if _, err := m.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[reason.Code]bool{}
	w.export(seen)
	run := func(where string, config *rest.Config, faults []fault) {
		for _, f := range faults {
			seen[f.code] = true
			t.Run(where+"/"+string(f.code), func(t *testing.T) {
				w := *w
				w.T = t
				if f.seed != nil {
					f.seed(&w)
				}
				w.verdict(config, f.name, max(f.qtype, dns.TypeA), f.code)
			})
		}
	}
	run("name", w.west.Config(), names)
	run("member", w.west.Config(), members)
	w.foreign()
	run("objects", w.north.Config(), objects)
	t.Run("dns", func(t *testing.T) { w := *w; w.T = t; w.dns(seen) })
	t.Run("resolver", func(t *testing.T) { w := *w; w.T = t; w.resolver(seen) })
	t.Run("silence", func(t *testing.T) { w := *w; w.T = t; w.silence() })
	t.Run("rights", func(t *testing.T) { w := *w; w.T = t; w.rights(seen) })
	run("kinds", w.north.Config(), []fault{{reason.CRDMissing, "db.other", 0, func(w *env) {
		w.release("held") // else the CRD stays with it
		w.uninstall(w.north.ControlPlane, mcscrd.ServiceImportCRD, "serviceimports")
	}}})
	run("broker", w.west.Config(), []fault{{reason.BrokerUnprepared, "lost.shop", 0,
		func(w *env) { w.uninstall(w.broker, crd.Members, "members") }}})
	if len(seen) < 70 {
		t.Errorf("%d codes were seen, want at least 70", len(seen))
	}
}

// names are faults of the question alone.
var names = []fault{
	{reason.NameMalformed, "a..shop", 0, nil},
	{reason.NameTooLong, strings.Repeat("a", 64) + ".shop", 0, nil},
	{reason.NameWildcard, "*.db.shop", 0, nil},
	{reason.NameReverse, "1.0.0.10.in-addr.arpa.", 0, nil},
	{reason.NameOutsideZone, "db.shop.svc.cluster.local.", 0, nil},
	{reason.NamePod, "10-0-0-1.shop.pod.clusterset.local.", 0, nil},
	{reason.NameWithoutSVC, "db.shop.clusterset.local.", 0, nil},
	{reason.NameIncomplete, "shop", 0, nil},
	{reason.PortMalformed, "http._tcp.db.shop", dns.TypeSRV, nil},
	{reason.PortWantsSRV, "_pg._tcp.db.shop", dns.TypeA, nil},
	{reason.TypeNotServed, "db.shop", dns.TypeMX, nil},
}

// export makes the services of the members and lets controllers work until each has arrived. Then nothing runs any
// more.
func (w *env) export(seen map[reason.Code]bool) {
	w.Helper()
	pg := testclusterset.Port("pg", 5432)
	all := func(m *testclusterset.Member, s *corev1.Service, addresses ...testclusterset.Endpoint) {
		m.Put(w, s, testclusterset.Slice(s, s.Name+"-1", addresses...), testclusterset.Export(s.Namespace, s.Name))
	}
	for _, m := range []*testclusterset.Member{w.east, w.west} {
		m.Put(w, testclusterset.Namespace("shop"), testclusterset.Namespace("hooked"))
	}
	w.east.Put(w, testclusterset.Namespace("lonely"), testclusterset.Namespace("picky"))
	picky := testclusterset.Namespace("picky")
	picky.Annotations = map[string]string{broker.AnnotationAllowedSources: "north"}
	w.west.Put(w, picky)
	one := testclusterset.Endpoint{Address: w.east.PodIP(1, corev1.IPv4Protocol), Hostname: "db-0"}
	for _, name := range []string{"db", "lost", "claimed"} {
		all(w.east, testclusterset.Headless("shop", name, pg), one)
	}
	w.west.Put(w, foreignImport("shop", "claimed", "Headless"))
	all(w.east, testclusterset.Headless("lonely", "db", pg), one)
	all(w.east, testclusterset.Headless("picky", "db", pg), one)
	all(w.east, testclusterset.Headless("shop", "typed", pg), one)
	all(w.west, testclusterset.Service("shop", "typed", pg),
		testclusterset.Endpoint{Address: w.west.PodIP(1, corev1.IPv4Protocol)})
	all(w.east, testclusterset.Service("shop", "ported", pg), one)
	all(w.west, testclusterset.Service("shop", "ported", testclusterset.Port("pg", 5433)),
		testclusterset.Endpoint{Address: w.west.PodIP(1, corev1.IPv4Protocol)})
	sticky := testclusterset.Service("shop", "sticky", pg)
	sticky.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	all(w.east, testclusterset.Service("shop", "sticky", pg), one)
	all(w.west, sticky, testclusterset.Endpoint{Address: w.west.PodIP(1, corev1.IPv4Protocol)})
	nodes := testclusterset.Service("shop", "nodes", pg)
	nodes.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	all(w.east, nodes, testclusterset.Endpoint{Address: one.Address, Node: "node-1"})
	all(w.east, testclusterset.Headless("shop", "unready", pg),
		testclusterset.Endpoint{Address: one.Address, NotReady: true})
	all(w.east, testclusterset.Headless("shop", "empty", pg))
	all(w.east, testclusterset.Service("shop", "idle", pg))
	all(w.west, testclusterset.Headless("shop", "own", pg),
		testclusterset.Endpoint{Address: w.west.PodIP(2, corev1.IPv4Protocol)})
	all(w.west, testclusterset.Headless("shop", "outside", pg),
		testclusterset.Endpoint{Address: "192.0.2.9"}, testclusterset.Endpoint{Address: w.west.PodIP(3, corev1.IPv4Protocol)})
	w.west.Put(w, testclusterset.Export("shop", "absent"))
	external := testclusterset.Service("shop", "external")
	external.Spec.Type, external.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
	w.west.Put(w, external, testclusterset.Export("shop", "external"))

	annotated := func(m *testclusterset.Member, name, key, value string, address string) {
		s, exp := testclusterset.Headless("shop", name, pg), testclusterset.Export("shop", name)
		exp.Annotations = map[string]string{key: value}
		m.Put(w, s, testclusterset.Slice(s, s.Name+"-1", testclusterset.Endpoint{Address: address}), exp)
	}
	annotated(w.west, "selecting", broker.AnnotationToClusters, "{", w.west.PodIP(4, corev1.IPv4Protocol))
	annotated(w.west, "noted", broker.AnnotationSliceStrategy, "perhaps", w.west.PodIP(5, corev1.IPv4Protocol))
	annotated(w.east, "elsewhere", broker.AnnotationToClusters, "south", one.Address)
	annotated(w.east, "malformed", broker.AnnotationToClusters, "{", one.Address)
	w.east.Put(w, testclusterset.Export("shop", "misnamed"))

	stopEast, stopWest := w.east.Run(w), w.west.Run(w)
	for name, want := range map[string]reason.Code{
		"db.shop": reason.ObjectsOK, "lost.shop": reason.ObjectsOK, "own.shop": reason.ObjectsOK,
		"claimed.shop": reason.ImportForeign, "db.lonely": reason.NamespaceMissing, "db.picky": reason.SourceNotAllowed,
		"typed.shop": reason.ConflictType, "ported.shop": reason.ConflictPorts, "sticky.shop": reason.ConflictProperties,
		"nodes.shop":   reason.EndpointsNotLocal,
		"unready.shop": reason.EndpointsNotReady, "empty.shop": reason.EndpointsNone, "outside.shop": reason.ExportUndeclared,
		"selecting.shop": reason.ExportSelectors, "noted.shop": reason.ExportAnnotation,
		"elsewhere.shop": reason.NotExportedHere, "malformed.shop": reason.ExportSelectors,
		"misnamed.shop": reason.ExportNoService,
		"absent.shop":   reason.ExportNoService, "external.shop": reason.ExportInvalidType,
	} {
		seen[want] = true
		w.awaitVerdict(name, want, "")
	}
	w.awaitVerdict("idle.shop", reason.EndpointsNone,
		"wrong    endpoints of east: no endpoint in east; no cluster has a ready endpoint, so connections fail")
	// The warning about the webhook precedes those of other faults.
	w.must(w.west.ApplyYAML(w.Context(), []byte(deadWebhook)))
	until.OK(w, "the webhook is asked", func(ctx context.Context) error {
		_, err := at(w.west.ControlPlane, "serviceimports", "hooked").Create(ctx,
			unstructuredImport("hooked", "tried", "Headless", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("an import is admitted")
		}
		return nil
	})
	all(w.east, testclusterset.Headless("hooked", "db", pg), one)
	seen[reason.ImportWebhook] = true
	w.awaitVerdict("db.hooked", reason.ImportWebhook, "admission webhook away.example.org")
	w.must(w.west.DeleteYAML(w.Context(), []byte(deadWebhook)))
	w.awaitVerdict("db.hooked", reason.ObjectsOK, "")
	until.OK(w, "the reason clears", func(ctx context.Context) error {
		lease, err := at(w.west.ControlPlane, "leases", wellknown.ControllerNamespace).Get(ctx, wellknown.ControllerLease,
			metav1.GetOptions{})
		if err == nil && strings.Contains(lease.GetAnnotations()[wellknown.AnnotationFrozen], "away.example.org") {
			err = errors.New("the Lease has it")
		}
		return err
	})
	stopEast()
	stopWest()
	// The leader gives its Lease up when it ends.
	w.patch(w.west.ControlPlane, "leases", wellknown.ControllerNamespace, wellknown.ControllerLease, func(o object) {
		o.set("test", "spec", "holderIdentity")
		o.set(timestamp(0), "spec", "renewTime")
	})
	w.remove(w.west.ControlPlane, "serviceimports", "shop", "lost")
	for _, s := range w.imported("lost") {
		w.remove(w.west.ControlPlane, "endpointslices", "shop", s)
	}
}

// awaitVerdict waits until a verdict in west has this code, and its chain this text.
func (w *env) awaitVerdict(name string, want reason.Code, text string) {
	w.Helper()
	until.OK(w, name, func(ctx context.Context) error {
		r, err := w.explain(ctx, w.west.Config(), name, dns.TypeA)
		if err == nil && (r.Verdict.Code != want || !strings.Contains(chain(r), text)) {
			err = fmt.Errorf("verdict %s (%s), want %s; chain:\n%s", r.Verdict.Code, r.Verdict.Sentence, want, chain(r))
		}
		return err
	})
}

// deadWebhook stops new imports of a namespace: the API server cannot reach it.
const deadWebhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: away}
webhooks:
- name: away.example.org
  clientConfig: {url: "https://127.0.0.1:1/"}
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: hooked}}
  rules:
  - {operations: [CREATE], apiGroups: [multicluster.x-k8s.io], apiVersions: ["*"], resources: [serviceimports]}
`

func timestamp(age time.Duration) string {
	return time.Now().Add(-age).UTC().Format("2006-01-02T15:04:05.000000Z")
}

// lapse makes a Lease old.
func lapse(o object) { o.set(timestamp(48*time.Hour), "spec", "renewTime") }

// token returns one that no API server has signed.
func token(expires time.Time) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"RS256"}`) + "." + part(fmt.Sprintf(`{"sub":"system:serviceaccount:a:b","iat":%d,"exp":%d}`,
		expires.Add(-time.Hour).Unix(), expires.Unix())) + ".c2lnbmF0dXJl"
}

// secret changes a key of the credential of west.
func secret(key string, value func(old string) string) func(*env) {
	return func(w *env) {
		w.patch(w.west.ControlPlane, "secrets", wellknown.ControllerNamespace, broker.SecretName, func(o object) {
			old, _ := base64.StdEncoding.DecodeString(o.get("data", key))
			o.set(base64.StdEncoding.EncodeToString([]byte(value(string(old)))), "data", key)
		})
	}
}

// elsewhere changes the address in a kubeconfig.
func elsewhere(server string) func(kubeconfig string) string {
	return func(kubeconfig string) string {
		c, err := clientcmd.Load([]byte(kubeconfig))
		if err != nil {
			panic(err)
		}
		for _, cluster := range c.Clusters {
			cluster.Server = server
		}
		text, err := clientcmd.Write(*c)
		if err != nil {
			panic(err)
		}
		return string(text)
	}
}

// members are faults of the clusterset: lost.shop is exported by east and not imported, db.shop is as it should be.
var members = []fault{
	{reason.NotExported, "nothing.shop", 0, nil},
	{reason.NamespaceExcluded, "db.kube-public", 0, nil},
	{reason.NamespaceExcluded, "db.openshift-dns", 0, func(w *env) {
		w.west.Put(w,
			testclusterset.Namespace("openshift-dns"))
	}},
	{reason.NamespaceTerminating, "db.doomed", 0, func(w *env) {
		ns := testclusterset.Namespace("doomed")
		w.west.Put(w, ns)
		// Nothing ends it: there is no controller of namespaces.
		if err := at(w.west.ControlPlane, "namespaces", "").Delete(w.Context(), "doomed",
			metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
	}},
	{reason.ObjectsOK, "db.shop", 0, nil},
	{reason.ImportMissing, "lost.shop", 0, nil},
	{reason.ExportNotReconciled, "new.shop", 0, func(w *env) { w.west.Put(w, testclusterset.Export("shop", "new")) }},
	{reason.ExportRejected, "own.shop", 0, func(w *env) {
		w.condition("own", "False", "Failed")
	}},
	{reason.ExportPending, "own.shop", 0, func(w *env) { w.condition("own", "Unknown", "Pending") }},
	{reason.RecordMissing, "own.shop", 0, func(w *env) {
		w.remove(w.broker, "exportedservices", w.west.BrokerNamespace(),
			"own.shop")
	}},
	{reason.RecordInvalid, "lost.shop", 0, func(w *env) {
		w.patch(w.broker, "exportedservices", w.east.BrokerNamespace(), "lost.shop", func(o object) {
			o.set("south", "metadata", "labels", "multicluster.kubernetes.io/source-cluster")
		})
	}},
	{reason.ExporterExpired, "lost.shop", 0, func(w *env) {
		w.patch(w.broker, "leases", w.east.BrokerNamespace(),
			"heartbeat", lapse)
	}},
	{reason.ExporterNeverRan, "lost.shop", 0, func(w *env) {
		w.remove(w.broker, "leases", w.east.BrokerNamespace(),
			"heartbeat")
	}},
	{reason.OwnHeartbeatExpired, "lost.shop", 0, func(w *env) {
		w.patch(w.broker, "leases", w.west.BrokerNamespace(),
			"heartbeat", lapse)
	}},
	{reason.ControllerStopped, "lost.shop", 0, func(w *env) {
		w.patch(w.west.ControlPlane, "leases", wellknown.ControllerNamespace, wellknown.ControllerLease, lapse)
	}},
	{reason.ControllerNeverRan, "lost.shop", 0, func(w *env) {
		w.remove(w.west.ControlPlane, "leases", wellknown.ControllerNamespace, wellknown.ControllerLease)
	}},
	{reason.CredentialMissing, "lost.shop", 0, func(w *env) {
		w.remove(w.west.ControlPlane, "secrets", wellknown.ControllerNamespace, broker.SecretName)
	}},
	{reason.CredentialInvalid, "lost.shop", 0, secret(broker.KeyToken, func(string) string { return "eyJ" })},
	{reason.CredentialExpired, "lost.shop", 0, secret(broker.KeyToken,
		func(string) string { return token(time.Now().Add(-time.Hour)) })},
	{reason.CredentialRejected, "lost.shop", 0, secret(broker.KeyToken,
		func(string) string { return token(time.Now().Add(time.Hour)) })},
	{reason.BrokerUnreachable, "lost.shop", 0, secret(broker.KeyKubeconfig, elsewhere("https://127.0.0.1:1"))},
	{reason.BrokerReplaced, "lost.shop", 0, func(w *env) {
		w.patch(w.west.ControlPlane, "clusterproperties", "", "clusterset.k8s.io",
			func(o object) { o.set("other", "metadata", "annotations", broker.AnnotationBrokerUID) })
	}},
	{reason.Leaving, "lost.shop", 0, func(w *env) {
		w.patch(w.west.ControlPlane, "clusterproperties", "", "clusterset.k8s.io",
			func(o object) { o.set("", "metadata", "annotations", broker.AnnotationLeaving) })
	}},
	{reason.EndpointsUndeclared, "db.shop", 0, func(w *env) {
		w.patch(w.broker, "members", "", "east", func(o object) { o.set([]any{"10.99.0.0/16"}, "spec", "podCIDRs") })
	}},
	{reason.EndpointsOverlap, "db.shop", 0, func(w *env) {
		w.patch(w.broker, "members", "", "west", func(o object) {
			o.set([]any{"10.21.0.0/16", "10.22.0.0/16"}, "spec",
				"podCIDRs")
		})
	}},
	{reason.HostUnknown, "db-9.east.db.shop", 0, nil},
	{reason.ClusterUnknown, "south.db.shop", 0, nil},
	{reason.HostWithoutCluster, "db-0.db.shop", 0, nil},
	{reason.FamilyMissing, "db.shop", dns.TypeAAAA, nil},
	{reason.PortUnknown, "_http._tcp.db.shop", dns.TypeSRV, nil},
	{reason.PortProtocol, "_pg._udp.db.shop", dns.TypeSRV, nil},
	{reason.EndpointsBehind, "db.shop", 0, func(w *env) {
		for _, s := range w.imported("db") {
			w.remove(w.west.ControlPlane, "endpointslices", "shop", s)
		}
	}},
	{reason.ImportLacks, "db.shop", 0, func(w *env) {
		w.patchStatus("serviceimports", "db", func(o object) { o.set([]any{}, "status", "clusters") })
		for _, s := range w.imported("db") {
			w.remove(w.west.ControlPlane, "endpointslices", "shop", s)
		}
	}},
	{reason.ImportFamilies, "db.shop", 0, func(w *env) {
		w.patchStatus("serviceimports", "db", func(o object) {
			o.set([]any{map[string]any{
				"type": "Ready", "status": "False", "reason": "IPFamilyNotSupported", "message": "m",
				"lastTransitionTime": "2026-01-01T00:00:00Z",
			}}, "status", "conditions")
		})
	}},
	{reason.ImportPending, "db.shop", 0, func(w *env) {
		w.patchStatus("serviceimports", "db", func(o object) {
			o.set([]any{map[string]any{
				"type": "Ready", "status": "False", "reason": "Pending", "message": "m",
				"lastTransitionTime": "2026-01-01T00:00:00Z",
			}}, "status", "conditions")
		})
	}},
	{reason.ControllerFrozen, "lost.shop", 0, note(wellknown.AnnotationFrozen, `[{"reason":"not_synced","code":"controller-frozen","imports":true}]`)},
	{reason.ClusterCloned, "lost.shop", 0, note(wellknown.AnnotationFrozen, `[{"reason":"broker_identity","code":"cluster-cloned","imports":true}]`)},
	{reason.NamespaceExcluded, "lost.shop", 0, note(wellknown.AnnotationNamespaces,
		wellknown.NamespaceChoice{Names: []string{"bank"}}.String())},
	{reason.ExportNamespace, "own.shop", 0, func(w *env) {
		w.conditionOf("own", "Valid", "False",
			"NamespaceNotAllowed")
	}},
	{reason.ExportNotMember, "own.shop", 0, func(w *env) { w.conditionOf("own", "Valid", "False", "NotMember") }},
	{reason.ConflictFamilies, "sticky.shop", 0, func(w *env) {
		w.patch(w.broker, "exportedservices", w.west.BrokerNamespace(), "sticky.shop",
			func(o object) { o.set([]any{"IPv6"}, "spec", "ipFamilies") })
	}},
	{reason.ConflictWithheld, "typed.shop", 0, func(w *env) {
		w.change(at(w.broker, "members", ""), "west", []string{"status"}, func(o object) {
			o.set(string(merge.First), "status", "merge")
		})
		w.remove(w.west.ControlPlane, "serviceimports", "shop", "typed")
	}},
	{reason.MemberMissing, "lost.shop", 0, func(w *env) { w.remove(w.broker, "members", "", "west") }},
	{reason.MembershipDeleted, "lost.shop", 0, func(w *env) {
		const property = "clusterset.k8s.io"
		w.patch(w.west.ControlPlane, "clusterproperties", "", property,
			func(o object) { o.set("true", "metadata", "annotations", broker.AnnotationLeaving) })
		w.remove(w.west.ControlPlane, "clusterproperties", "", property) // a policy keeps it but for that annotation
	}},
	{reason.ClusterIDTaken, "lost.shop", 0, func(w *env) {
		w.replace(w.broker, "members", "", "west", func(o object) {
			o.set("2f1d0c1e-0000-4000-8000-000000000000", "spec",
				"kubeSystemUID")
		})
	}},
}

// note sets an annotation of the Lease of the controller of west.
func note(key, text string) func(*env) {
	return func(w *env) {
		w.patch(w.west.ControlPlane, "leases", wellknown.ControllerNamespace, wellknown.ControllerLease, func(o object) {
			o.set(text, "metadata", "annotations", key)
		})
	}
}

func foreignImport(namespace, name, kind string, ips ...string) runtime.Object {
	return unstructuredImport(namespace, name, kind, ips)
}

// foreign makes the imports of north, as another implementation would.
func (w *env) foreign() {
	w.Helper()
	w.north.Put(w, testclusterset.Namespace("other"))
	put := func(name, kind string, ips []string, slices ...*discoveryv1.EndpointSlice) {
		w.north.Put(w, foreignImport("other", name, kind, ips...))
		for _, s := range slices {
			w.north.Put(w, s)
		}
	}
	slice := func(name, cluster string, endpoints ...testclusterset.Endpoint) *discoveryv1.EndpointSlice {
		s := testclusterset.Slice(testclusterset.Headless("other", name), name+"-1", endpoints...)
		s.Labels = map[string]string{"multicluster.kubernetes.io/service-name": name}
		if cluster != "" {
			s.Labels["multicluster.kubernetes.io/source-cluster"] = cluster
		}
		return s
	}
	ready := testclusterset.Endpoint{Address: "10.9.0.1", Hostname: "db-0"}
	put("db", "Headless", nil, slice("db", "south", ready,
		testclusterset.Endpoint{Address: "10.9.0.2", Hostname: "db-1", NotReady: true}))
	put("vip", "ClusterSetIP", []string{"10.8.0.1"}, slice("vip", "south", ready))
	put("loop", "ClusterSetIP", []string{"127.0.0.1"}, slice("loop", "south", ready))
	put("disguised", "Headless", nil, slice("disguised", "south", testclusterset.Endpoint{Address: "0.1.2.3"}))
	put("unlabelled", "Headless", nil, slice("unlabelled", "", ready))
	named := slice("named", "south", testclusterset.Endpoint{Address: "10.9.0.1"})
	named.AddressType, named.Endpoints[0].Addresses = discoveryv1.AddressTypeFQDN, []string{"db.example.com"}
	put("named", "Headless", nil, named)
	// A cluster that is not selected is the only one with IPv6.
	chosen, other := slice("split", "south", ready), slice("split", "east", testclusterset.Endpoint{Address: "fd00:9::1"})
	other.Name, other.AddressType = "split-2", discoveryv1.AddressTypeIPv6
	other.Labels[corev1.IsHeadlessService], other.Labels[discoveryv1.LabelManagedBy] = "", broker.ManagedBy
	put("split", "ClusterSetIP", nil, chosen, other)
	held := unstructuredImport("other", "held", "Headless", nil)
	held.SetFinalizers([]string{"example.com/hold"})
	w.north.Put(w, held)
	w.north.Drop(w, held)
}

// objects are faults that only the objects of a cluster show.
var objects = []fault{
	{reason.ObjectsOK, "db.other", 0, nil},
	{reason.ObjectsOK, "vip.other", 0, nil},
	{reason.NotAMember, "none.other", 0, nil},
	{reason.ImportAddresses, "loop.other", 0, nil},
	{reason.EndpointsRejected, "disguised.other", 0, nil},
	{reason.SliceClusterID, "south.unlabelled.other", 0, nil},
	{reason.SliceAddressType, "named.other", 0, nil},
	{reason.ImportTerminating, "held.other", 0, nil},
	{reason.HostNotReady, "db-1.south.db.other", 0, nil},
	{reason.HostNeedsHeadless, "db-0.south.vip.other", 0, nil},
	{reason.PortUnnamed, "vip.other", dns.TypeSRV, nil},
	{reason.ObjectsOK, "split.other", 0, nil},
	{reason.ClusterNotSelected, "split.other", dns.TypeAAAA, nil},
}

// dns asks servers: the shipped one over north, and sockets that do something else.
func (w *env) dns(seen map[reason.Code]bool) {
	north := w.north.Config()
	good := testclusterset.StartDNS(w, w.north, "explain_answers on")
	good.Answers(w, "db.other", dns.TypeA, "NOERROR 10.9.0.1")
	// of another cluster, without this service
	filtered := testclusterset.StartDNS(w, w.west, "labels serve=here", "explain_answers on")
	// once all its lists are complete
	filtered.Answers(w, "db.other", dns.TypeA, "NXDOMAIN")
	w.reasons(good, filtered)
	for _, f := range []struct {
		code    reason.Code
		name    string
		servers []string
	}{
		{reason.Resolves, "db.other", []string{good.Address}},
		{reason.Resolves, "dns-version.clusterset.local.", []string{good.Address}},
		{reason.DNSLacksName, "db.other", []string{filtered.Address}},
		{reason.DNSReplicasDiffer, "db.other", []string{good.Address, filtered.Address}},
		{reason.DNSUnreachable, "db.other", []string{"127.0.0.1:1"}},
		{reason.DNSRefused, "db.other", []string{w.answering("udp tcp", dns.RcodeRefused)}},
		{reason.DNSFailure, "db.other", []string{w.answering("udp tcp", dns.RcodeServerFailure)}},
		{reason.DNSNotReady, "db.other", []string{w.answering("udp tcp", dns.RcodeServerFailure,
			dns.ExtendedErrorCodeNotReady)}},
		{reason.DNSNotWired, "db.other", []string{w.answering("udp tcp", dns.RcodeNameError)}},
		{reason.DNSWithoutTCP, "vip.other", []string{w.answering("udp", dns.RcodeSuccess)}},
		{reason.DNSWithoutUDP, "vip.other", []string{w.answering("tcp", dns.RcodeSuccess)}},
		{reason.DNSOtherAnswer, "db.other", []string{w.answering("udp tcp", dns.RcodeSuccess)}},
		{reason.DNSStale, "vip.other", []string{w.answering("udp tcp", dns.RcodeSuccess, dns.ExtendedErrorCodeStaleAnswer)}},
	} {
		seen[f.code] = true
		w.verdict(north, f.name, dns.TypeA, f.code, f.servers...)
	}
}

// resolver follows the zone from the DNS server of the cluster north to that of the clusterset.
func (w *env) resolver(seen map[reason.Code]bool) {
	verdict := func(code reason.Code) {
		w.Helper()
		seen[code] = true
		w.verdict(w.north.Config(), "db.other", dns.TypeA, code)
	}
	must := func(err error) {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
	}
	apply := func(yaml []byte) {
		w.Helper()
		must(w.north.ApplyYAML(w.Context(), yaml))
	}
	manifest, err := os.ReadFile("../../../admin/wiring/testdata/kubeadm.yaml")
	must(err)
	apply(bytes.ReplaceAll(manifest, []byte("  clusterIP: 10.96.0.10\n"), nil))
	verdict(reason.DNSNotWired)

	service := []byte(`
apiVersion: v1
kind: Namespace
metadata: {name: clusterset-system}
---
apiVersion: v1
kind: Service
metadata: {name: clusterset-dns, namespace: clusterset-system}
spec: {ports: [{name: dns, port: 53, protocol: UDP}]}
`)
	apply(service)
	o := clusterdns.Defaults()
	o.Wait = false
	_, err = clusterdns.Apply(w.Context(), w.north.Config(), o)
	must(err)
	verdict(reason.DNSNoEndpoint)

	apply([]byte(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: clusterset-dns, namespace: clusterset-system, labels: {kubernetes.io/service-name: clusterset-dns}}
addressType: IPv4
endpoints: [{addresses: [10.3.0.53]}]
`))
	verdict(reason.DNSUnreachable) // the cluster's DNS server has no Pod

	// From here on, answers decide: each Pod is asked through the API server.
	node, err := kubelet.Start(w.Context(), w.north.ControlPlane)
	must(err)
	w.Cleanup(func() { must(node.Stop()) })
	good := testclusterset.StartDNS(w, w.north).Address
	run := func(pod, address string) {
		w.Helper()
		must(node.Run(w.Context(), metav1.NamespaceSystem, pod, map[string]string{"k8s-app": "kube-dns"}, address))
	}
	run("coredns-1", good)
	verdict(reason.Resolves)
	apply([]byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: viewer}
rules:
  - apiGroups: ["", apps, discovery.k8s.io, about.k8s.io, multicluster.x-k8s.io, coordination.k8s.io]
    resources: [namespaces, services, pods, configmaps, endpointslices, deployments, daemonsets, clusterproperties,
      serviceimports, serviceexports, leases]
    verbs: [get, list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: viewer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer}]
`))
	const why = "the right to create pods/portforward in namespace kube-system is missing; deploy/explain/member.yaml has it"
	until.OK(w, "a verdict with the rights to list Pods alone", func(ctx context.Context) error {
		r, err := w.explain(ctx, w.userOf(w.north.ControlPlane, "viewer"), "db.other", dns.TypeA)
		if err == nil && (r.Verdict.Code != reason.ObjectsOK || !strings.Contains(r.Verdict.Sentence, why)) {
			err = fmt.Errorf("verdict %s, want %s and %q; chain:\n%s", r.Verdict.Code, reason.ObjectsOK, why, chain(r))
		}
		return err
	})
	run("coredns-2", w.answering("udp tcp", dns.RcodeNameError)) // it has not read its Corefile again
	verdict(reason.DNSReplicasDiffer)
	run("coredns-2", "127.0.0.1:1")
	verdict(reason.DNSReplicasDiffer)
	run("coredns-1", "127.0.0.1:1")
	verdict(reason.DNSUnreachable)
	for _, pod := range []string{"coredns-1", "coredns-2"} {
		run(pod, w.answering("udp tcp", dns.RcodeServerFailure))
	}
	verdict(reason.DNSFailure)

	// Made anew, it gets another address: the old one is taken by then.
	services := w.north.Dynamic().Resource(schema.GroupVersionResource{Version: "v1",
		Resource: "services"}).Namespace("clusterset-system")
	old, err := services.Get(w.Context(), "clusterset-dns", metav1.GetOptions{})
	must(err)
	address, _, err := unstructured.NestedString(old.Object, "spec", "clusterIP")
	must(err)
	must(services.Delete(w.Context(), "clusterset-dns", metav1.DeleteOptions{}))
	apply(fmt.Appendf(
		nil,
		"apiVersion: v1\nkind: Service\nmetadata: {name: other, namespace: clusterset-system}\nspec: {clusterIP: \"%s\", ports: [{port: 53}]}\n", address))
	apply(service)
	verdict(reason.DNSWiredElsewhere)
}

// reasons asks servers that say why there is no record (docs/spec/dns.md 5.8), which "clusterset explain" repeats.
func (w *env) reasons(good, filtered *testclusterset.DNS) {
	w.Helper()
	for _, tt := range []struct {
		at    *testclusterset.DNS
		name  string
		qtype uint16
		want  reason.Code
	}{
		{good, "db.other", dns.TypeA, ""},
		{good, "*.db.other", dns.TypeA, reason.NameWildcard},
		{good, "db.nowhere", dns.TypeA, reason.DNSNamespaceEmpty},
		{good, "none.other", dns.TypeA, reason.ImportMissing},
		{good, "disguised.other", dns.TypeA, reason.DNSLacksEndpoint},
		{good, "db-1.south.db.other", dns.TypeA, reason.DNSLacksEndpoint},
		{good, "loop.other", dns.TypeA, reason.DNSLacksAddress},
		{good, "vip.other", dns.TypeAAAA, reason.FamilyMissing},
		{good, "vip.other", dns.TypeSRV, reason.PortUnnamed},
		{filtered, "db.other", dns.TypeA, reason.DNSLeftOut},
		{filtered, "db.shop", dns.TypeA, reason.DNSLeftOut},
		{filtered, "nothing.shop", dns.TypeA, reason.DNSLeftOut},
	} {
		reply, err := server.Ask(w.Context(), tt.at.Address, tt.name+".svc.clusterset.local.", tt.qtype)
		if err != nil {
			w.Fatal(err)
		}
		var got []string
		for _, option := range reply.IsEdns0().Option {
			if e, ok := option.(*dns.EDNS0_EDE); ok && e.ExtraText != "" { // one of a state that is old has no text
				got = append(got, e.ExtraText)
			}
		}
		var want []string
		if tt.want != "" {
			want = []string{reason.Text(tt.want)}
		}
		if !slices.Equal(got, want) {
			w.Errorf("%s %s: extended errors %q, want %q", tt.name, dns.TypeToString[tt.qtype], got, want)
		}
	}
	r, err := w.explain(w.Context(), w.north.Config(), "db.other", dns.TypeA, filtered.Address)
	const said = "NXDOMAIN (dns-left-out) without records, want A 10.9.0.1"
	if err != nil || !slices.ContainsFunc(r.Chain, func(s cause.Step) bool { return s.Evidence == said }) {
		w.Errorf("explain: error %v, chain:\n%s\nwant a step that says: %s", err, chain(r), said)
	}
}

// rights asks as users who may do little, and of API servers that do not answer.
func (w *env) rights(seen map[reason.Code]bool) {
	none, err := w.west.UserKubeconfig("nobody-in-particular")
	if err != nil {
		w.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", none)
	if err != nil {
		w.Fatal(err)
	}
	w.granted(config)
	away, foreign := w.west.Config(), rest.AnonymousClientConfig(w.west.Config())
	away.Host = "127.0.0.1:1"
	foreign.BearerToken = "unknown"
	for code, config := range map[reason.Code]*rest.Config{reason.NotReadable: config, reason.APIUnreachable: away,
		reason.APIRejectsUser: foreign} {
		seen[code] = true
		w.verdict(config, "db.shop", dns.TypeA, code)
	}
}

// missingRight is the sentence about a right that is missing.
var missingRight = regexp.MustCompile(`^the right to (\w+) ([a-z]+)\.?(\S*?)(?: in namespace (\S+))? is missing; (\S+) has it$`)

// granted asks as a user without rights, and as one who has what deploy/explain grants: the former is told what the
// latter has, and the latter can read all.
func (w *env) granted(unprivileged *rest.Config) {
	const user = "explainer"
	bind := func(c *controlplane.ControlPlane, role string) *rest.Config {
		manifest, err := os.ReadFile("../../../deploy/explain/" + role + ".yaml")
		w.must(err)
		w.must(c.ApplyYAML(w.Context(), manifest))
		w.must(c.ApplyYAML(w.Context(), []byte(strings.ReplaceAll(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: explainer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: clusterset-explain-ROLE}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: explainer}]
`, "ROLE", role))))
		w.must(c.AwaitRights(w.Context()))
		return w.userOf(c, user)
	}
	here, there := bind(w.west.ControlPlane, "member"), bind(w.broker, "broker")
	o := explain.Defaults()
	o.Name, o.Type, o.TTL, o.Timeout = "db.shop.svc.clusterset.local.", dns.TypeA, ttl, time.Minute
	for _, onBroker := range []*rest.Config{nil, there} {
		r, err := explain.Run(w.Context(), onBroker, here, o)
		w.must(err)
		if r.Verdict.Code != reason.ObjectsOK || slices.ContainsFunc(r.Chain,
			func(s cause.Step) bool { return s.Mark == cause.Unknown }) {
			w.Errorf("verdict %s with the rights of deploy/explain, want %s and no step unknown; chain:\n%s", r.Verdict.Code,
				reason.ObjectsOK, chain(r))
		}
	}
	seen := map[string]bool{}
	for _, x := range []struct{ broker, member *rest.Config }{{nil, unprivileged},
		{w.userOf(w.broker, "nobody-in-particular"), w.west.Config()}} {
		r, err := explain.Run(w.Context(), x.broker, x.member, o)
		w.must(err)
		for _, s := range r.Chain {
			m := missingRight.FindStringSubmatch(s.Evidence)
			if m == nil {
				if strings.Contains(s.Evidence, "the right to") {
					w.Errorf("%s: evidence %q, want the verb, the resource and the manifest", s.Name, s.Evidence)
				}
				continue
			}
			seen[m[5]] = true
			on := w.west.ControlPlane
			if x.broker != nil {
				on = w.broker
			}
			w.allowed(on, user, m[1], m[2], m[3], m[4])
		}
	}
	if !seen["deploy/explain/member.yaml"] || !seen["deploy/explain/broker.yaml"] || len(seen) != 2 {
		w.Errorf("manifests named: %v, want deploy/explain/member.yaml and deploy/explain/broker.yaml", seen)
	}
}

func (w *env) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *env) userOf(c *controlplane.ControlPlane, user string) *rest.Config {
	w.Helper()
	kubeconfig, err := c.UserKubeconfig(user)
	w.must(err)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	w.must(err)
	return config
}

// allowed fails the test unless the API server grants a right to a user.
func (w *env) allowed(c *controlplane.ControlPlane, user, verb, resource, group, namespace string) {
	w.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	w.must(err)
	name := map[string]string{"leases": wellknown.ControllerLease, "secrets": broker.SecretName}[resource]
	review, err := client.AuthorizationV1().SubjectAccessReviews().Create(w.Context(),
		&authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name,
			}},
		}, metav1.CreateOptions{})
	w.must(err)
	if !review.Status.Allowed {
		w.Errorf("%s may not %s %s.%s in namespace %q, want what a manifest is said to grant", user, verb, resource, group,
			namespace)
	}
}

// silence has a broker that accepts connections and says nothing: the time for the whole call ends, and the verdict is
// about the broker. The answers of the cluster must have come by then, so on a slow machine a later call has more time.
func (w *env) silence() {
	hole, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	w.Cleanup(func() { _ = hole.Close() })
	secret(broker.KeyKubeconfig, elsewhere("https://"+hole.Addr().String()))(w)
	o := explain.Defaults()
	o.Name, o.Type, o.TTL = "lost.shop.svc.clusterset.local.", dns.TypeA, ttl
	until.OK(w, "a verdict about a broker that is silent", func(ctx context.Context) error {
		began := time.Now()
		r, err := explain.Run(ctx, nil, w.west.Config(), o)
		if err == nil && r.Verdict.Code != reason.BrokerUnreachable {
			err = fmt.Errorf("verdict %s (%s) within %s; chain:\n%s", r.Verdict.Code, r.Verdict.Sentence, o.Timeout, chain(r))
		}
		if err != nil {
			o.Timeout *= 2
			return err
		}
		w.took("silent broker", time.Since(began))
		if want := "no answer within " + o.Timeout.String(); !strings.Contains(r.Verdict.Sentence, want) {
			w.Errorf("sentence %q, want %q", r.Verdict.Sentence, want)
		}
		return nil
	})
}
