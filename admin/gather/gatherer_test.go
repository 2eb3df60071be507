package gather

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/redact"
	"github.com/clusterset-dns/clusterset/admin/status"
)

// servesPods is an API server with two Pods. One hangs; it calls read after the log of the other was read.
func servesPods(read func()) http.Handler {
	pod := func(name string) string {
		return `{"metadata":{"namespace":"clusterset-system","name":"` + name +
			`"},"spec":{"containers":[{"name":"c","ports":[{"name":"metrics","containerPort":9153}]}]}}`
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const pods = "/api/v1/namespaces/clusterset-system/pods"
		w.Header().Set("Content-Type", "application/json")
		switch path := r.URL.Path; {
		case path == "/version":
			_, _ = io.WriteString(w, `{"gitVersion":"v1.0.0"}`)
		case path == pods:
			_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"PodList","items":[`+pod("hangs")+`,`+pod("works")+`]}`)
		case path == pods+"/works/log":
			_, _ = io.WriteString(w, "it works\n")
		case strings.HasPrefix(path, pods+"/hangs"):
			<-r.Context().Done()
		case strings.HasPrefix(path, pods+"/"):
			read()
		default:
			http.NotFound(w, r)
		}
	})
}

// A Pod that hangs delays no other, and an interrupted run writes what it has read. docs/spec/operations.md 3.
func TestInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	server := httptest.NewServer(servesPods(interrupt))
	defer server.Close()
	var archive bytes.Buffer
	o := Defaults()
	o.Timeout = time.Hour
	index, err := Run(ctx, &archive, []Cluster{{Name: "east", Role: read.RoleMember,
		Config: &rest.Config{Host: server.URL}}}, o)
	if err != nil {
		t.Fatal(err)
	}
	if missing := index.Missing(); !slices.Contains(missing, "east: everything else: interrupted") {
		t.Errorf("missing %q, want the interruption", missing)
	}
	zip, err := gzip.NewReader(&archive)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(zip); err != nil || !bytes.Contains(text, []byte("it works\n")) {
		t.Errorf("error %v: want an archive with the log of the other Pod", err)
	}
}

// status.yaml has addresses in the form of "clusterset status -o yaml".
func TestStatusFile(t *testing.T) {
	pods := networks.Outside{Count: 12345678, Examples: []networks.Example{{Address: netip.MustParseAddr("10.9.0.7")},
		{Address: netip.MustParseAddr("fd00::7")}}}
	state := &status.State{Cluster: &status.ClusterState{Outside: &status.OutsideState{Pods: pods}}}
	text := string(statusFile(state).redacted(redact.Known()))
	for _, want := range []string{"address: 10.9.0.7\n", "address: fd00::7\n", "count: 12345678\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("status.yaml lacks %q:\n%s", want, text)
		}
	}
}
