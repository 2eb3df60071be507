package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/status"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

var update = flag.Bool("update", false, "write golden files anew")

// command runs the program and returns its exit code and what it printed.
func command(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), append([]string{"clusterset"}, args...),
		genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &o, ErrOut: &e})
	if shown := credential.FindString(o.String() + e.String()); shown != "" {
		t.Errorf("%q printed a credential: %.20s...", args, shown)
	}
	return code, o.String(), e.String()
}

// credential is what no command prints: a JWT, which tokens of service accounts are, as text or once more in base64, or
// a private key.
var credential = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+|ZXlK[A-Za-z0-9+/]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY`)

// want fails unless the program ends with code and prints all of the texts, to either stream.
func want(t *testing.T, code int, texts []string, args ...string) string {
	t.Helper()
	got, out, errOut := command(t, args...)
	if got != code {
		t.Errorf("%q: exit code %d, want %d\n%s%s", args, got, code, out, errOut)
	}
	for _, text := range texts {
		if !strings.Contains(out+errOut, text) {
			t.Errorf("%q printed\n%s%swant %q", args, out, errOut, text)
		}
	}
	return out
}

// completes fails the test unless a completion has a text. A busy machine may not make one in the time that a shell
// waits: it is asked for again.
func completes(t *testing.T, text string, args ...string) (out string) {
	t.Helper()
	args = append([]string{"__complete"}, args...)
	until.OK(t, strings.Join(args, " "), func(context.Context) error {
		code, printed, errOut := command(t, args...)
		if out = printed; code != exitOK || !strings.Contains(out, text) {
			return fmt.Errorf("exit code %d, printed\n%s%swant %q", code, out, errOut, text)
		}
		return nil
	})
	return out
}

// inVain calls a command that waits for what does not come, and fails the test unless it ends with an error that has a
// text. The command has little time, so that the test has not to wait, either; on a slow machine a later call has more.
func inVain(t *testing.T, text string, args ...string) {
	t.Helper()
	timeout := 2 * time.Second
	until.OK(t, strings.Join(args, " "), func(context.Context) error {
		timeout *= 2
		code, out, errOut := command(t, append(args, "--timeout="+timeout.String())...)
		if code != exitError || !strings.Contains(errOut, text) {
			return fmt.Errorf("exit code %d, printed\n%s%swant %q", code, out, errOut, text)
		}
		return nil
	})
}

// TestUsage needs no API server: wrong arguments are an error before the first request.
func TestUsage(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, tt := range []struct {
		name, args, want string
	}{
		{"no such verb", "frobnicate", `error: unknown command "frobnicate"`},
		{"like a verb", "staus", `error: unknown command "staus" for "clusterset", there is status`},
		{"like a verb of a broker", "broker int", `error: unknown command "int" for "clusterset broker", there is init`},
		{"argument", "leave now", "error: argument \"now\": clusterset leave takes no arguments\n"},
		{"status of a service", "status web",
			`error: argument "web": clusterset status takes no arguments; clusterset explain is for one service`},
		{"no broker", "broker init", "error: no broker: want --broker-kubeconfig, --broker-context or both\n"},
		{"context of the broker", "broker init --context hub", " or both; did you mean --broker-context hub?\n"},
		{"context of the cluster", "join --context east", "--broker-context or both\n"},
		{"no broker to leave", "leave",
			"error: no broker: want --broker-kubeconfig, --broker-context or both, or --force if the broker no longer exists"},
		{"dry run", "join --dry-run=maybe", "error: --dry-run=maybe: want none, client or server"},
		{"output", "join -o xml", "error: --output=xml: want one of name, json, yaml"},
		{"status output", "status -o name", "error: --output=name: want one of wide, json, yaml"},
		{"vip", "join --vip=some", "error: --vip=some: want derived, cidr or none"},
		{"vip without a CIDR", "join --vip cidr --vip-cidr none",
			"error: --vip=cidr and --vip-cidr=none: want only one of them"},
		{"endpoints", "join --endpoints=node_ip", "error: --endpoints=node_ip: want pod_ip, service_ip, load_balancer"},
		{"life", "join --credential-life=1m", `error: invalid argument "1m" for "--credential-life" flag: want a duration from 10m0s to 87600h0m0s`},
		{"quota", "join --quota-leases=-1", "-1 leases: want at least 1 of each"},
		{"nothing to export", "export", "error: export: no arguments: want SERVICE, the name of one or more Services"},
		{"no member to remove", "broker remove", "error: remove: 0 arguments: want ID, the cluster id of one member"},
		{"two to remove", "broker remove east west", "error: remove: 2 arguments: want ID, the cluster id of one member"},
		{"no time", "export db --timeout 0", `error: invalid argument "0" for "--timeout" flag: want a duration from 1ms to 24h0m0s`},
		{"negative time", "unexport db --timeout=-1s", `error: invalid argument "-1s" for "--timeout" flag: want a duration from 1ms to 24h0m0s`},
		{"no time to explain", "explain db.shop --timeout 0s", `"0s" for "--timeout" flag: want a duration from 1ms to`},
		{"negative TTL", "status --lease-ttl -5s", `"-5s" for "--lease-ttl" flag: want a duration from 1s to 1h0m0s`},
		{"no duration", "verify --timeout soon", `"soon" for "--timeout" flag: want a duration from 1ms to`},
		{"no kubeconfig", "export db", "none: want --kubeconfig FILE, or the environment variable KUBECONFIG"},
		{"no kubeconfig for a status", "status", "error: member: no kubeconfig at /"},
		{"no such shell", "completion foo", `error: unknown command "foo" for "clusterset completion"`},
		{"reserved label", "export db --label kubernetes.io/x=y",
			"error: --label kubernetes.io/x=y: want a valid label without a reserved prefix"},
		{"annotation", "export db --annotation a/b/c=y", "error: --annotation a/b/c: want a valid key"},
		{"use-clusterset-ip", "export db --use-clusterset-ip=perhaps",
			"error: --use-clusterset-ip=perhaps: want true or false"},
		{"controller without broker", "controller",
			"error: no --broker: want the kubeconfig FILE with which this member reaches the broker"},
		{"option", "controller --vip some", `"some": want one of derived, cidr, none`},
		{"too few words", "controller --lease 10s", `"10s": want 0, or two durations`},
		{"service to wire to", "dns apply --service=x", "error: --service=x: want NAMESPACE/NAME"},
		{"no time to gather", "gather --since 0s", `error: invalid argument "0s" for "--since" flag: want a duration from 1s to 8760h0m0s`},
		{"no time to watch", "status --watch --interval 0s", `error: invalid argument "0s" for "--interval" flag: want a duration from 1ms to 24h0m0s`},
		{"no time to wire", "dns apply --timeout=0s", `error: invalid argument "0s" for "--timeout" flag: want a duration from 1ms to 24h0m0s`},
		{"output of dns", "dns status -o name", "error: --output=name: want one of wide, json, yaml"},
		{"output of a diff", "dns diff -o wide", "error: --output=wide: want one of json, yaml"},
		{"broker file", "broker init --broker-kubeconfig /does/not/exist", "error: broker: "},
	} {
		t.Run(tt.name, func(t *testing.T) { want(t, exitError, []string{tt.want}, strings.Fields(tt.args)...) })
	}
	want(t, exitOK, []string{programVersion()}, "version")
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte(contextsOnly), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, exitError, []string{"error: member: " + config + " has no current context: want --context, one of east, hub"},
		"status", "--kubeconfig", config)
	want(t, exitError, []string{`error: member: context "wset" does not exist: want one of east, hub`},
		"status", "--kubeconfig", config, "--context=wset")
	want(t, exitError, []string{`error: broker: context "hob" does not exist: want one of east, hub`},
		"broker", "init", "--kubeconfig", config, "--broker-context=hob")
	var out bytes.Buffer
	if code := run(t.Context(), []string{"/usr/bin/kubectl-clusterset", "--help"},
		genericiooptions.IOStreams{Out: &out, ErrOut: &out}); code != exitOK ||
		!strings.Contains(out.String(), "kubectl clusterset [command]") {
		t.Errorf("as a plugin: exit code %d\n%s", code, &out)
	}
}

const contextsOnly = `
apiVersion: v1
kind: Config
contexts: [{name: hub, context: {cluster: hub, user: hub}}, {name: east, context: {cluster: east, user: east}}]
`

// TestCompletion needs no API server.
func TestCompletion(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte(contextsOnly), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", config)
	for _, tt := range []struct {
		args, want string // without the line that ends every output
	}{
		{"join --components=", "controller\ndns\nall-in-one\nwiring\nnone\n"},
		{"join --vip=", "derived\ncidr\nnone\n"},
		{"join --dry-run=", "none\nclient\nserver\n"},
		{"export -o ", "name\njson\nyaml\n"},
		{"status -o ", "wide\njson\nyaml\n"},
		{"export --use-clusterset-ip ", "true\nfalse\n"},
		{"status --context ", "east\nhub\n"},
		{"join --broker-context h", "hub\n"},
		{"explain --broker-context h", "hub\n"},
		{"dns status -o ", "wide\njson\nyaml\n"},
		{"dns diff -o ", "json\nyaml\n"},
		{"dns undo --dry-run=", "none\nclient\nserver\n"},
		{"controller --vip ", "derived\ncidr\nnone\n"},
		{"controller --merge ", "kep\nlighthouse\nfirst\n"},
		{"export --lab", "--label\tKEY=VALUE of a label of the imports, repeatable\n"},
	} {
		code, out, errOut := command(t, append([]string{"__complete"}, strings.Split(tt.args, " ")...)...)
		if offered, _, _ := strings.Cut(out, ":4\n"); code != exitOK || offered != tt.want {
			t.Errorf("%q: exit code %d, %s%scompletions %q, want %q", tt.args, code, out, errOut, offered, tt.want)
		}
	}
	want(t, exitOK, []string{"--label KEY=VALUE  "}, "export", "--help")
}

// TestControllerFlags: each option of the controller is a flag and takes its arguments.
func TestControllerFlags(t *testing.T) {
	c := newController(&factory{})
	for _, o := range controller.Options() {
		if c.Flags().Lookup(strings.ReplaceAll(o.Name, "_", "-")) == nil {
			t.Errorf("directive %s has no flag", o.Name)
		}
	}
	config := controller.Defaults()
	for _, x := range []struct{ option, value string }{
		{"lease", "5s 30s"}, {"service_cidr", "10.0.0.0/16"}, {"service_cidr", "10.1.0.0/16 10.2.0.0/16"},
		{"cluster_id", "east"},
	} {
		set(t, &config, x.option, x.value)
	}
	if config.Renew != 5*time.Second || config.TTL != 30*time.Second || config.ClusterID != "east" ||
		len(config.ServiceCIDRs) != 2 {
		t.Errorf("config = %+v, want the values of the flags", config)
	}
	v := &optionValue{option: controller.Options()[5], config: &config}
	for _, value := range []string{"10.0.0.0/16", "10.1.0.0/16"} {
		if err := v.Set(value); err != nil {
			t.Fatal(err)
		}
	}
	if len(config.ServiceCIDRs) != 2 {
		t.Errorf("service CIDRs = %v, want those of both flags", config.ServiceCIDRs)
	}
}

func set(t *testing.T, config *controller.Config, option, value string) {
	t.Helper()
	for _, o := range controller.Options() {
		if o.Name != option {
			continue
		}
		if err := (&optionValue{option: o, config: config}).Set(value); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPrintState compares each output format with a golden file.
func TestPrintState(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	state := status.State{
		Cluster: &status.ClusterState{
			ClusterID: "east", ClusterSet: "fleet", BrokerUID: "11111111-2222-3333-4444-555555555555", Leader: "coredns-1",
			LeaderRenewed: ago(3 * time.Second), CredentialExpires: ago(-23*time.Hour - 30*time.Minute),
			Exports: status.ExportState{Total: 3, Ready: 2, NotReady: 1, Reasons: map[string]int{"NoService": 1}},
			Selection: []status.SelectionState{
				{Namespace: "shop", Name: "db", Preferred: "east, then east west", InUse: []string{"west"},
					Hidden: []string{"east"}, Since: ago(2 * time.Minute)},
				{Namespace: "shop", Name: "web", Preferred: "no cluster", InUse: []string{"east", "west"}},
			},
		},
		Broker: &status.BrokerState{Server: "https://broker.example:6443", UID: "11111111-2222-3333-4444-555555555555"},
		Members: []status.MemberState{
			{
				ClusterID: "east", Namespace: "clusterset-0123456789abcdef", Version: "v1.0.0", Merge: "kep",
				Heartbeat: ago(4 * time.Second), HeartbeatAge: "4s", Services: 3, PodCIDRs: []string{"10.1.0.0/16", "fd01::/48"},
				ServiceCIDRs: []string{"10.101.0.0/16"}, VIPCIDRs: []string{"243.0.0.0/16"},
				KubeSystemUID: "22222222-2222-3333-4444-555555555555", This: true,
			},
			{
				ClusterID: "west", Namespace: "clusterset-fedcba9876543210", Version: "v1.0.1", Merge: "first",
				Heartbeat: ago(5 * time.Minute), HeartbeatAge: "5m0s", Expired: true,
				KubeSystemUID: "33333333-2222-3333-4444-555555555555",
			},
			{ClusterID: "xeno", Namespace: "clusterset-0000000000000000", Expired: true,
				KubeSystemUID: "44444444-2222-3333-4444-555555555555"},
		},
		Conflicts: []status.ServiceState{{
			Namespace: "shop", Name: "db", Reason: "PortConflict,LabelsConflict", Message: "Conflicting ports.",
		}},
		Result: read.Result{Problems: []string{"member \"west\" last renewed its heartbeat 5m0s ago: it has expired, and other members use its endpoints as a last resort"},
			Warnings: []string{"1 service has conflicting exports: see the condition Conflict of its ServiceExports"}},
	}
	for _, format := range []string{"table", "wide", "json", "yaml"} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			var err error
			if format == "json" || format == "yaml" {
				err = printAs(&out, format, state)
			} else {
				err = printState(&out, &state, now, format == "wide")
			}
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "status."+format, out.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(content) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, content)
	}
}

const shop = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {ports: [{port: 5432}]}
---
apiVersion: v1
kind: Service
metadata:
  name: derived-0123456789abcdef
  namespace: shop
  labels: {app.kubernetes.io/managed-by: controller.clusterset-dns.io}
spec: {ports: [{port: 5432}]}
`

