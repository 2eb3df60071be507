package wiring

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write golden files anew")

// load reads a manifest of testdata.
func load(t *testing.T, manifest string) Objects {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", manifest))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

func parse(t *testing.T, text string) Objects {
	t.Helper()
	var o Objects
	for document := range strings.SplitSeq(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), u); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		into := func(v any) {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, v); err != nil {
				t.Fatal(err)
			}
		}
		switch u.GetKind() {
		case "Service":
			var s corev1.Service
			into(&s)
			s.Spec.ClusterIPs = []string{s.Spec.ClusterIP} // as the API server does
			o.Services = append(o.Services, s)
		case "Deployment":
			o.Deployments = append(o.Deployments, appsv1.Deployment{})
			into(&o.Deployments[len(o.Deployments)-1])
		case "DaemonSet":
			o.DaemonSets = append(o.DaemonSets, appsv1.DaemonSet{})
			into(&o.DaemonSets[len(o.DaemonSets)-1])
		case "ConfigMap":
			o.ConfigMaps = append(o.ConfigMaps, u)
		case "DNS":
			o.OpenShift = u
		default:
			t.Fatalf("kind %q: want one that Objects has", u.GetKind())
		}
	}
	return o
}

// with returns the objects after an edit.
func (o Objects) with(e *Edit) Objects {
	if e == nil {
		return o
	}
	if e.Object().GetKind() == "DNS" {
		o.OpenShift = e.After
		return o
	}
	o.ConfigMaps = slices.DeleteFunc(slices.Clone(o.ConfigMaps),
		func(c *unstructured.Unstructured) bool { return c.GetName() == e.Object().GetName() })
	if e.After != nil {
		o.ConfigMaps = append(o.ConfigMaps, e.After)
	}
	return o
}

// run applies the edits of all resolvers, each with the objects that the one before has left.
func (o Objects) run(w Desired, edit func(Resolver) *Edit) Objects {
	for i := range Find(o, w) {
		o = o.with(edit(Find(o, w)[i]))
	}
	return o
}

func apply(r Resolver) *Edit { return r.Apply }
func undo(r Resolver) *Edit  { return r.Undo }

// same compares the objects that edits change.
func same(a, b Objects) error {
	if x, y := content(a), content(b); !reflect.DeepEqual(x, y) {
		return fmt.Errorf("objects are\n%v\nwant\n%v", x, y)
	}
	return nil
}

// content has the objects that edits change, by name.
func content(o Objects) map[string]any {
	all := map[string]any{}
	for _, c := range o.ConfigMaps {
		content := c.DeepCopy()
		if len(content.GetAnnotations()) == 0 {
			content.SetAnnotations(nil)
		}
		all[c.GetName()] = content.Object
	}
	if o.OpenShift != nil {
		all["dns"] = o.OpenShift.Object
	}
	return all
}

func desired(addresses ...string) Desired {
	w := Desired{Zone: DefaultZone}
	for _, a := range addresses {
		w.Addresses = append(w.Addresses, netip.MustParseAddr(a))
	}
	return w
}

const target = "10.96.0.53"

// TestGolden: for each kind of cluster, the findings and the changes; a second run finds it wired, a new address
// updates it, and undo leaves the objects as they were, octet by octet.
func TestGolden(t *testing.T) {
	manifests, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(manifests) < 8 {
		t.Fatalf("%d manifests, %v: want those of testdata", len(manifests), err)
	}
	for _, manifest := range manifests {
		t.Run(strings.TrimSuffix(filepath.Base(manifest), ".yaml"), func(t *testing.T) {
			before, w := load(t, filepath.Base(manifest)), desired(target)
			w.InProcess = strings.HasSuffix(manifest, "ours.yaml")
			golden(t, strings.TrimSuffix(manifest, ".yaml")+".golden", describe(Find(before, w)))

			after := before.run(w, apply)
			for _, r := range Find(after, w) {
				if r.State != Wired && r.State != Manual || r.Apply != nil {
					t.Errorf("after apply: %s is %s, with edit %v: want it wired, and nothing to do", r.Kind, r.State, r.Apply)
				}
			}
			if err := same(after.run(w, undo), before); err != nil {
				t.Errorf("after undo: %v", err)
			}
			moved := moveTo(t, before, after, w)
			if err := same(moved.run(w, undo), before); err != nil {
				t.Errorf("after an update and undo: %v", err)
			}
			if left := moved.run(desired(), undo); same(left, before) != nil {
				t.Error("undo without the address of the DNS server leaves something")
			}
		})
	}
}

