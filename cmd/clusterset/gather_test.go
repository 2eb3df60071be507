package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/admin/gather"
	"github.com/clusterset-dns/clusterset/admin/status"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// planted are credentials of the forms that are found by place, by name and by value. An archive may not have them.
var planted = []string{
	"hunter2-secret", "hunter2-string", "hunter2-config", "hunter2-corefile", "hunter2-applied", "hunter2-annotation",
	"hunter2-env", "hunter2-arg",
	"hunter2-flag", "hunter2-header", "hunter2-log", "hunter2-previous", "hunter2-metric", "hunter2-url",
	"hunter2-binary", "aHVudGVyMi",
	"eyJhbGciOiJSUzI1NiJ9.e30.c2ln", "MIIEprivate", "hunter2-event", "hunter2-export", "hunter2-namespace",
	"hunter2-node", "hunter2-deployment",
	"hunter2-init", "hunter2-member", "hunter2-lease",
}

const plantedObjects = `
apiVersion: v1
kind: Secret
metadata: {name: planted, namespace: clusterset-system}
data: {password: aHVudGVyMi1zZWNyZXQ=}
stringData: {config: "user: {token: hunter2-string}"}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: planted
  namespace: clusterset-system
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: '{"data":{"x":"hunter2-applied"}}'
    example.org/api-token: hunter2-annotation
data: {kubeconfig: "users: [{name: a, user: {password: hunter2-config}}]"}
binaryData: {x: aHVudGVyMi1iaW5hcnk=}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
      etcd {
        credentials root hunter2-corefile
      }
      forward . 10.0.0.53
    }
---
apiVersion: v1
kind: Node
metadata: {name: planted, annotations: {example.org/join-token: hunter2-node}}
---
apiVersion: v1
kind: Namespace
metadata: {name: planted, annotations: {example.org/password: hunter2-namespace}}
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: planted}
spec: {ports: [{port: 53, protocol: UDP}]}
---
apiVersion: v1
kind: Event
metadata: {name: planted, namespace: clusterset-system}
involvedObject: {kind: Pod, name: planted, namespace: clusterset-system}
reason: Failed
message: 'login with password=hunter2-event'
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: planted, namespace: planted, annotations: {example.org/client-secret: hunter2-export}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: planted, namespace: clusterset-system}
spec:
  selector: {matchLabels: {app: planted}}
  template:
    metadata: {labels: {app: planted}}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      initContainers:
      - name: prepare
        image: example.org/prepare:1
        args: [--password, hunter2-init]
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      containers:
      - name: main
        image: example.org/main:1
        env: [{name: PLAIN, value: hunter2-deployment}]
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Pod
metadata: {name: planted, namespace: clusterset-system, annotations: {note: "https://admin:hunter2-url@h/ hunter2-secret"}}
spec:
  nodeName: planted
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: controller
    image: example.org/clusterset:1
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    env: [{name: PLAIN, value: hunter2-env}]
    command: [/clusterset, --password, hunter2-arg]
    args: [controller, --token=hunter2-flag, --broker=/etc/clusterset/broker/kubeconfig]
    ports: [{name: metrics, containerPort: METRICS}]
    livenessProbe: {httpGet: {path: /, port: 80, httpHeaders: [{name: X, value: hunter2-header}]}}
status:
  podIP: ADDRESS
  podIPs: [{ip: ADDRESS}]
  containerStatuses: [{name: controller, image: "example.org/clusterset:1", imageID: a, ready: true, restartCount: 1}]
---
apiVersion: v1
kind: Service
metadata: {name: clusterset-dns, namespace: clusterset-system}
spec: {ports: [{port: 53, protocol: TCP}], selector: {app: lost}}
---
apiVersion: v1
kind: Pod
metadata: {name: lost, namespace: clusterset-system, labels: {app: lost}}
spec:
  nodeName: gone
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: controller
    image: example.org/clusterset:1
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
status: {conditions: [{type: Ready, status: "True"}]}
`

const plantedLog = `exported shop/db
password=hunter2-log
Authorization: Bearer hunter2-log
token eyJhbGciOiJSUzI1NiJ9.e30.c2ln was rejected
-----BEGIN EC PRIVATE KEY-----
MIIEprivate
-----END EC PRIVATE KEY-----
known hunter2-secret
`

// plantedLease is a heartbeat. It comes with an annotation of the Member.
const plantedLease = `
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: heartbeat, namespace: NAMESPACE, annotations: {note: "https://admin:hunter2-lease@h/"}}
`

