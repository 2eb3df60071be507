package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/admin/wiring"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// clustersetDNS is the Service of the DNS server. No kube-controller-manager runs, so the test makes its endpoints.
const clustersetDNS = `
apiVersion: v1
kind: Namespace
metadata: {name: clusterset-system}
---
apiVersion: v1
kind: Service
metadata: {name: clusterset-dns, namespace: clusterset-system}
spec:
  clusterIP: 10.97.0.53
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: clusterset-dns, namespace: clusterset-system, labels: {kubernetes.io/service-name: clusterset-dns}}
addressType: IPv4
endpoints: [{addresses: [10.1.0.53], conditions: {ready: true}}]
`

// openShiftCRD has the fields of the kind that the commands use, with the rules for them.
const openShiftCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: dnses.operator.openshift.io}
spec:
  group: operator.openshift.io
  scope: Cluster
  names: {kind: DNS, listKind: DNSList, plural: dnses, singular: dns}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                logLevel: {type: string}
                managementState: {type: string}
                servers:
                  type: array
                  items:
                    type: object
                    properties:
                      name: {type: string}
                      zones: {type: array, items: {type: string}}
                      forwardPlugin:
                        type: object
                        properties:
                          policy: {type: string, default: Random}
                          upstreams: {type: array, maxItems: 15, items: {type: string}}
            status: {type: object, properties: {clusterIP: {type: string}}}
