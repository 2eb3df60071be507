package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/admin"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

const listed = `
- apiVersion: multicluster.x-k8s.io/v1beta1
  kind: ServiceExport
  metadata: {name: db, namespace: shop, generation: 2}
  status:
    conditions:
    - {type: Valid, status: "True", reason: Valid, message: "", lastTransitionTime: null, observedGeneration: 2}
    - {type: Ready, status: "True", reason: Exported, message: "Exported.", lastTransitionTime: null, observedGeneration: 2}
    - {type: Conflict, status: "True", reason: PortConflict, message: "", lastTransitionTime: null, observedGeneration: 2}
- apiVersion: multicluster.x-k8s.io/v1beta1
  kind: ServiceExport
  metadata: {name: old, namespace: shop, generation: 2}
  status:
    conditions:
    - {type: Valid, status: "True", reason: Valid, message: "", lastTransitionTime: null, observedGeneration: 1}
- apiVersion: multicluster.x-k8s.io/v1beta1
  kind: ServiceImport
  metadata: {name: db, namespace: shop}
  spec:
    type: ClusterSetIP
    ips: [10.97.0.9, "fd00::9"]
    ports: [{port: 5432, protocol: TCP}, {port: 53, protocol: UDP}, {port: 1}, {port: 2}, {port: 3}]
  status: {clusters: [{cluster: east}, {cluster: west}]}
- apiVersion: multicluster.x-k8s.io/v1beta1
  kind: ServiceImport
  metadata: {name: broken, namespace: shop}
  spec: {type: Headless, ports: 7}
- apiVersion: broker.clusterset-dns.io/v1alpha1
  kind: Member
  metadata: {name: east}
- apiVersion: broker.clusterset-dns.io/v1alpha1
  kind: Member
  metadata: {name: west}
- apiVersion: broker.clusterset-dns.io/v1alpha1
  kind: Member
  metadata: {name: north}
`

// docs/spec/operations.md 1: the tables, without and with -o wide.
func TestGetTables(t *testing.T) {
	var objects []unstructured.Unstructured
	var contents []map[string]any
	if err := yaml.Unmarshal([]byte(listed), &contents); err != nil {
		t.Fatal(err)
	}
	for _, c := range contents {
		objects = append(objects, unstructured.Unstructured{Object: c})
	}
	seen := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	members := memberTable([]admin.MemberState{
		{ClusterID: "east", Namespace: "clusterset-0123", Heartbeat: &seen, HeartbeatAge: "4s", Services: 3, Version: "v1.0.0", PodCIDRs: []string{"10.1.0.0/16"}, VIPCIDR: "243.0.0.0/16"},
		{ClusterID: "west", Namespace: "clusterset-4567", Heartbeat: &seen, HeartbeatAge: "5m0s", Expired: true},
	})
	var out bytes.Buffer
	for _, format := range []string{"", "wide"} {
		g := getCommand{factory: &factory{IOStreams: genericiooptions.IOStreams{Out: &out}}, format: format}
		for _, x := range []struct {
			table   table
			objects []unstructured.Unstructured
			all     bool
		}{
			{exportTable("clusterset.local"), objects[:2], false}, {importTable("clusterset.local"), objects[2:4], true}, {members, objects[4:], false},
		} {
			g.allNamespaces = x.all
			if err := g.print(nil, x.table, x.objects, false); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&out)
		}
	}
	golden(t, "get.tables", out.String())
}

