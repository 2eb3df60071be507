package cache

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace writes a file in one step: a Store that runs may read it at any time.
func replace(t *testing.T, name, content string) {
	t.Helper()
	write(t, name+".new", content)
	must(t, os.Rename(name+".new", name))
}

const shopWeb = `
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceImport
metadata: {namespace: shop, name: web, labels: {tier: front}}
spec: {type: ClusterSetIP, ips: [10.9.0.1, "fd00::1"], ports: [{name: http, protocol: TCP, port: 80}]}
`

const shopDB = `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {namespace: shop, name: db}
spec: {type: Headless, ports: [{name: pg, port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  namespace: shop
  name: db-east
  labels: {multicluster.kubernetes.io/service-name: db, multicluster.kubernetes.io/source-cluster: east}
addressType: IPv4
ports: [{name: pg, port: 5432}]
endpoints: [{addresses: [10.1.0.7], hostname: db-0}, {addresses: [10.1.0.8], conditions: {ready: false}}]
`

const bankPay = `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {namespace: bank, name: pay, labels: {tier: front}}
spec: {type: ClusterSetIP, ips: [10.9.0.2], ports: []}
`

const ourCluster = `
apiVersion: about.k8s.io/v1beta1
kind: ClusterProperty
metadata: {name: cluster.clusterset.k8s.io}
spec: {value: east}
---
apiVersion: about.k8s.io/v1beta1
kind: ClusterProperty
metadata: {name: clusterset.k8s.io}
spec: {value: env}
`

func TestManifests(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "web.yaml"), "# nothing\n---\n"+shopWeb+"---\n"+`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}}`)
	write(t, filepath.Join(dir, "db.yml"), shopDB)
	write(t, filepath.Join(dir, "list.json"), `{"apiVersion": "v1", "kind": "List", "items": [
		{"apiVersion": "about.k8s.io/v1alpha1", "kind": "ClusterProperty", "metadata": {"name": "cluster.clusterset.k8s.io"}, "spec": {"value": "east"}},
		{"apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImportList", "items": [
			{"metadata": {"namespace": "bank", "name": "Pay"}, "spec": {"type": "ClusterSetIP", "ips": ["10.9.0.2"]}, "unknown": 1}]}]}`)
	write(t, filepath.Join(dir, "notes.txt"), ":::")
	write(t, filepath.Join(dir, ".hidden.yaml"), ":::")
	other := filepath.Join(t.TempDir(), "one")
	write(t, other, strings.Replace(shopWeb, "namespace: shop, ", "", 1))
	r := start(t, Config{Manifests: []string{dir, other}})
	st := r.awaitNames(t, "pay.bank web.default db.shop web.shop")
	const want = "pay.bank=10.9.0.2, web.default=10.9.0.1,fd00::1, db.shop=10.1.0.7, web.shop=10.9.0.1,fd00::1,"
	if got := show(st); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if st.LocalCluster != "east" || st.Serial == 0 || r.Waiting() != "" || r.Silence("", true) > time.Hour {
		t.Errorf("state %+v, waiting %q, silence %v", st, r.Waiting(), r.Silence("", true))
	}
}

func TestManifestsFilters(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "all.yaml"), strings.Join([]string{shopWeb, shopDB, bankPay,
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: bank, labels: {team: b}}"}, "\n---\n"))
	selector := func(s string) labels.Selector {
		l, err := labels.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"namespaces", Config{Namespaces: []string{"bank", "none"}}, "pay.bank"},
		{"labels", Config{Labels: selector("tier=front")}, "pay.bank web.shop"},
		{"namespace_labels", Config{NamespaceLabels: selector("team in (a)")}, "db.shop web.shop"},
		{"noendpoints", Config{NoEndpoints: true}, "pay.bank web.shop"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Manifests = []string{dir}
			start(t, tt.cfg).awaitNames(t, tt.want)
		})
	}
}

func TestManifestsAreFollowed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	must(t, os.Mkdir(dir, 0o700))
	web, db := filepath.Join(dir, "web.yaml"), filepath.Join(dir, "db.yaml")
	write(t, web, shopWeb)
	r := start(t, Config{Manifests: []string{dir}})
	first := r.awaitNames(t, "web.shop")

	replace(t, db, shopDB)
	second := r.awaitNames(t, "db.shop web.shop")
	if second.Serial < first.Serial {
		t.Errorf("serial %d after %d", second.Serial, first.Serial)
	}
	replace(t, web, shopWeb+"---\n"+shopWeb)
	until.True(t, "told of the object given twice", func() bool { return r.log.count("given twice") == 1 })
	replace(t, web, strings.Replace(shopWeb, "10.9.0.1", "10.9.0.3", 1))
	until.True(t, "the new address", func() bool { return strings.Contains(show(r.State()), "10.9.0.3") })
	if err := os.Remove(db); err != nil {
		t.Fatal(err)
	}
	r.awaitNames(t, "web.shop")
	must(t, os.Rename(dir, dir+".gone")) // In one step: an empty folder is valid.
	until.True(t, "told of the folder that is gone", func() bool {
		return r.log.count("the last state stays: manifests: stat "+dir+": ") == 1
	})
	if got := names(r.State()); got != "web.shop" {
		t.Errorf("got %q, want the last good state", got)
	}
}