`

var dnsResources = []schema.GroupVersionResource{
	{Version: "v1", Resource: "configmaps"},
	{Group: "operator.openshift.io", Version: "v1", Resource: "dnses"},
}

// A dnsTest runs the commands of "dns" against one member.
type dnsTest struct {
	*testing.T
	east   *controlplane.ControlPlane
	member string   // flag
	flags  []string // of status, diff and apply, for the kind of cluster
	chain  *chain
}

// manifest returns a cluster of package wiring, in the networks of the member.
func (t dnsTest) manifest(name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../admin/wiring/testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.ReplaceAll(string(text), "10.96.", "10.97."))
}

// objects returns what edits can change, without the fields that differ between two objects of the same content.
func (t dnsTest) objects() string {
	t.Helper()
	var b strings.Builder
	for _, r := range dnsResources {
		all, err := t.east.Dynamic().Resource(r).List(t.Context(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) && r.Resource != "configmaps" {
			continue // not OpenShift
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range all.Items {
			o := &all.Items[i]
			if o.GetNamespace() != "" && o.GetNamespace() != metav1.NamespaceSystem ||
				strings.Contains(o.GetName(), "apiserver") {
				continue
			}
			o.SetManagedFields(nil)
			o.SetResourceVersion("")
			o.SetGeneration(0)
			text, err := json.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(text)
			b.WriteString("\n")
		}
	}
	return b.String()
}

// configMap returns the data of a ConfigMap in kube-system, nil if it does not exist.
func (t dnsTest) configMap(name string) map[string]string {
	t.Helper()
	o, err := t.east.Dynamic().Resource(dnsResources[0]).Namespace(metav1.NamespaceSystem).Get(t.Context(), name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	return data
}

// run calls a command that asks the DNS server of the clusterset in place of a resolver.
func (t dnsTest) run(code int, texts []string, args ...string) string {
	t.Helper()
	args = append([]string{"dns"}, append(args, t.member)...)
	if args[1] == "status" || args[1] == "apply" {
		args = append(args, "--ask="+t.chain.authority)
	}
	return want(t.T, code, texts, args...)
}

// dnsCommands goes through all kinds of clusters, one after the other.
func dnsCommands(t *testing.T, east *controlplane.ControlPlane, member string) {
	d := dnsTest{T: t, east: east, member: member, chain: startChain(t, east)}
	want(t, exitError, []string{"error: zone \"a_b\": want the name of a zone"}, "dns", "status", "--zone=a_b", member)
	want(t, exitProblems, []string{"problem: 127.0.0.1:1 does not answer: "}, "dns", "status", "--ask=127.0.0.1:1", member)
	want(t, exitError, []string{`error: address ":53" to ask: want HOST or HOST:PORT`}, "dns", "status", "--ask=:53", member)
	completes(t, "kube-system", "dns", "undo", member, "--dns-namespace", "kube-s")
	d.apply([]byte(clustersetDNS))
	member = "--kubeconfig=" + bound(t, east, "wirer", "dns-wiring/dns-wiring", "clusterset-dns-wiring")
	d.member = member
	d.withoutServer()
	for _, kind := range []struct {
		name  string
		flags []string
		left  int // exit code of apply
		texts []string
		check func(dnsTest) // while it is wired
	}{
		{name: "kubeadm", texts: []string{"member: configmap/coredns -n kube-system updated (data.Corefile)"},
			check: dnsTest.resolves},
		{name: "eks", texts: []string{"updated",
			"warning: deployment/coredns reads the change only when its Pods are started anew"},
			check: func(d dnsTest) { d.restarts(); d.resolves() }},
		{name: "k3s", texts: []string{"configmap/coredns-custom -n kube-system created"}, check: dnsTest.resolves},
		{name: "aks", texts: []string{"configmap/coredns-custom -n kube-system updated (data.clusterset.server)"},
			check: dnsTest.resolves},
		{name: "gke", texts: []string{"configmap/kube-dns -n kube-system updated (data.stubDomains)"},
			check: dnsTest.resolves},
		{name: "nodelocal", texts: []string{"configmap/coredns -n kube-system updated",
			"configmap/kube-dns -n kube-system created"}, check: dnsTest.resolves},
		{name: "nodelocal-base", texts: []string{"configmap/node-local-dns -n kube-system updated"}, check: dnsTest.resolves},
		{name: "openshift", texts: []string{"dns.operator.openshift.io/default updated (spec.servers)"}},
		{name: "helm", left: exitProblems, texts: []string{"upgrade its release dns with these values",
			"parameters: . 10.97.0.53"}},
		{name: "ours", flags: []string{"--in-process"}, texts: []string{"configmap/coredns -n kube-system updated"},
			check: dnsTest.resolves},
	} {
		t.Run(kind.name, func(t *testing.T) {
			d := dnsTest{T: t, east: east, member: member, flags: kind.flags, chain: d.chain}
			if kind.name == "openshift" {
				if err := east.InstallCRDs(t.Context(), []byte(openShiftCRD)); err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := east.DeleteCRDs(t.Context(), []byte(openShiftCRD)); err != nil {
						t.Error(err)
					}
				}()
			}
			d.apply(d.manifest(kind.name))
			d.oneKind(kind.left, kind.texts, kind.check)
			if err := east.DeleteYAML(t.Context(), d.manifest(kind.name)); err != nil {
				t.Error(err)
			}
		})
	}
	d.othersEdit()
	d.reloads()
	d.withoutRights()
}

func (t dnsTest) apply(manifest []byte) {
	t.Helper()
	if err := t.east.ApplyYAML(t.Context(), manifest); err != nil {
		t.Fatal(err)
	}
}

func (t dnsTest) oneKind(left int, texts []string, check func(dnsTest)) {
	flags := func(args ...string) []string { return append(args, t.flags...) }
	before := t.objects()
	t.run(exitProblems, []string{"problem: "}, flags("status", "-o", "wide")...)
	t.run(exitProblems, []string{"clusterset"}, flags("diff")...)
	t.run(left, texts[:1], flags("apply", "--dry-run=client")...)
	t.run(left, texts[:1], flags("apply", "--dry-run=server")...)
	if after := t.objects(); after != before {
		t.Fatalf("after dry runs the objects are\n%s\nwant\n%s", after, before)
	}
	t.run(left, texts, flags("apply", "--wait=false")...)
	wired := t.objects()
	if left == exitOK {
		t.run(exitOK, []string{"Nothing to do: the cluster's DNS server forwards clusterset.local already."},
			flags("apply", "--wait=false")...)
		if again := t.objects(); again != wired {
			t.Errorf("a second apply changed\n%s\nto\n%s", wired, again)
		}
		t.run(exitOK, nil, flags("diff")...)
		var state dns.State
		out := t.run(exitOK, nil, flags("status", "-o", "json")...)
		if err := json.Unmarshal([]byte(out), &state); err != nil || state.Resolvers[0].State != wiring.Wired ||
			len(state.Server.Addresses) != 1 {
			t.Errorf("status -o json: %+v, error %v, want it wired to one address", state, err)
		}
	}
	if check != nil {
		check(t)
	}
	t.run(exitOK, nil, "undo", "--dry-run=server")
	t.run(exitOK, nil, "undo")
	if after := t.objects(); after != before {
		t.Errorf("after undo the objects are\n%s\nwant\n%s", after, before)
	}
	t.run(exitOK, []string{"Nothing to do: there is nothing of clusterset"}, "undo")
}

// restarts: a CoreDNS without "reload" is started anew if the user asks for it, also when everything is written
// already.
func (t dnsTest) restarts() {
	want(t.T, exitOK, []string{"deployment.apps/coredns -n kube-system updated (its Pods are started anew)"}, "dns",
		"apply", "--wait=false", "--restart", "--ask=127.0.0.1:1", t.member)
	o, err := t.east.Dynamic().Resource(schema.GroupVersionResource{Group: "apps", Version: "v1",
		Resource: "deployments"}).
		Namespace(metav1.NamespaceSystem).Get(t.Context(), "coredns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if at, _, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "annotations",
		"kubectl.kubernetes.io/restartedAt"); at == "" {
		t.Error("the template of the Pods has no kubectl.kubernetes.io/restartedAt")
	}
	want(t.T, exitError, []string{"resolves (CoreDNS reads its Corefile about every half minute): not after 100ms"}, "dns",
		"apply", "--timeout=100ms", "--ask=127.0.0.1:1", t.member)
}

// withoutServer: nothing is written while there is nothing to forward to.
func (t dnsTest) withoutServer() {
	t.apply(t.manifest("kubeadm"))
	before := t.objects()
	t.run(exitError,
		[]string{"error: Service clusterset-system/none does not exist: want that of the DNS server of the clusterset (deploy/dns)"},
		"apply", "--service=clusterset-system/none")
	served := []byte(`{apiVersion: v1, kind: ConfigMap, metadata: {name: clusterset-dns, namespace: clusterset-system}, data: {Corefile: "clusterset.local:1053 {\n clusterset\n}\n"}}`)
	t.apply(served)
	const otherZone = `error: zone "clusterset.lan": the DNS server of the clusterset serves clusterset.local`
	t.run(exitError, []string{otherZone}, "apply", "--zone=clusterset.lan")
	want(t.T, exitError, []string{otherZone}, "explain", "db.shop", "--zone=clusterset.lan", "--timeout=1m", t.member)
	must(t.T, t.east.DeleteYAML(t.Context(), served))
	slice := strings.Replace(clustersetDNS, "ready: true", "ready: false", 1)
	t.apply([]byte(slice))
	t.run(exitError,
		[]string{"error: wait until Service clusterset-system/clusterset-dns has a ready endpoint: not after 100ms"},
		"apply", "--timeout=100ms")
	t.run(exitProblems, []string{"problem: Service clusterset-system/clusterset-dns has no ready endpoint",
		"DNS server:   clusterset-system/clusterset-dns, 10.97.0.53, not ready"}, "status")
	t.run(exitProblems, []string{"deployment/coredns is left alone: 10.97.0.10 is the address of the DNS server itself"},
		"apply", "--service=kube-system/kube-dns", "--wait=false")
	if after := t.objects(); after != before {
		t.Errorf("without a server apply changed\n%s\nto\n%s", before, after)
	}
	t.apply([]byte(clustersetDNS))
	if err := t.east.DeleteYAML(t.Context(), t.manifest("kubeadm")); err != nil {
		t.Error(err)
	}
}

// A raceTransport calls edit before the first write.
type raceTransport struct {
	http.RoundTripper
	once *sync.Once
	edit func()
}

func (r raceTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPut {
		r.once.Do(r.edit)
	}
	return r.RoundTripper.RoundTrip(request)
}

// othersEdit: an edit of somebody else between reading and writing is kept, and so is one after it.
func (t dnsTest) othersEdit() {
	t.apply(t.manifest("kubeadm"))
	corefiles := t.east.Dynamic().Resource(dnsResources[0]).Namespace(metav1.NamespaceSystem)
	edit := func(change func(text string) string) {
		o, err := corefiles.Get(t.Context(), "coredns", metav1.GetOptions{})
		if err != nil {
			t.Error(err)
			return
		}
		text, _, _ := unstructured.NestedString(o.Object, "data", "Corefile")
		if err := unstructured.SetNestedField(o.Object, change(text), "data", "Corefile"); err != nil {
			t.Error(err)
		}
		if _, err := corefiles.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	}
	original := t.configMap("coredns")["Corefile"]
	config := t.east.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return raceTransport{next, &sync.Once{}, func() { edit(func(text string) string { return "# Theirs.\n" + text }) }}
	})
	o := dns.Defaults()
	o.Wait, o.Ask = false, "127.0.0.1:1"
	if _, err := dns.Apply(t.Context(), config, o); err != nil {
		t.Fatal(err)
	}
	if text := t.configMap("coredns")["Corefile"]; !strings.HasSuffix(text, "# END clusterset dns\n# Theirs.\n"+original) {
		t.Errorf("the Corefile is\n%s\nwant our block, and theirs after it", text)
	}
	edit(func(text string) string { return strings.Replace(text, "    errors\n", "    log\n    errors\n", 1) })
	t.run(exitProblems,
		[]string{"problem: deployment/coredns is left alone: what clusterset had written was changed by hand since"}, "undo")
	edit(func(text string) string { return strings.Replace(text, "    log\n", "", 1) })
	t.run(exitOK, []string{"configured as it was before"}, "undo")
	if text, want := t.configMap("coredns")["Corefile"], "# Theirs.\n"+original; text != want {
		t.Errorf("after undo the Corefile is\n%s\nwant\n%s", text, want)
	}
	if err := t.east.DeleteYAML(t.Context(), t.manifest("kubeadm")); err != nil {
		t.Error(err)
	}
}

// withoutRights: the error names verb, resource and namespace. The right to read what only OpenShift has is not needed
// elsewhere.
func (t dnsTest) withoutRights() {
	kubeconfig, err := t.east.UserKubeconfig("nobody")
	if err != nil {
		t.Fatal(err)
	}
	want(t.T, exitError, []string{
		`cannot get resource "services" in API group "" in the namespace "clusterset-system"`, "; deploy/dns-wiring/dns-wiring.yaml has the rights for this command\n",
	}, "dns", "status", "--kubeconfig="+kubeconfig)
}