// moveTo gives the DNS server other addresses: what has our edit is outdated until it has them.
func moveTo(t *testing.T, before, after Objects, w Desired) (moved Objects) {
	t.Helper()
	to := desired("10.96.0.54", "fd00::54")
	first := Find(before, w)
	for i, r := range Find(after, to) {
		if first[i].Apply != nil && (r.State != Outdated || (r.Route == RouteElsewhere) == r.InProcess || r.Apply == nil) {
			t.Errorf("after a move: %s is %s, with route %s and edit %v: want it outdated, elsewhere if it forwards, and an edit", r.Kind, r.State, r.Route, r.Apply)
		}
	}
	moved = after.run(to, apply)
	for i, r := range Find(moved, to) {
		if first[i].Apply != nil && (r.State != Wired || r.Apply != nil) {
			t.Errorf("after an update: %s is %s, with edit %v: want it wired, and nothing to do", r.Kind, r.State, r.Apply)
		}
	}
	original := content(before)
	for name, object := range content(moved) {
		text := fmt.Sprint(object)
		if !reflect.DeepEqual(object, original[name]) && (!strings.Contains(text, "10.96.0.54") ||
			strings.Contains(text, target)) {
			t.Errorf("after an update %s is\n%s\nwant 10.96.0.54 in it, not %s", name, text, target)
		}
	}
	return moved
}

func describe(all []Resolver) string {
	var b bytes.Buffer
	for _, r := range all {
		text, err := yaml.Marshal(r)
		if err != nil {
			return err.Error()
		}
		b.Write(text)
		if r.Apply != nil {
			b.WriteString(r.Apply.Diff())
		}
		b.WriteString("\n")
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(content) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, content)
	}
}

// corefile returns a kubeadm cluster with this Corefile.
func withCorefile(t *testing.T, text string) Objects {
	t.Helper()
	o := load(t, "kubeadm.yaml")
	c := o.configMap("coredns").DeepCopy()
	if err := unstructured.SetNestedField(c.Object, text, "data", "Corefile"); err != nil {
		t.Fatal(err)
	}
	return o.with(&Edit{After: c})
}

const standard = ".:53 {\n    kubernetes cluster.local\n    forward . /etc/resolv.conf\n    reload\n}\n"