// plantsOnBroker plants credentials in the objects of member east on the broker. undo removes them again.
func plantsOnBroker(t *testing.T, hub *controlplane.ControlPlane) (undo func()) {
	t.Helper()
	members := hub.Dynamic().Resource(v1alpha1.Members)
	annotate := func(value string) *unstructured.Unstructured {
		patch := []byte(`{"metadata":{"annotations":{"example.org/token":` + value + `}}}`)
		o, err := members.Patch(t.Context(), "east", types.MergePatchType, patch, metav1.PatchOptions{})
		must(t, err)
		return o
	}
	lease := []byte(strings.Replace(plantedLease, "NAMESPACE", field(annotate(`"hunter2-member"`), "spec", "namespace"), 1))
	must(t, hub.ApplyYAML(t.Context(), lease))
	return func() {
		annotate("null")
		must(t, hub.DeleteYAML(t.Context(), lease))
	}
}

// servesMetrics stands in for a Pod with metrics, at an address of this machine that the API server sends requests of
// users to: one that is not on loopback. It returns "" if this machine has no such address.
func servesMetrics(t *testing.T) (address, port string) {
	t.Helper()
	all, err := net.InterfaceAddrs()
	must(t, err)
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			address = n.IP.String()
			break
		}
	}
	if address == "" {
		return "", ""
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	must(t, err)
	pod := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		_, _ = io.WriteString(w, "# TYPE planted gauge\nplanted{password=\"hunter2-metric\"} 1\n")
	})}}
	pod.Start()
	t.Cleanup(pod.Close)
	_, port, err = net.SplitHostPort(listener.Addr().String())
	must(t, err)
	return address, port
}

// servesLogs starts what the API server reads the logs of planted Pods from: the kubelet of their Node.
func servesLogs(t *testing.T) *httptest.Server {
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/containerLogs/clusterset-system/planted/controller":
			http.NotFound(w, r)
		case r.URL.Query().Get("previous") == "true":
			_, _ = io.WriteString(w, "it ended with token=hunter2-previous\n")
		default:
			_, _ = io.WriteString(w, plantedLog)
		}
	}))
	t.Cleanup(kubelet.Close)
	return kubelet
}