// A ConfigMap volume is a link to a link to a folder, which the kubelet changes.
func TestManifestsFollowAConfigMap(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"..1": shopWeb,
		"..2": strings.Replace(shopWeb, "10.9.0.1", "10.9.0.3", 1)} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "web.yaml"), content)
	}
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("..1", "..data")
	link(filepath.Join("..data", "web.yaml"), "web.yaml")
	r := start(t, Config{Manifests: []string{dir}})
	r.awaitNames(t, "web.shop")
	link("..2", "..new")
	if err := os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	until.True(t, "the new address", func() bool { return strings.Contains(show(r.State()), "10.9.0.3") })
}

func TestManifestsRefused(t *testing.T) {
	tests := []struct{ name, content, want string }{
		{"no YAML", "a: b: c", "a.yaml: document 1"},
		{"no object", "- 1", "want an object"},
		{"no kind", "metadata: {name: x}", "want an object with apiVersion and kind"},
		{"no name", "apiVersion: v1\nkind: Namespace", "want a Namespace with a name"},
		{"another shape", shopDB +
			"---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: x}\nendpoints: 1",
			"a.yaml: document 3: want a EndpointSlice"},
		{"twice in two versions and cases", shopWeb + "---\n" + strings.NewReplacer("v1alpha1", "v1beta1", "web",
			"WEB").Replace(shopWeb), "ServiceImport shop/web is given twice, also in"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "a.yaml")
			write(t, file, tt.content)
			_, err := New(Config{Manifests: []string{file}})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), file) {
				t.Errorf("got %v, want %q and the file's name", err, tt.want)
			}
		})
	}
}

func TestManifestsRejectedObjectsAreTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	write(t, file, strings.Replace(shopDB, "10.1.0.7", "127.0.0.1", 1)+"---\n"+shopWeb)
	r := start(t, Config{Manifests: []string{file}, Index: index.Options{ClusterNames: true}})
	r.awaitNames(t, "web.shop")
	if got := r.Stats().Rejected[Rejected{EndpointSlice, BadAddress}]; got != 1 {
		t.Errorf("counted %d, want 1", got)
	}
	if got := r.log.count(`EndpointSlice shop/db-east: address "127.0.0.1"`); got != 1 {
		t.Errorf("told %d times, want 1", got)
	}
}

// age makes a file older, so that another write has another time.
func age(t *testing.T, name string, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	must(t, os.Chtimes(name, at, at))
}

// Unchanged files are not read, and cost next to nothing.
func TestManifestsThatDoNotChangeAreNotRead(t *testing.T) {
	for name, by := range map[string]time.Duration{"old": time.Hour, "from the future": -time.Hour} {
		file := filepath.Join(t.TempDir(), "web.yaml")
		write(t, file, shopWeb)
		age(t, file, by)
		_, first, err := readManifests([]string{file})
		must(t, err)
		second, err := statFiles([]string{file})
		must(t, err)
		if first.changed(second) {
			t.Errorf("%s: changed without a write", name)
		}
		write(t, file, shopDB)
		third, err := statFiles([]string{file})
		must(t, err)
		if !second.changed(third) {
			t.Errorf("%s: not changed after a write", name)
		}
	}
}

func TestManifestsThatAreBrokenAreReadOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yaml")
	write(t, file, shopWeb)
	age(t, file, 2*time.Hour)
	log := &journal{t: t}
	s, err := New(Config{Manifests: []string{file}, Log: log})
	must(t, err)
	s.files.apply(s.files.latest)
	s.publisher.round()
	w := &s.files
	w.check()
	write(t, file, "x")
	age(t, file, time.Hour)
	w.check()
	broken := w.broken
	w.check()
	if w.broken == nil || w.broken != broken { //nolint:errorlint // the very error of one reading is compared
		t.Errorf("read again: %v after %v", w.broken, broken)
	}
	if log.count("the last state stays") != 1 || names(s.State()) != "web.shop" {
		t.Errorf("serving %q, log %q", names(s.State()), log.lines)
	}
	write(t, file, shopDB)
	w.check()
	if s.publisher.round(); names(s.State()) != "db.shop" || log.count("valid again") != 1 {
		t.Errorf("serving %q, log %q", names(s.State()), log.lines)
	}
}

// Whoever mends the rights of a file does not touch its time.
func TestManifestsThatCannotBeReadAreTriedAgain(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	must(t, os.Mkdir(file, 0o700)) // It can be looked at and not be read, even by root.
	info, err := os.Stat(file)
	must(t, err)
	at := stamps{file: {info, true}}
	if _, err := at.read(); err == nil {
		t.Fatal("no error")
	}
	if !at.changed(stamps{file: {info, true}}) {
		t.Error("not tried again")
	}
}