// TestCorefiles: the parts left alone, and the block for unusual server blocks.
func TestCorefiles(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		addresses  []string
		state      State
		want       string // in the reason, evidence, warnings, paste or new text
		route      Route  // "": that of most with the state
	}{
		{name: "usual", text: standard, state: Missing, want: "clusterset.local:53 {\n    errors\n    cache {"},
		{name: "default port", text: ". {\n kubernetes\n}", state: Missing, want: "clusterset.local {\n"},
		{name: "two ports and TLS", text: ".:53 dns://.:5353 tls://.:853 {\n kubernetes\n}", state: Missing,
			want: "clusterset.local:53 clusterset.local:5353 {\n    errors\n    cache"},
		{name: "bind", text: ".:53 {\n bind 10.0.0.1 fd00::1\n forward . 1.1.1.1\n}", state: Missing,
			want: "errors\n    bind 10.0.0.1 fd00::1\n    cache"},
		{name: "two binds", text: ".:53 {\n bind 10.0.0.1\n}\n.:53 {\n bind 10.0.0.2\n}", state: Missing,
			want: "}\nclusterset.local:53 {\n    errors\n    bind 10.0.0.2"},
		{name: "no root zone", text: "cluster.local:1053 {\n kubernetes\n}\nexample.org:53 {\n}", state: Missing,
			want: "clusterset.local:1053 {"},
		{name: "IPv6", text: standard, addresses: []string{"fd00::53"}, state: Missing, want: "forward . fd00::53 {"},
		{name: "dual-stack", text: standard, addresses: []string{target, "fd00::53"}, state: Missing,
			want: "forward . 10.96.0.53 fd00::53 {"},
		{name: "snippet", text: "(log) {\n reload\n}\n" + standard, state: Missing, want: "clusterset.local:53 {"},
		{name: "itself", text: standard, addresses: []string{"10.96.0.10"}, state: Taken,
			want: "10.96.0.10 is the address of the DNS server itself", route: RouteUnknown},
		{name: "by hand, the same", text: standard + "Clusterset.Local.:53 {\n forward . 10.96.0.53:53\n}\n", state: Wired,
			want: "forwards the zone to 10.96.0.53:53 (line 7)"},
		{name: "by hand, another", text: standard + "clusterset.local:53 {\n forward . 192.0.2.1\n}\n", state: Taken,
			want: "forwards the zone to 192.0.2.1 (line 7)"},
		{name: "by hand, in the root zone", text: ".:53 {\n forward clusterset.local 192.0.2.1\n}\n", state: Taken,
			want: "(line 2)"},
		{name: "a file", text: standard + "clusterset.local:53 {\n file db.clusterset\n}\n", state: Taken,
			want: "there is a server block for the zone already (line 6)"},
		{name: "multicluster",
			text: ".:53 {\n kubernetes cluster.local clusterset.local {\n  multicluster clusterset.local\n }\n}", state: Taken,
			want: "the plugin kubernetes serves the zone"},
		{name: "in process", text: ".:53 {\n clusterset clusterset.local\n kubernetes\n}", state: Wired,
			want: "serves the zone in this process (line 2)"},
		{name: "in process, own block", text: standard + "clusterset.local:53 {\n clusterset\n}", state: Wired,
			want: "serves the zone in this process"},
		{name: "a zone of the same end", text: standard + "myclusterset.local:53 {\n forward . 192.0.2.1\n}\n",
			state: Missing, want: "clusterset.local:53 {"},
		{name: "variable", text: "{$ZONE}:53 {\n kubernetes\n}", state: Manual, want: `line 1: "{$ZONE}:53": want a zone, not a variable of the Pod`},
		{name: "no braces", text: ".:53\nforward . 1.1.1.1", state: Manual,
			want: "line 1: \".:53\": want a server block or an import"},
		{name: "not closed", text: ".:53 {\n kubernetes {\n}\n", state: Manual, want: "want } at the end of the block"},
		{name: "closed twice", text: standard + "}\n", state: Manual, want: `"}": want a directive`},
		{name: "on one line", text: ".:53 { forward . 1.1.1.1 }", state: Manual, want: "want a directive"},
		{name: "byte order mark", text: "\ufeff" + standard, state: Manual, want: "byte order mark"},
		{name: "only a zone", text: "example.org:53 {\n file db\n}", state: Manual,
			want: "has no server block for the root zone", route: RouteNone},
		{name: "half a mark", text: strings.TrimSuffix(markedBlock("x\n"), endMark) + standard, state: Manual,
			want: "without the line"},
		{name: "the other half", text: standard + endMark, state: Manual, want: "without the line that begins the block"},
		{name: "import that is not known", text: standard + "import /zones/*\n", state: Missing,
			want: "its Corefile imports /zones/*, which is not in a ConfigMap", route: RouteUnknown},
		{name: "a snippet that may have it", text: "(sets) {\n forward clusterset.local 192.0.2.1\n}\n" + standard,
			state: Missing, want: "(line 1)", route: RouteUnknown},
		{name: "a file in a block", text: ".:53 {\n kubernetes\n import /zones/*\n}", state: Missing,
			want: "what line 3 imports may have the zone", route: RouteUnknown},
		{name: "the zone above", text: standard + "local:53 {\n forward . 192.0.2.1\n}\n", state: Missing,
			want: "the server block for local has the zone, too (line 6)", route: RouteUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.addresses == nil {
				tt.addresses = []string{target}
			}
			r := Find(withCorefile(t, tt.text), desired(tt.addresses...))[0]
			all := r.Reason + strings.Join(r.Evidence, "\n") + strings.Join(r.Warnings, "\n") + r.Paste
			if r.Apply != nil {
				all += r.Apply.New
			}
			if r.State != tt.state || !strings.Contains(all, tt.want) {
				t.Errorf("Find(%q) = %s\n%s\nwant %s with %q", tt.text, r.State, all, tt.state, tt.want)
			}
			if (r.Apply != nil) != (tt.state == Missing) || (r.Paste != "") != (tt.state == Manual) {
				t.Errorf("state %s has edit %v and paste %q", r.State, r.Apply, r.Paste)
			}
			route := map[State]Route{Missing: RouteNone, Wired: RouteWanted, Taken: RouteOther, Manual: RouteUnknown}[tt.state]
			if inProcess := strings.HasPrefix(tt.name, "in process"); r.Route != cmp.Or(tt.route, route) ||
				r.InProcess != inProcess {
				t.Errorf("route %s, in process %t; want %s and %t", r.Route, r.InProcess, cmp.Or(tt.route, route), inProcess)
			}
		})
	}
}

