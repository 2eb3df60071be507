package main

import (
	"archive/tar"
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
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/admin"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// planted are credentials of the forms that are found by place, by name and by value. None of them may be in an archive.
var planted = []string{
	"hunter2-secret", "hunter2-string", "hunter2-config", "hunter2-corefile", "hunter2-applied", "hunter2-annotation", "hunter2-env", "hunter2-arg",
	"hunter2-flag", "hunter2-header", "hunter2-log", "hunter2-url", "hunter2-binary", "aHVudGVyMi", "eyJhbGciOiJSUzI1NiJ9.e30.c2ln", "MIIEprivate",
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
metadata: {name: planted}
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
    ports: [{name: metrics, containerPort: 9153}]
    livenessProbe: {httpGet: {path: /, port: 80, httpHeaders: [{name: X, value: hunter2-header}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: lost, namespace: clusterset-system}
spec:
  nodeName: gone
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: controller
    image: example.org/clusterset:1
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
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

// gathers makes an archive of a cluster and its broker. Credentials are in every place that is read (docs/spec/operations.md 4).
func gathers(t *testing.T, east *controlplane.ControlPlane, member, broker string) {
	// The API server reads logs from the kubelet of the Node, which here is this server.
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/containerLogs/clusterset-system/planted/controller" || r.URL.Query().Get("previous") != "" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, plantedLog)
	}))
	defer kubelet.Close()
	if err := east.ApplyYAML(t.Context(), []byte(plantedObjects)); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(kubelet.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	status := fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"planted"},"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%s}}}}`, port)
	nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	if err := east.ApplyYAML(t.Context(), []byte(status)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := east.Dynamic().Resource(nodes).Delete(t.Context(), "planted", metav1.DeleteOptions{}); err != nil {
			t.Error(err) // a later join would look for its networks
		}
		pods := east.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("clusterset-system")
		for _, pod := range []string{"planted", "lost"} { // no kubelet ends them
			if err := pods.Delete(t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
				t.Error(err)
			}
		}
	}()

	name := filepath.Join(t.TempDir(), "a.tar.gz")
	out := want(t, exitProblems, []string{
		name + " has ", " files of 2 clusters.\n",
		"missing: members/", "metrics/clusterset-system/planted/controller: ", "logs/clusterset-system/lost/controller: ",
	}, "gather", name, member, broker, "--timeout=1m")
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
	var index admin.GatherIndex
	if err := json.Unmarshal([]byte(files["clusterset-gather/index.json"]), &index); err != nil || len(index.Clusters) != 2 || index.Clusters[0].Kubernetes == "" {
		t.Fatalf("index %+v, error %v", index, err)
	}
	here, there := "clusterset-gather/"+index.Clusters[0].Name+"/", "clusterset-gather/broker/"
	for path, text := range map[string]string{
		here + "logs/clusterset-system/planted/controller.log":                "exported shop/db\npassword=<redacted>\n",
		here + "objects/clusterset-system/secrets.yaml":                       "token: <redacted, ",
		here + "objects/clusterset-system/pods.yaml":                          "--broker=/etc/clusterset/broker/kubeconfig",
		here + "objects/kube-system/configmaps.yaml":                          "forward . 10.0.0.53",
		here + "objects/clusterproperties.about.k8s.io.yaml":                  "value: fleet",
		here + "objects/nodes.yaml":                                           "name: planted",
		here + "objects/customresourcedefinitions.apiextensions.k8s.io.yaml":  "name: serviceexports.multicluster.x-k8s.io",
		here + "status.yaml":                                                  "clusterID: east",
		there + "objects/members.broker.clusterset-dns.io.yaml":               "name: east",
		there + "objects/resourcequotas.yaml":                                 "count/exportedservices",
		there + "objects/customresourcedefinitions.apiextensions.k8s.io.yaml": "name: members.broker.clusterset-dns.io",
	} {
		if !strings.Contains(files[path], text) {
			t.Errorf("%s lacks %q:\n%s", path, text, files[path])
		}
	}
	want(t, exitError, []string{"error: " + name + " exists: want the name of a new file"}, "gather", name, member)

	// With the rights of a member on the broker, and with no server at all, the rest is there.
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(nowhere, []byte(strings.Replace(contextsOnly, "contexts:", "clusters: [{name: east, cluster: {server: \"https://127.0.0.1:1\"}}]\nusers: [{name: east, user: {token: hunter2-url}}]\ncontexts:", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, exitProblems, []string{"missing: broker: list flowschemas.flowcontrol.apiserver.k8s.io: ", "cannot list resource"}, "gather", filepath.Join(t.TempDir(), "b.tar.gz"), member)
	want(t, exitProblems, []string{"missing: members/east: everything: ", " files of 2 clusters"}, "gather", filepath.Join(t.TempDir(), "c.tar.gz"), "--kubeconfig="+nowhere, "--context=east", broker)
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