// reconciled is an export with conditions of a controller.
const reconciled = `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: NAME, namespace: shop}
status:
  conditions:
  - {type: Valid, status: "VALID", reason: REASON, message: "MESSAGE", lastTransitionTime: "2026-01-01T00:00:00Z", observedGeneration: 1}
  - {type: Ready, status: "READY", reason: WHY, message: "MESSAGE", lastTransitionTime: "2026-01-01T00:00:00Z", observedGeneration: 1}
`

// TestCommands joins, exports and leaves with real API servers. No controller runs.
func TestCommands(t *testing.T) {
	hub := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}})
	east := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}, ServiceCIDR: "10.97.0.0/16"})
	before := [2]map[string]bool{mustInventory(t, hub), mustInventory(t, east)}
	broker, member := "--broker-kubeconfig="+hub.Kubeconfig(), "--kubeconfig="+east.Kubeconfig()

	want(t, exitOK,
		[]string{"customresourcedefinition.apiextensions.k8s.io/members.broker.clusterset-dns.io created (client dry run)"},
		"broker", "init", broker, "--dry-run")
	for _, verb := range []string{"export", "unexport"} {
		want(t, exitError, []string{`error: ` + verb + ` db: this cluster has no CRD ServiceExport: run "clusterset join" first, which installs it`},
			verb, "db", member, "-n", "default")
	}
	want(t, exitError, []string{"error: leave: this cluster is not a member of a clusterset"}, "leave", member, "--force")
	want(t, exitError, []string{`run "clusterset broker init" first`}, "join", broker, member, "--cluster-id=east", "--components=none")
	want(t, exitOK, []string{"The broker is ready.", "clusterrole.rbac.authorization.k8s.io/clusterset-member created"},
		"broker", "init", broker)
	want(t, exitOK, []string{"broker: member.broker.clusterset-dns.io/east created (server dry run)"},
		"join", broker, member, "--cluster-id=east", "--components=none", "--dry-run=server")
	printed := want(t, exitOK, nil, "join", broker, member, "--cluster-id=east", "--components=controller,dns", "--image=a",
		"--dry-run", "-o", "yaml")
	list := ""
	for _, o := range read.Parse([]byte(printed)) {
		list += o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName() + "\n"
	}
	golden(t, "join.objects", list)
	want(t, exitOK, []string{"warning: no pod CIDRs found", "warning: the broker has a loopback address",
		"east is a member of clusterset fleet", "\n  4. clusterset status --context clusterset-test\n"},
		"join", broker, member, "--context=clusterset-test", "--cluster-id=east", "--components=none", "--clusterset=fleet")

	var done struct {
		Steps  []write.Step
		Result join.Result
	}
	out := want(t, exitOK, nil, "join", broker, member, "--components=none", "-o", "json")
	if err := json.Unmarshal([]byte(out), &done); err != nil || done.Result.ClusterID != "east" ||
		done.Steps[0].Action != write.Unchanged {
		t.Errorf("join -o json: %+v, error %v, want nothing changed", done, err)
	}
	want(t, exitOK, []string{"clusterproperty.about.k8s.io/clusterset.k8s.io\n"}, "join", broker, member,
		"--components=none", "-o", "name")
	want(t, exitProblems, []string{"Clusterset:   fleet", "east (this)",
		"problem: no leader: no controller holds Lease clusterset-system/clusterset-controller"}, "status", member)
	const isBroker = "this is the broker of clusterset fleet, and not a member: "
	want(t, exitProblems, []string{"problem: " + isBroker}, "status", "--kubeconfig="+hub.Kubeconfig())
	want(t, exitError, []string{"error: " + isBroker}, "explain", "db.shop", "--kubeconfig="+hub.Kubeconfig(), "--timeout=1m")
	want(t, exitOK, []string{"__start_clusterset"}, "completion", "bash")
	completes(t, "east", "broker", "remove", broker, "")

	if err := east.ApplyYAML(t.Context(), []byte(shop)); err != nil {
		t.Fatal(err)
	}
	t.Run("rights", func(t *testing.T) { rights(t, hub, east, broker) })
	t.Run("export", func(t *testing.T) {
		exports(t, east, "--kubeconfig="+bound(t, east, "exporter", "export/export", "clusterset-export"), member)
	})
	dryRunsPredict(t, member)
	t.Run("gather", func(t *testing.T) { gathers(t, hub, east, member, broker) })
	t.Run("watch", func(t *testing.T) { watches(t, member) })
	noExportWhileLeaving(t, east, member)
	t.Run("dns", func(t *testing.T) { dnsCommands(t, east, member) })
	want(t, exitError, []string{`error: uninstall: this cluster is a member of clusterset "fleet": run "clusterset leave" first`}, "uninstall", member)
	want(t, exitError, []string{"error: uninstall: the broker has members (1, such as east): "}, "broker", "uninstall",
		broker)

	want(t, exitOK, []string{"broker: member.broker.clusterset-dns.io/east deleted (client dry run)"}, "leave", broker,
		member, "--dry-run=client")
	// This broker has no kube-controller-manager, so the test empties its namespace.
	hub.EndNamespacesT(t)
	want(t, exitOK, []string{"broker: member.broker.clusterset-dns.io/east deleted",
		"This cluster is no longer a member.", "zone: clusterset uninstall\n"}, "leave", broker, member)
	want(t, exitError, []string{"error: leave: this cluster is not a member of a clusterset"}, "leave", broker, member)
	left, err := hub.Dynamic().Resource(namespaces).Get(t.Context(), done.Result.Namespace, metav1.GetOptions{})
	if err != nil || left.GetAnnotations()["clusterset-dns.io/removed"] == "" {
		t.Errorf("broker namespace %v, %v; want it with the mark", left, err)
	}
	want(t, exitProblems, []string{"Clusterset:   not a member", "problem: this cluster is not a member"}, "status", member)
	want(t, exitOK, []string{"deleted"}, "broker", "remove", "east", broker)
	want(t, exitError, []string{`error: remove: member "east" does not exist, and the broker has no other members`}, "broker", "remove", "east", broker)
	want(t, exitOK, []string{"db -n shop created",
		"warning: this cluster is not a member of a clusterset: exports take effect when it has joined"},
		"export", "db", member, "-n", "shop")
	t.Run("uninstall", func(t *testing.T) { uninstalls(t, hub, east, member, broker, before) })
}