// TestObstacles: an edit that would be rejected or reverted is not made; what to do instead is printed.
func TestObstacles(t *testing.T) {
	for _, tt := range []struct {
		name  string
		merge func(c *unstructured.Unstructured)
		want  string
	}{
		{"immutable", func(c *unstructured.Unstructured) { c.Object["immutable"] = true }, "ConfigMap coredns is immutable"},
		{"addon manager", func(c *unstructured.Unstructured) {
			c.SetLabels(map[string]string{"addonmanager.kubernetes.io/mode": "Reconcile"})
		}, "managed by the addon manager of the cluster"},
		{"Argo CD", func(c *unstructured.Unstructured) {
			c.SetAnnotations(map[string]string{"argocd.argoproj.io/tracking-id": "x"})
		}, "managed by Argo CD"},
		{"owner", func(c *unstructured.Unstructured) {
			c.SetOwnerReferences([]metav1.OwnerReference{{Kind: "DNSOperator", Name: "main"}})
		}, "managed by DNSOperator main"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := load(t, "kubeadm.yaml")
			tt.merge(o.ConfigMaps[0])
			r := Find(o, desired(target))[0]
			if r.State != Manual || r.Apply != nil || !strings.Contains(r.Reason, tt.want) ||
				!strings.Contains(r.Paste, "forward . 10.96.0.53") {
				t.Errorf("Find = %+v, want %s with %q and the block to paste", r, Manual, tt.want)
			}
		})
	}
}

// TestUpdater: the EKS add-on may write the Corefile again; there is a warning.
func TestUpdater(t *testing.T) {
	o := load(t, "eks.yaml")
	o.ConfigMaps[0].SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "eks", FieldsV1: metav1.NewFieldsV1(`{"f:data":{".":{},"f:Corefile":{}}}`),
	}})
	r := Find(o, desired(target))[0]
	if r.Apply == nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0],
		"the EKS add-on also writes ConfigMap coredns, key Corefile") {
		t.Errorf("Find = %+v, want an edit and a warning", r)
	}
}

// TestEditedSince: what somebody else has changed since stays.
func TestEditedSince(t *testing.T) {
	w := desired(target)
	wired := withCorefile(t, standard).run(w, apply)
	text := func(o Objects) string { return place{configMap: o.configMap("coredns"), key: "Corefile"}.text() }

	others := withCorefile(t, "# First.\n"+strings.Replace(text(wired), "reload", "reload 10s", 1))
	if got, want := text(others.run(w, undo)), "# First.\n"+strings.Replace(standard, "reload", "reload 10s",
		1); got != want {
		t.Errorf("after undo the Corefile is %q, want %q", got, want)
	}
	r := Find(withCorefile(t, strings.Replace(text(wired), "    errors\n", "    errors\n    log\n", 1)), w)[0]
	if r.State != Wired || !r.Edited || r.Undo != nil ||
		!slices.Contains(r.Evidence, "our block in ConfigMap coredns, key Corefile was changed by hand") {
		t.Errorf("with log in our block: %+v, want it wired and left alone", r)
	}
	r = Find(withCorefile(t, strings.Replace(text(wired), target, "192.0.2.1", 1)), w)[0]
	if r.State != Taken || r.Undo != nil || r.Apply != nil || !strings.Contains(r.Reason, "was changed by hand") {
		t.Errorf("with another address in our block: %+v, want it taken and left alone", r)
	}
	block := strings.TrimSuffix(text(wired), standard)
	commented := strings.ReplaceAll(strings.Replace(block, "clusterset.local:53 {", "# clusterset.local:53 {", 1),
		"\n    ", "\n#    ")
	r = Find(withCorefile(t, strings.Replace(commented, "\n}\n", "\n# }\n", 1)+standard), w)[0]
	if r.State != Taken || r.Route != RouteNone {
		t.Errorf("with our block as comments: %+v, want it taken, and no route", r)
	}
	other := Desired{Zone: "example.org", Addresses: w.Addresses}
	pasted := text(wired) + "example.org:53 {\n forward . " + target + "\n}\n"
	if r = Find(withCorefile(t, pasted), other)[0]; r.Route != RouteOther {
		t.Errorf("with our block for one zone and another zone: %+v, want the route %s", r, RouteOther)
	}
}