// gathers makes an archive of a cluster and its broker. Credentials are in every place that is read
// (docs/spec/operations.md 4).
func gathers(t *testing.T, hub, east *controlplane.ControlPlane, member, broker string) {
	want(t, exitOK, []string{"left out, as the credential of the cluster may not read it: broker: list flowschemas."}, "gather",
		filepath.Join(t.TempDir(), "healthy.tar.gz"), member, "--timeout=1m")
	kubelet := servesLogs(t)
	address, metrics := servesMetrics(t)
	objects := strings.NewReplacer("ADDRESS", cmp.Or(address, "127.0.0.1"), "METRICS",
		cmp.Or(metrics, "9153")).Replace(plantedObjects)
	if err := east.ApplyYAML(t.Context(), []byte(objects)); err != nil {
		t.Fatal(err)
	}
	defer plantsOnBroker(t, hub)()
	_, port, err := net.SplitHostPort(kubelet.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	node := fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"planted"},"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%s}}}}`, port)
	nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	if err := east.ApplyYAML(t.Context(), []byte(node)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := east.Dynamic().Resource(nodes).Delete(t.Context(), "planted", metav1.DeleteOptions{}); err != nil {
			t.Error(err) // a later join would look for its networks
		}
		deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
		if err := east.Dynamic().Resource(deployments).Namespace("clusterset-system").Delete(t.Context(), "planted",
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		must(t, east.DeleteYAML(t.Context(), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: planted}\n---\n"+
			"apiVersion: v1\nkind: Service\nmetadata: {name: clusterset-dns, namespace: clusterset-system}\n")))
		pods := east.Dynamic().Resource(schema.GroupVersionResource{Version: "v1",
			Resource: "pods"}).Namespace("clusterset-system")
		for _, pod := range []string{"planted", "lost"} { // no kubelet ends them
			if err := pods.Delete(t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
				t.Error(err)
			}
		}
	}()

	name := filepath.Join(t.TempDir(), "a.tar.gz")
	out := want(t, exitUnread, []string{name + " has ", " files of 2 clusters.\n", "missing: members/",
		"logs/clusterset-system/lost/controller: ", ": status: pod/lost: "},
		"gather", name, member, broker, "--timeout=1m")
	files := unpack(t, name)
	all := out
	for path, content := range files {
		all += "\n" + path + "\n" + content
	}
	for _, secret := range planted {
		if i := strings.Index(all, secret); i >= 0 {
			t.Errorf("the archive has %q: ...%s...", secret, all[max(0, i-200):min(len(all), i+100)])
		}
	}
	var index gather.Index
	if err := json.Unmarshal([]byte(files["clusterset-gather/index.json"]), &index); err != nil ||
		len(index.Clusters) != 2 || index.Clusters[0].Kubernetes == "" {
		t.Fatalf("index %+v, error %v", index, err)
	}
	here, there := "clusterset-gather/"+index.Clusters[0].Name+"/", "clusterset-gather/broker/"
	for path, text := range map[string]string{
		here + "logs/clusterset-system/planted/controller.log":                "exported shop/db\npassword=<redacted>\n",
		here + "logs/clusterset-system/planted/controller.previous.log":       "it ended with token=<redacted>\n",
		here + "objects/clusterset-system/events.yaml":                        "message: login with password=<redacted>",
		here + "objects/clusterset-system/deployments.apps.yaml":              "image: example.org/prepare:1",
		here + "objects/serviceexports.multicluster.x-k8s.io.yaml":            "example.org/client-secret: <redacted, ",
		here + "objects/namespaces.yaml":                                      "example.org/password: <redacted, ",
		here + "objects/clusterset-system/secrets.yaml":                       "token: <redacted, ",
		here + "objects/clusterset-system/pods.yaml":                          "--broker=/etc/clusterset/broker/kubeconfig",
		here + "objects/kube-system/configmaps.yaml":                          "forward . 10.0.0.53",
		here + "objects/clusterproperties.about.k8s.io.yaml":                  "value: fleet",
		here + "objects/nodes.yaml":                                           "name: planted",
		here + "objects/customresourcedefinitions.apiextensions.k8s.io.yaml":  "name: serviceexports.multicluster.x-k8s.io",
		there + "objects/members.broker.clusterset-dns.io.yaml":               "example.org/token: <redacted, ",
		there + "objects/leases.coordination.k8s.io.yaml":                     "note: https://<redacted>@h/",
		there + "objects/resourcequotas.yaml":                                 "count/exportedservices",
		there + "objects/customresourcedefinitions.apiextensions.k8s.io.yaml": "name: members.broker.clusterset-dns.io",
	} {
		if !strings.Contains(files[path], text) {
			t.Errorf("%s lacks %q:\n%s", path, text, files[path])
		}
	}
	var found status.State
	if err := yaml.Unmarshal([]byte(files[here+"status.yaml"]), &found); err != nil || found.Cluster.ClusterID != "east" ||
		!slices.Contains(found.Problems, "Service clusterset-system/clusterset-dns has no ready endpoint") ||
		!slices.ContainsFunc(found.Unread, func(s string) bool { return strings.HasPrefix(s, "pod/lost: ") }) {
		t.Errorf("status.yaml %+v, error %v: want one of east, with its DNS server", found, err)
	}
	if text := files[here+"metrics/clusterset-system/planted/controller.txt"]; address != "" &&
		!strings.Contains(text, "planted{password=<redacted>} 1\n") {
		t.Errorf("metrics\n%s\nwant those of the Pod", text)
	}
	if strings.Contains(strings.Join(index.Missing(), "\n"), "dnses") {
		t.Errorf("missing %q, want nothing that only OpenShift has", index.Missing())
	}
	want(t, exitError, []string{"error: " + name + " exists: want the name of a new file"}, "gather", name, member)

	// With the rights of a member on the broker, and with no server at all, the rest is there.
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(nowhere, []byte(strings.Replace(contextsOnly, "contexts:",
		"clusters: [{name: east, cluster: {server: \"https://127.0.0.1:1\"}}]\nusers: [{name: east, user: {token: hunter2-url}}]\ncontexts:", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, east.InstallCRDs(t.Context(), []byte(openShiftCRD)))
	must(t, east.ApplyYAML(t.Context(), []byte(
		"apiVersion: operator.openshift.io/v1\nkind: DNS\nmetadata: {name: default}\n")))
	name = filepath.Join(t.TempDir(), "b.tar.gz")
	want(t, exitUnread, []string{"may not read it: broker: list flowschemas.flowcontrol.apiserver.k8s.io\n"}, "gather",
		name, member, "--dns-namespace=planted")
	must(t, east.DeleteCRDs(t.Context(), []byte(openShiftCRD)))
	files = unpack(t, name)
	if text := files[here+"objects/planted/services.yaml"]; !strings.Contains(text, "name: kube-dns") ||
		files[here+"objects/kube-system/configmaps.yaml"] != "" {
		t.Errorf("Services %s, want that of the DNS server, and nothing of kube-system", text)
	}
	if text := files[here+"objects/dnses.operator.openshift.io.yaml"]; !strings.Contains(text, "name: default") {
		t.Errorf("DNS configuration of OpenShift: %q, want it", text)
	}
	want(t, exitUnread, []string{"missing: members/east: everything: ", " files of 2 clusters"}, "gather",
		filepath.Join(t.TempDir(), "c.tar.gz"), "--kubeconfig="+nowhere, "--context=east", broker)
}

// unpack returns the files of an archive by their names.
func unpack(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v: want a file that others cannot read", info.Mode(), err)
	}
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(content)
	}
}