// gone is nil if err, of a get, means that the object does not exist.
func gone(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return errors.New("it exists")
	}
	return err
}

// exports runs commands as a user who may export and, for the status, as an administrator.
func exports(t *testing.T, east *controlplane.ControlPlane, member, administrator string) {
	if out := completes(t, "db", "export", member, "-n", "shop", ""); strings.Contains(out, "derived") {
		t.Errorf("export offers %q, want no derived Service", out)
	}
	completes(t, "shop", "export", member, "-n", "s")
	want(t, exitOK, []string{"created (client dry run)"}, "export", "db", member, "-n", "shop", "--dry-run=client")
	want(t, exitOK, []string{"created (server dry run)"}, "export", "db", member, "-n", "shop", "--dry-run=server")
	out := want(t, exitError, []string{"error: export dp: namespace shop has no such Service, there is db: want "},
		"export", "dp", member, "-n", "shop")
	if out != "" {
		t.Errorf("export of a missing Service printed %q, want nothing done", out)
	}
	want(t, exitError, []string{"namespace default has no such Service, there is one in namespace shop (-n shop): want "},
		"export", "db", member, "-n", "default")
	want(t, exitOK, []string{"later -n shop created (server dry run)"}, "export", "later", member, "-n", "shop",
		"--wait=false", "--dry-run=server")
	out = want(t, exitOK, []string{"/db -n shop created (server dry run)"}, "export", "-l", "!missing", member, "-n", "shop",
		"--dry-run=server")
	if strings.Contains(out, "derived") {
		t.Errorf("export of selected Services printed %q, want no derived Service", out)
	}
	for text, args := range map[string][]string{
		`error: --selector=a=b: no Service in namespace "shop" matches`:      {"-l", "a=b"},
		`error: --selector=a=b and names of Services: want only one of them`: {"db", "--selector=a=b"},
		`error: --selector=a b: `: {"-l", "a b"},
	} {
		want(t, exitError, []string{text}, append([]string{"export", member, "-n", "shop"}, args...)...)
	}
	want(t, exitOK, []string{"serviceexport.multicluster.x-k8s.io/db -n shop created"}, "export", "db", member, "-n",
		"shop", "--wait=false")
	inVain(t,
		"error: export db: no controller has processed it yet: check that the controller of this cluster runs (clusterset status)",
		"export", "db", member, "-n", "shop")
	reconcile := func(name, valid, reason, ready, why, message string) {
		t.Helper()
		text := strings.NewReplacer("NAME", name, "VALID", valid, "REASON", reason, "READY", ready, "WHY", why, "MESSAGE",
			message).Replace(reconciled)
		if err := east.ApplyYAML(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	reconcile("db", "True", "Valid", "True", "Exported", "")
	want(t, exitOK, []string{"db -n shop unchanged",
		"Each member with a namespace shop now resolves\n  db.shop.svc.clusterset.local\n"}, "export", "db", member, "-n",
		"shop")
	reconcile("ghost", "False", "NoService", "False", "Pending", "There is no Service ghost.")
	want(t, exitError, []string{"error: export ghost: Valid is False, NoService: There is no Service ghost\n"},
		"export", "ghost", member, "-n", "shop")
	reconcile("late", "True", "Valid", "False", "Failed", "The broker rejects the export: no.")
	inVain(t, "error: export late: Ready is False, Failed: The broker rejects the export: no; run \"clusterset status\"\n",
		"export", "late", member, "-n", "shop")
	want(t, exitOK, []string{"db -n shop updated", "The ServiceExports are written.",
		"\n  db.shop.svc.clusterset.local\n"},
		"export", "db", member, "-n", "shop", "--wait=false", "--label=tier=data")
	completes(t, "db", "unexport", member, "-n", "shop", "")
	want(t, exitOK, []string{"dp -n shop unchanged (not found, there is db)"}, "unexport", "dp", member, "-n", "shop")
	want(t, exitProblems, []string{"Exports:      0 of 3 ready",
		"problem: export shop/db is not ready, NotReconciled: no controller has processed it yet\n",
		"problem: export shop/ghost is not ready, NoService: There is no Service ghost\n",
		"problem: export shop/late is not ready, Failed: The broker rejects the export: no\n", "declares no pod CIDRs"},
		"status", administrator)
	want(t, exitOK, []string{"db -n shop deleted", "ghost -n shop deleted"}, "unexport", "db", "ghost", "late", member,
		"-n", "shop")
	want(t, exitOK, []string{"db -n shop unchanged (not found)"}, "unexport", "db", member, "-n", "shop")
	const ruled = `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {namespace: shop, name: db, labels: {app.kubernetes.io/managed-by: controller.clusterset-dns.io}}
`
	if err := east.ApplyYAML(t.Context(), []byte(ruled)); err != nil {
		t.Fatal(err)
	}
	want(t, exitError, []string{"error: unexport db: the rule of namespace shop"}, "unexport", "db", member, "-n", "shop")
	for _, dry := range []string{"client", "server", "none"} {
		want(t, exitOK, []string{"db -n shop updated"}, "export", "db", member, "-n", "shop", "--wait=false",
			"--dry-run="+dry)
	}
	want(t, exitOK, []string{"db -n shop deleted"}, "unexport", "db", member, "-n", "shop", "--wait=false")
	for _, verb := range []string{"export", "unexport"} {
		want(t, exitError, []string{"error: " + verb + ` db: namespace "nope" does not exist: want the namespace of the Service (-n)`}, verb, "db", member, "-n", "nope")
	}
}

// dryRunsPredict goes from each set of flags to each other set; both dry runs predict what the real run does.
func dryRunsPredict(t *testing.T, member string) {
	given := []string{"", "--label=tier=data", "--label=tier=web", "--annotation=note=x", "--use-clusterset-ip=true",
		"--use-clusterset-ip=false"}
	var path []string
	for i, from := range given {
		for _, to := range given[i+1:] {
			path = append(path, from, to)
		}
	}
	last := "none yet"
	for _, flag := range append(path, "", "") {
		action := "updated"
		switch last {
		case "none yet":
			action = "created"
		case flag:
			action = "unchanged"
		}
		for _, how := range []string{"--dry-run=client", "--dry-run=server", "--wait=false"} {
			args := []string{"export", "db", member, "-n", "shop", how}
			if flag != "" {
				args = append(args, flag)
			}
			want(t, exitOK, []string{"db -n shop " + action}, args...)
		}
		last = flag
	}
	want(t, exitOK, nil, "unexport", "db", member, "-n", "shop")
}

// noExportWhileLeaving: while the cluster leaves, export is an error and writes nothing.
func noExportWhileLeaving(t *testing.T, east *controlplane.ControlPlane, member string) {
	mark := func(value string) {
		t.Helper()
		patch := []byte(`{"metadata":{"annotations":{"clusterset-dns.io/leaving":` + value + `}}}`)
		_, err := east.Dynamic().Resource(v1beta1.Resource).Patch(t.Context(), "clusterset.k8s.io", types.MergePatchType,
			patch, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	mark(`"true"`)
	out := want(t, exitError, []string{`error: this cluster is leaving the clusterset: run "clusterset join" to stay`}, "export", "db", member, "-n", "shop")
	if out != "" {
		t.Errorf("export while leaving printed %q, want nothing done", out)
	}
	mark("null")
}