// TestStubDomains: JSON has no comments, so what we have written is remembered beside it.
func TestStubDomains(t *testing.T) {
	w := desired(target)
	with := func(o Objects, text string) Objects {
		c := o.configMap("kube-dns").DeepCopy()
		if err := unstructured.SetNestedField(c.Object, text, "data", "stubDomains"); err != nil {
			t.Fatal(err)
		}
		return o.with(&Edit{After: c})
	}
	text := func(o Objects) string { return place{configMap: o.configMap("kube-dns"), key: "stubDomains"}.text() }
	original := load(t, "gke.yaml")
	for _, before := range []string{"", " ", "{}", "{ }\n", `{"a.example":["192.0.2.1"]}`} {
		o := with(original, before)
		wired := o.run(w, apply)
		if r := Find(wired, w)[0]; r.State != Wired {
			t.Errorf("stubDomains %q became %q, which is %s: want %s", before, text(wired), r.State, Wired)
		}
		if got := text(wired.run(w, undo)); got != before {
			t.Errorf("after undo stubDomains is %q, want %q", got, before)
		}
	}
	wired := original.run(w, apply)
	edited := with(wired, strings.Replace(text(wired), "192.0.2.54", "192.0.2.55", 1))
	if got, want := text(edited.run(w, undo)), `{"corp.example":["192.0.2.53"],"lab.example":["192.0.2.55"]}`; got != want {
		t.Errorf("after an edit and undo stubDomains is %s, want %s", got, want)
	}
	r := Find(with(wired, strings.Replace(text(wired), target, "192.0.2.9", 1)), w)[0]
	if r.State != Taken || !r.Edited || r.Apply != nil || r.Undo != nil {
		t.Errorf("with another address in our stub domain: %+v, want it taken and left alone", r)
	}
	r = Find(with(original, `{"clusterset.local":["192.0.2.9"]}`), w)[0]
	if r.State != Taken || r.Apply != nil || r.Undo != nil {
		t.Errorf("with a stub domain that is not managed by clusterset: %+v, want it taken and left alone", r)
	}
	r = Find(with(original, `["a"]`), w)[0]
	if r.State != Manual || !strings.Contains(r.Paste, `{"clusterset.local": ["10.96.0.53"]}`) {
		t.Errorf("with a list: %+v, want the stub domain to paste", r)
	}
	if r = Find(with(wired, `{"corp.example":["192.0.2.53"]}`), w)[0]; r.State != Outdated || r.Route != RouteNone || r.Apply == nil {
		t.Errorf("without our stub domain, and with our annotation: %+v, want an edit, and no route", r)
	}
	other := Desired{Zone: "example.org", Addresses: w.Addresses}
	moved := wired.run(other, apply)
	if got := text(moved); strings.Contains(got, DefaultZone) || !strings.Contains(got, "example.org") {
		t.Errorf("with another zone stubDomains is %s, want that zone alone", got)
	}
	if err := same(moved.run(other, undo), original); err != nil {
		t.Error(err)
	}
}

// TestInProcessBehindNodeLocal: the node cache asks the cluster's DNS server, through the Service with the address that
// it does not listen on.
func TestInProcessBehindNodeLocal(t *testing.T) {
	all := Find(load(t, "nodelocal.yaml"), Desired{Zone: DefaultZone, InProcess: true})
	if len(all) != 2 || all[1].Apply == nil || all[1].Apply.New != `{"clusterset.local": ["10.96.0.11"]}` {
		t.Errorf("Find = %s, want the node cache to ask 10.96.0.11", describe(all))
	}
}

// A node cache that forwards everything to the cluster's DNS server needs no wiring, and hides no fault of that server.
func TestNodeLocalForwardsAll(t *testing.T) {
	text, err := os.ReadFile("testdata/nodelocal-base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]int{
		"__PILLAR__CLUSTER__DNS__": 1, "10.96.0.10": 1, "10.96.0.10 192.0.2.1": 2, "192.0.2.1": 2,
	} {
		o := parse(t, strings.ReplaceAll(string(text), "__PILLAR__UPSTREAM__SERVERS__", to))
		if all := Find(o, desired(target)); len(all) != want {
			t.Errorf("Find with a node cache that forwards to %s:\n%s\nwant %d resolvers", to, describe(all), want)
		}
	}
}