// gets prints lists of real objects in each format.
func gets(t *testing.T, east *controlplane.ControlPlane, member, broker string) {
	shop := func(args ...string) []string { return append(args, member, "-n", "shop") }
	want(t, exitOK, []string{"No serviceexports found in namespace shop.\n"}, shop("get", "exports")...)
	for _, name := range []string{"db", "late"} {
		text := strings.NewReplacer("NAME", name, "VALID", "True", "REASON", "Valid", "READY", "True", "WHY", "Exported", "MESSAGE", "Exported.").Replace(reconciled)
		if err := east.ApplyYAML(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	want(t, exitOK, []string{"NAME   VALID   READY   CONFLICT   REASON     AGE\n", "db     True    True    Unknown    Exported   "}, shop("get", "exports")...)
	want(t, exitOK, []string{"NAMESPACE   NAME", "shop        late"}, "get", "exports", "-A", member)
	want(t, exitOK, []string{"db.shop.svc.clusterset.local"}, shop("get", "serviceexports", "-o", "wide")...)
	want(t, exitOK, []string{"db.shop.svc.example.org"}, shop("get", "exports", "db", "-o", "wide", "--zone=example.org")...)
	for format, text := range map[string]string{
		"name": "serviceexport.multicluster.x-k8s.io/db\nserviceexport.multicluster.x-k8s.io/late\n", "jsonpath={.items[*].metadata.name}": "db late",
		"go-template={{len .items}}": "2",
	} {
		if out := want(t, exitOK, nil, shop("get", "exports", "-o", format)...); out != text {
			t.Errorf("-o %s printed %q, want %q", format, out, text)
		}
	}
	if out := want(t, exitOK, nil, shop("get", "exports", "db", "--no-headers")...); strings.Contains(out, "NAME") || !strings.HasPrefix(out, "db ") {
		t.Errorf("without headers: %q", out)
	}
	if out := want(t, exitOK, nil, shop("get", "exports", "db", "--template={{.metadata.name}}")...); out != "db" {
		t.Errorf("a template without -o printed %q", out)
	}
	var one unstructured.Unstructured
	if out := want(t, exitOK, nil, shop("get", "exports", "db", "-o", "json")...); json.Unmarshal([]byte(out), &one.Object) != nil ||
		one.GetKind() != "ServiceExport" || one.GetManagedFields() != nil {
		t.Errorf("-o json of one name printed %s, want the object without managed fields", out)
	}
	want(t, exitOK, []string{"kind: List"}, shop("get", "exports", "-o", "yaml")...)
	want(t, exitError, []string{"db ", "error: nope does not exist"}, shop("get", "exports", "db", "nope")...)
	completes(t, "late\n", "get", "exports", member, "-n", "shop", "db", "")

	want(t, exitOK, []string{"No serviceimports found.\n"}, "get", "imports", "-A", member)
	want(t, exitOK, []string{"east   NoHeartbeat   <none>      0"}, "get", "members", member)
	want(t, exitOK, []string{"member.broker.clusterset-dns.io/east\n"}, "get", "members", "east", broker, "-o", "name")
	want(t, exitError, []string{"error: nope does not exist"}, "get", "members", "nope", member)
	completes(t, "east\n", "get", "members", member, "e")
	want(t, exitError, []string{"error: members: this cluster has no broker credential: want --broker-kubeconfig or --broker-context, or a cluster that has joined"},
		"get", "members", member, "--controller-namespace=default")
	want(t, exitOK, nil, "unexport", "db", "late", member, "-n", "shop", "--wait=false")
}

// A screen is what a command that runs has printed so far.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// watches changes the state that "status --watch" shows. docs/spec/operations.md 2.
func watches(t *testing.T, member string) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out screen
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"clusterset", "status", "--watch", "--interval=20ms", member}, genericiooptions.IOStreams{Out: &out, ErrOut: &out})
	}()
	shows := func(text string) {
		t.Helper()
		until.OK(t, text, func(context.Context) error {
			if !strings.Contains(out.String(), text) {
				return fmt.Errorf("printed\n%s", out.String())
			}
			return nil
		})
	}
	shows("Exports:      0 of 0 ready")
	shows("problem: no leader")
	want(t, exitOK, nil, "export", "db", member, "-n", "shop", "--wait=false")
	shows("Exports:      0 of 1 ready")
	interrupt()
	if got := <-code; got != exitProblems {
		t.Errorf("exit code %d, want that of the last state, %d", got, exitProblems)
	}
	// A read that fails is shown as a change, and so is the next one.
	if n, failed := strings.Count(out.String(), "Clusterset:"), strings.Count(out.String(), "error: "); n > 2+2*failed {
		t.Errorf("the state was printed %d times with %d failed reads, want once at the start, once for a change and twice for a failed read:\n%s", n, failed, out.String())
	}
	want(t, exitOK, nil, "unexport", "db", member, "-n", "shop", "--wait=false")
}

// On a terminal each state covers the one before: each line erases the rest of its own, and the last one what is below.
func TestRedraw(t *testing.T) {
	var out, errOut bytes.Buffer
	s := &statusCommand{factory: &factory{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}}}
	state := admin.State{Problems: []string{"one"}}
	must(t, s.redraw(&state, errors.New("the broker is away")))
	var plain bytes.Buffer
	must(t, s.print(&plain, &state))
	want := "\x1b[H" + strings.ReplaceAll(plain.String()+"error: the broker is away\n", "\n", "\x1b[K\n") + "\x1b[J"
	if out.String() != want || errOut.Len() > 0 || !strings.Contains(want, "problem: one\x1b[K\n") {
		t.Errorf("printed\n%q\nand %q as errors, want\n%q", out.String(), errOut.String(), want)
	}
}

// Ages and renewals are no change; anything else is.
func TestChangeable(t *testing.T) {
	state := func(change func(*admin.State)) string {
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		s := admin.State{
			Cluster:  &admin.ClusterState{ClusterID: "east", Leader: "a", LeaderRenewed: &at},
			Members:  []admin.MemberState{{ClusterID: "west", Heartbeat: &at, HeartbeatAge: "5m0s", Expired: true}},
			Problems: []string{`member "west" last renewed its heartbeat 5m0s ago: it has expired`},
		}
		change(&s)
		return changeable(s, nil)
	}
	same, later := state(func(*admin.State) {}), time.Now()
	for _, tt := range []struct {
		name   string
		change func(*admin.State)
		shown  bool
	}{
		{"ages", func(s *admin.State) {
			s.Members[0].Heartbeat, s.Members[0].HeartbeatAge, s.Cluster.LeaderRenewed = &later, "6m0s", &later
			s.Problems[0] = `member "west" last renewed its heartbeat 6m0s ago: it has expired`
		}, false},
		{"leader", func(s *admin.State) { s.Cluster.Leader = "b" }, true},
		{"problem", func(s *admin.State) { s.Problems = append(s.Problems, "no leader") }, true},
		{"services", func(s *admin.State) { s.Members[0].Services = 1 }, true},
	} {
		if shown := state(tt.change) != same; shown != tt.shown {
			t.Errorf("%s: shown %t, want %t", tt.name, shown, tt.shown)
		}
	}
}