func TestNothingFound(t *testing.T) {
	if all := Find(Objects{}, desired(target)); len(all) != 1 || all[0].Kind != Unknown || all[0].State != Manual ||
		all[0].Paste == "" {
		t.Errorf("Find of nothing = %+v, want one resolver and the block to paste", all)
	}
	o := load(t, "kubeadm.yaml")
	o.Deployments = nil
	if r := Find(o, desired())[0]; r.Kind != Unknown || !strings.Contains(r.Paste, "forward . ADDRESS") {
		t.Errorf("Find without Deployment = %+v, want the block to paste", r)
	}
}

func TestRelease(t *testing.T) {
	for image, want := range map[string]options{
		"registry.k8s.io/coredns/coredns:v1.12.1":                    {true, true},
		"localhost:5000/coredns:1.9.4@sha256:0123456789abcdef":       {true, true},
		"localhost:5000/coredns":                                     {},
		"coredns/coredns:1.9.3":                                      {false, true},
		"602401143452.dkr.ecr.amazonaws.com/coredns:v1.6.6-eksbuild": {},
		"example.org/coredns:latest":                                 {},
		"coredns:99999999999999999999.1.1":                           {},
	} {
		if got := optionsOf(image); got != want {
			t.Errorf("optionsOf(%s) = %+v, want %+v", image, got, want)
		}
	}
}

func TestReachable(t *testing.T) {
	o := load(t, "kubeadm.yaml")
	for _, tt := range []struct{ of, want []string }{
		{[]string{target, "fd00::53"}, []string{target}},
		{[]string{"fd00::53"}, []string{"fd00::53"}},
		{nil, nil},
	} {
		if got, want := o.Reachable(desired(tt.of...).Addresses), desired(tt.want...).Addresses; !slices.Equal(got, want) {
			t.Errorf("Reachable(%v) = %v, want %v", tt.of, got, want)
		}
	}
	if got := (Objects{}).Reachable(desired(target).Addresses); len(got) != 1 {
		t.Errorf("Reachable without a Service = %v, want all", got)
	}
}

// docs/spec/dns-wiring.md 7: deeper zones and exceptions are named.
func TestDiverted(t *testing.T) {
	c, err := parseCorefile("clusterset.local {\n forward . 10.96.0.53 {\n  except svc.clusterset.local other.example\n }\n}\n" +
		"shop.svc.clusterset.local:53 {\n forward . 192.0.2.1\n}\n.:53 {\n forward . 192.0.2.1 {\n  except clusterset.local\n }\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"forward excepts svc.clusterset.local (line 3)",
		"the server block of shop.svc.clusterset.local takes its names (line 6)"}
	if got := c.diverted("clusterset.local"); !slices.Equal(got, want) {
		t.Errorf("diverted = %q, want %q", got, want)
	}
}

// The plugin serves its arguments, or without any the zones of its block.
func TestBound(t *testing.T) {
	for bind, want := range map[string]bool{
		"": false, "bind 10.0.0.1": true, "bind eth0": true, "bind 0.0.0.0": false, "bind 10.0.0.1 127.0.0.1": false,
		"bind ::": false, "bind lo": false,
	} {
		if got := Bound(".:53 {\n" + bind + "\n}"); got != want {
			t.Errorf("Bound with %q = %t, want %t", bind, got, want)
		}
	}
}

func TestServedZones(t *testing.T) {
	for text, want := range map[string]string{
		"clusterset.local:1053 dns://X.lan. {\n clusterset {\n ready strict\n }\n}": "clusterset.local x.lan",
		". {\n clusterset clusterset.local 10.0.0.0/8\n forward . 1.1.1.1\n}":       "clusterset.local 10.0.0.0/8",
		". {\n forward . 1.1.1.1\n}": "",
		"{$ZONE} {\n clusterset\n}":  "",
	} {
		if got := strings.Join(ServedZones(text), " "); got != want {
			t.Errorf("ServedZones(%q) = %q, want %q", text, got, want)
		}
	}
}
