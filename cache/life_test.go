package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// twoNamespaces are those that these tests write to.
const twoNamespaces = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: a}}
---
apiVersion: v1
kind: Namespace
metadata: {name: bank, labels: {team: b}}
`

// Shared by several tests, once one of them has started it.
var (
	theControlPlane *controlplane.ControlPlane
	another         string // the folder of anotherCluster
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := os.RemoveAll(another); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if theControlPlane != nil {
		if err := theControlPlane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// shared returns a control plane with two empty namespaces. A test may change their contents, definitions and
// ClusterProperties, and stop, kill and freeze the API server.
func shared(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	if theControlPlane == nil {
		var err error
		theControlPlane, err = controlplane.Start(t.Context(), controlplane.Options{})
		must(t, err)
	}
	cp := theControlPlane
	apply(t, cp, twoNamespaces)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = cp.Thaw() // It is not frozen, unless the test failed.
		properties := schema.GroupVersionResource{Group: "about.k8s.io", Version: "v1beta1", Resource: "clusterproperties"}
		for _, err := range []error{
			cp.StartAPIServer(ctx), cp.DeleteYAML(ctx, []byte(twoNamespaces)),
			cp.InstallCRDs(ctx, controlplane.DefaultCRDs()...),
			cp.Dynamic().Resource(properties).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		} {
			if err != nil {
				t.Errorf("clean up: %v", err)
			}
		}
	})
	return cp
}

// anotherCluster returns what etcd holds in another cluster, with the import pay.bank.
func anotherCluster(t *testing.T) (saved string) {
	t.Helper()
	if another == "" {
		cp, err := controlplane.Start(t.Context(), controlplane.Options{})
		must(t, err)
		defer func() { must(t, cp.Stop()) }()
		apply(t, cp, twoNamespaces, bankPay)
		saved, err := cp.SaveEtcd(t.Context())
		must(t, err)
		another, err = os.MkdirTemp("", "clusterset-another-")
		must(t, err)
		must(t, os.CopyFS(another, os.DirFS(saved)))
	}
	return another
}

func apply(t *testing.T, cp *controlplane.ControlPlane, manifests ...string) {
	t.Helper()
	for _, m := range manifests {
		if err := cp.ApplyYAML(t.Context(), []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
}

func remove(t *testing.T, cp *controlplane.ControlPlane, manifests ...string) {
	t.Helper()
	for _, m := range manifests {
		if err := cp.DeleteYAML(t.Context(), []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// user is the access of someone who may do what rules, a list in YAML's flow style, say in namespace, or everywhere.
func user(t *testing.T, cp *controlplane.ControlPlane, name, namespace, rules string) *rest.Config {
	t.Helper()
	grant(t, cp, name, namespace, rules)
	file, err := cp.UserKubeconfig(name)
	must(t, err)
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	must(t, err)
	cfg.QPS = -1
	return cfg
}

func grant(t *testing.T, cp *controlplane.ControlPlane, name, namespace, rules string) {
	t.Helper()
	kind, where := "ClusterRole", ""
	if namespace != "" {
		kind, where = "Role", ", namespace: "+namespace
	}
	apply(t, cp, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: %[1]s
metadata: {name: %[2]s%[3]s}
rules: %[4]s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: %[1]sBinding
metadata: {name: %[2]s%[3]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %[1]s, name: %[2]s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[2]s}]
`, kind, name, where, rules))
}

// bindTo gives a user what Role {role} in namespace shop allows.
func bindTo(user string) string {
	return `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: ` + user + `, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: "{role}"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + user + `}]
`
}

const (
	mayImports    = `{apiGroups: [multicluster.x-k8s.io], resources: [serviceimports], verbs: [list, watch]}`
	maySlices     = `{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}`
	mayProperties = `{apiGroups: [about.k8s.io], resources: [clusterproperties], verbs: [list, watch]}`
)

// These share one control plane, and each removes what the next one does not want.
func TestLifeOfObjects(t *testing.T) {
	cp := shared(t)
	apply(t, cp, bankPay)

	t.Run("changes", func(t *testing.T) {
		observed := make(chan time.Duration, 100)
		r := start(t, Config{REST: cp.Config(), Latency: func(sinceWritten, sinceReceived time.Duration) {
			// The API server has the second of the write alone.
			if observed <- sinceReceived; sinceReceived <= 0 || sinceReceived > sinceWritten+time.Second {
				t.Errorf("published %s after it was received, %s after it was written", sinceReceived, sinceWritten)
			}
		}})
		r.awaitNames(t, "pay.bank")
		if len(observed) != 0 {
			t.Error("the first list was observed as a change")
		}
		apply(t, cp, shopWeb, shopDB)
		st := r.awaitNames(t, "pay.bank db.shop web.shop")
		const want = "pay.bank=10.9.0.2, db.shop=10.1.0.7, web.shop=10.9.0.1,fd00::1,"
		if got := show(st); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		until.True(t, "latency observed", func() bool { return len(observed) >= 2 })

		// Relabelled to another service, which is served without an address of its own at first.
		apply(t, cp, strings.Replace(bankPay, "ips: [10.9.0.2], ", "", 1),
			strings.NewReplacer("name: db}", "name: db2}", "name: db,", "name: db2,").Replace(shopDB))
		until.True(t, "db2.shop has taken the slice", func() bool {
			return strings.HasPrefix(show(r.State()), "pay.bank= db2.shop=10.1.0.7, web.shop=")
		})
		// The type flips: without a ready endpoint, a headless service has no name.
		apply(t, cp, strings.NewReplacer("ClusterSetIP", "Headless", `ips: [10.9.0.1, "fd00::1"], `, "").Replace(shopWeb))
		r.awaitNames(t, "pay.bank db2.shop")
		apply(t, cp, bankPay, shopWeb)
		r.awaitNames(t, "pay.bank db2.shop web.shop")

		before := r.settled(t).Serial
		apply(t, cp, ourCluster)
		until.True(t, "our cluster is known", func() bool {
			return r.State().LocalCluster == "east" && r.State().ClusterSet == "env"
		})
		until.True(t, "the serial moved for it", func() bool { return r.State().Serial > before })
		remove(t, cp, ourCluster, shopWeb, shopDB, strings.NewReplacer("name: db}",
			"name: db2}").Replace(strings.Split(shopDB, "---")[0]))
		r.awaitNames(t, "pay.bank")
		until.True(t, "our cluster is forgotten", func() bool { return r.State().LocalCluster == "" })
	})

	t.Run("namespace labels", func(t *testing.T) {
		l, err := labels.Parse("team=a")
		must(t, err)
		r := start(t, Config{REST: cp.Config(), NamespaceLabels: l})
		r.awaitNames(t, "")
		apply(t, cp, shopWeb)
		r.awaitNames(t, "web.shop")
		apply(t, cp, strings.Replace(twoNamespaces, "team: b", "team: a", 1))
		r.awaitNames(t, "pay.bank web.shop")
		apply(t, cp, strings.Replace(twoNamespaces, "team: a", "team: b", 1))
		r.awaitNames(t, "")
		apply(t, cp, twoNamespaces)
		r.awaitNames(t, "web.shop")
		remove(t, cp, shopWeb)
	})

	t.Run("labels", func(t *testing.T) {
		l, err := labels.Parse("tier=front")
		must(t, err)
		apply(t, cp, shopWeb, shopDB)
		r := start(t, Config{REST: cp.Config(), Labels: l})
		r.awaitNames(t, "pay.bank web.shop")
		apply(t, cp, strings.Replace(shopWeb, "tier: front", "tier: back", 1))
		r.awaitNames(t, "pay.bank")
		remove(t, cp, shopWeb, shopDB)
	})

	t.Run("namespaces with rights in them only", func(t *testing.T) {
		cfg := user(t, cp, "shopper", "shop", "["+mayImports+", "+maySlices+"]")
		apply(t, cp, shopWeb)
		r := start(t, Config{REST: cfg, Namespaces: []string{"shop"}, CheckInterval: 50 * time.Millisecond})
		r.awaitNames(t, "web.shop")
		apply(t, cp, shopDB)
		r.awaitNames(t, "db.shop web.shop")
		r.awaitLogged(t, "ClusterProperty: rights are missing", 1)
		remove(t, cp, shopWeb, shopDB)
		r.awaitNames(t, "")
	})

	t.Run("an address is still to come", func(t *testing.T) {
		late := strings.NewReplacer("Headless", "ClusterSetIP", "name: db}", "name: late}", "name: db,", "name: late,",
			"db-east", "late-east").Replace(shopDB)
		apply(t, cp, late)
		r := start(t, Config{REST: cp.Config()})
		r.awaitNames(t, "pay.bank late.shop")
		if got, want := show(r.State()), "late.shop=10.1.0.7,"; !strings.HasSuffix(got, want) ||
			r.State().Index.Service("late.shop").HasVIP() {
			t.Errorf("got %s, want %s from slices", got, want)
		}
		imports := cp.Dynamic().Resource(schema.GroupVersionResource{
			Group: "multicluster.x-k8s.io", Version: "v1beta1", Resource: "serviceimports"}).Namespace("shop")
		patch := func(data string, subresource ...string) {
			t.Helper()
			_, err := imports.Patch(t.Context(), "late", types.MergePatchType, []byte(data), metav1.PatchOptions{},
				subresource...)
			must(t, err)
		}
		awaitVIP := func(want bool, addresses int) {
			t.Helper()
			until.True(t, "the import", func() bool {
				s := r.State().Index.Service("late.shop")
				vips := s.VIPs(index.V4)
				return s.HasVIP() == want && (!want || vips.Len() == addresses)
			})
		}
		const condition = `{"status": {"conditions": [{"type": "Ready", "status": "%s", "reason": "%s", "message": "",
			"lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`
		patch(fmt.Sprintf(condition, "False", "Pending"), "status")
		awaitVIP(true, 0)
		patch(fmt.Sprintf(condition, "True", "Ready"), "status")
		awaitVIP(false, 0)
		patch(fmt.Sprintf(condition, "False", "Pending"), "status")
		awaitVIP(true, 0)
		patch(`{"spec": {"ips": ["10.9.0.9"]}}`)
		awaitVIP(true, 1)
		remove(t, cp, late)
		r.awaitNames(t, "pay.bank")
	})

	t.Run("rights for one kind are missing", func(t *testing.T) {
		cfg := user(t, cp, "half", "", "["+mayImports+", "+mayProperties+"]")
		r := start(t, Config{REST: cfg})
		// Services without need of slices are served.
		if st := r.awaitNames(t, "pay.bank"); st.Knows("", true) || !st.Knows("bank", false) || st.Knows("bank", true) {
			t.Errorf("complete %t, knows imports %t, slices %t", st.Knows("", true), st.Knows("bank", false),
				st.Knows("bank", true))
		}
		grant(t, cp, "half", "", "["+mayImports+", "+mayProperties+", "+maySlices+"]")
		until.True(t, "complete", func() bool { return r.State().Knows("", true) })
		r.awaitNames(t, "pay.bank")
		r.awaitLogged(t, "EndpointSlice: rights are missing", 1)
	})

	t.Run("rights in one namespace are missing", func(t *testing.T) {
		r := start(t, Config{Namespaces: []string{"bank", "shop"},
			REST: user(t, cp, "banker", "bank", "["+mayImports+", "+maySlices+"]")})
		st := r.awaitNames(t, "pay.bank")
		if st.Knows("", true) || !st.Knows("bank", true) || st.Knows("shop", false) || st.Knows("shop", true) ||
			!st.Knows("none", true) {
			t.Errorf("knows bank %t, shop %t", st.Knows("bank", true), st.Knows("shop", false))
		}
		if r.Silence("bank", true) > time.Hour || r.Silence("shop", false) < time.Hour {
			t.Errorf("bank was silent for %s, shop for %s", r.Silence("bank", true), r.Silence("shop", false))
		}
		grant(t, cp, "shopkeeper", "shop", "["+mayImports+", "+maySlices+"]")
		apply(t, cp, strings.ReplaceAll(bindTo("banker"), "{role}", "shopkeeper"))
		until.True(t, "complete", func() bool { return r.State().Knows("", true) })
	})

	t.Run("topology node", func(t *testing.T) {
		apply(t, cp, shopDB, strings.NewReplacer("db-east", "db-far", "east", "west", "10.1.0.7", "10.2.0.7",
			"source-cluster: ", "source-cluster: ", "labels: {", "labels: {endpointslice.kubernetes.io/for-zone: z2, ").
			Replace(strings.Split(shopDB, "---")[1]))
		r := start(t, Config{REST: cp.Config(), TopologyNode: "n1"})
		st := r.awaitNames(t, "pay.bank db.shop")
		if got := show(st); !strings.Contains(got, "10.2.0.7") {
			t.Errorf("got %s, want the endpoints of all zones", got)
		}
		const node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {topology.kubernetes.io/zone: z1}}"
		apply(t, cp, node)
		defer remove(t, cp, node)
		until.True(t, "only what is for our zone", func() bool { return !strings.Contains(show(r.State()), "10.2.0.7") })
	})

	t.Run("only answers are contact", func(t *testing.T) {
		var broken atomic.Value // the end of paths that get the status
		broken.Store("nothing")
		var status, rejected atomic.Int64
		r := start(t, Config{CheckInterval: 100 * time.Millisecond,
			REST: behind(t, cp, func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, broken.Load().(string)) {
					return false
				}
				q := r.URL.Query()
				// which are those of a server check
				if q.Get("limit") != "1" && q.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchExact) {
					rejected.Add(1)
				}
				return fail(w, int(status.Load()))
			})})
		want := show(r.awaitNames(t, "pay.bank db.shop"))
		for _, code := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests,
			http.StatusInternalServerError} {
			status.Store(int64(code))
			rejected.Store(0)
			broken.Store("/endpointslices")
			began := time.Now()
			r.client.Drop()
			until.True(t, "slices are silent, imports are not", func() bool {
				return rejected.Load() > 0 && r.Silence("", true) > 3*time.Second && r.Silence("shop", true) > 3*time.Second &&
					r.Silence("shop", false) < time.Second
			})
			// Pauses of 250, 500 and 1000 ms or more, and then of seconds; each attempt is two requests at most.
			if n, most := rejected.Load(), 2*(4+int64(time.Since(began).Seconds())); n > most {
				t.Errorf("%d: %d requests in %s, want at most %d", code, n, time.Since(began), most)
			}
			if got := show(r.State()); got != want {
				t.Errorf("%d: got %s, want the state before, %s", code, got, want)
			}
			broken.Store("nothing")
			until.True(t, "slices are back", func() bool { return r.Silence("", true) < time.Second })
		}
		// A watch that is open proves nothing while the credential is rejected.
		status.Store(http.StatusUnauthorized)
		broken.Store("/namespaces/kube-system")
		until.True(t, "imports are silent", func() bool { return r.Silence("", false) > time.Second })
		if got := show(r.State()); got != want {
			t.Errorf("got %s, want the state before, %s", got, want)
		}
		broken.Store("nothing")
		until.True(t, "imports are back", func() bool { return r.Silence("", true) < time.Second })
	})

	t.Run("the kubeconfig changes", func(t *testing.T) {
		var valid atomic.Value // the credential
		valid.Store("Bearer one")
		check := func(w http.ResponseWriter, r *http.Request) bool {
			ok := r.Header.Get("Authorization") == valid.Load()
			r.Header.Del("Authorization")
			return !ok && fail(w, http.StatusUnauthorized)
		}
		first, second := behind(t, cp, check), behind(t, cp, check)
		file := filepath.Join(t.TempDir(), "kubeconfig")
		first.BearerToken = "one"
		write(t, file, first.Host+" one")
		// client-go takes a credential from a kubeconfig only for https.
		r := start(t, Config{REST: first, CheckInterval: 100 * time.Millisecond, Kubeconfig: file,
			ReadREST: func() (*rest.Config, error) {
				b, err := os.ReadFile(file)
				host, token, ok := strings.Cut(string(b), " ")
				if err == nil && !ok {
					err = fmt.Errorf("%q: want an address and a token", b)
				}
				return &rest.Config{Host: host, BearerToken: token}, err
			}})
		r.awaitNames(t, "pay.bank db.shop")

		valid.Store("Bearer two")
		r.client.Drop()
		until.True(t, "silent", func() bool { return r.Silence("", false) > time.Second })
		r.awaitLogged(t, "the credential is rejected", 1)
		replace(t, file, "broken")
		r.awaitLogged(t, "the last valid kubeconfig stays in use", 1)
		replace(t, file, second.Host+" two") // another credential and another address
		until.True(t, "in contact", func() bool { return r.Silence("", true) < time.Second && r.watching() })
		r.awaitLogged(t, "the kubeconfig has changed", 1)
		if got := r.client.Host(); !strings.HasPrefix(got, second.Host) {
			t.Errorf("requests go to %s, want %s", got, second.Host)
		}
		apply(t, cp, shopWeb)
		r.awaitNames(t, "pay.bank db.shop web.shop")
		remove(t, cp, shopWeb)
		r.awaitNames(t, "pay.bank db.shop")
	})
}

// fail answers as an API server does that has nothing but a status.
func fail(w http.ResponseWriter, status int) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": %q, "code": %d}`,
		strings.ReplaceAll(http.StatusText(status), " ", ""), status)
	return true
}

// serialOf is the serial as a number of seconds.
func (st *State) serialOf() int64 { return int64(st.Serial) }

func TestLifeAbsentAtStart(t *testing.T) {
	tier.All(t)
	cp := shared(t)
	apply(t, cp, shopWeb)
	must(t, cp.StopAPIServer())
	r := start(t, Config{REST: cp.Config()})
	until.True(t, "logged", func() bool { return r.log.count("out of reach") > 0 })
	if r.State().Ready || r.Waiting() == "" || r.Silence("", false) < time.Hour {
		t.Errorf("state %+v, waiting %q, silence %v", r.State(), r.Waiting(), r.Silence("", false))
	}
	select {
	case <-r.Synced():
		t.Error("synced")
	default:
	}
	must(t, cp.StartAPIServer(t.Context()))
	r.awaitNames(t, "web.shop")
	<-r.Synced()
	until.True(t, "nothing to wait for", func() bool { return r.Waiting() == "" && r.Silence("", true) < time.Hour })
}

// Older API servers do not stream lists.
func TestLifeWithoutStreamedLists(t *testing.T) {
	tier.All(t)
	cp := controlplane.StartT(t, controlplane.Options{APIServerArgs: []string{"--feature-gates=WatchList=false"}})
	apply(t, cp, twoNamespaces, shopWeb)
	r := start(t, Config{REST: cp.Config()})
	r.awaitNames(t, "web.shop")
	apply(t, cp, shopDB)
	r.awaitNames(t, "db.shop web.shop")
	if got := r.log.count("out of reach"); got != 0 {
		t.Errorf("told %d times that the API server is out of reach", got)
	}
}

// Run ends even while the API server does not answer.
func TestLifeStopsWhileTheServerHangs(t *testing.T) {
	cp := shared(t)
	apply(t, cp, shopWeb)
	must(t, cp.Freeze())
	r := start(t, Config{REST: cp.Config()})
	time.Sleep(100 * time.Millisecond)
	r.stop()
	must(t, cp.Thaw())
	r = start(t, Config{REST: cp.Config()})
	r.awaitNames(t, "web.shop")
	must(t, cp.Freeze())
	r.stop()
	must(t, cp.Thaw())
}

// A list that never ends does not delay the end of Run, and half of it is not shown: neither of the first list nor of
// one that follows an expired watch, after which the old state stays until a list is complete.
func TestLifeStopsDuringAList(t *testing.T) {
	cp := shared(t)
	apply(t, cp, shopWeb)
	t.Run("the first", func(t *testing.T) {
		var l halfLists
		l.on.Store(true)
		r := start(t, Config{REST: behind(t, cp, l.answer)})
		until.True(t, "half a list", func() bool { return l.begun.Load() > 0 })
		if st := r.State(); st.Ready || r.Waiting() == "" {
			t.Errorf("ready %t, waiting %q amid a list", st.Ready, r.Waiting())
		}
		r.stop()
	})
	t.Run("after 410 Gone", func(t *testing.T) {
		var l halfLists
		r := start(t, Config{REST: behind(t, cp, l.answer)})
		r.awaitNames(t, "web.shop")
		relist := func() {
			before := r.settled(t)
			begun := l.begun.Load()
			l.on.Store(true)
			until.True(t, "half a list", func() bool { return l.begun.Load() > begun })
			if l.expired.Load() == 0 {
				t.Error("no watch was answered with 410")
			}
			if st := r.State(); st != before {
				t.Errorf("%s amid a list, want %s as before", names(st), names(before))
			}
		}
		relist()
		apply(t, cp, bankPay) // It has no slice: one could come by its own watch after before is taken.
		remove(t, cp, shopWeb)
		l.on.Store(false) // the list ends in the middle, and the next one is complete
		r.awaitNames(t, "pay.bank")
		until.True(t, "all watches are back", r.watching)
		relist()
		r.stop()
	})
}

// halfLists answer instead of the API server for imports. While they are on, watches expire, and lists do not get
// beyond their first half. Otherwise lists are those of the API server, and watches deliver nothing.
type halfLists struct {
	on             atomic.Bool
	begun, expired atomic.Int64
}

func (l *halfLists) answer(w http.ResponseWriter, r *http.Request) bool {
	q := r.URL.Query()
	watch := q.Get("watch") != ""
	if r.URL.Path != "/apis/multicluster.x-k8s.io/v1beta1/serviceimports" || q.Get("limit") == "1" || !watch &&
		!l.on.Load() {
		return false
	}
	until := func(on bool) {
		_ = http.NewResponseController(w).Flush() // The client may be gone.
		for l.on.Load() != on && r.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if watch {
		until(true)
		fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,`+
			`"message":"too old resource version: 1 (2)"}}`)
		l.expired.Add(1)
		return true
	}
	fmt.Fprint(w, `{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"namespace":"shop","name":"half"},`+
		`"spec":{"type":"ClusterSetIP","ips":["10.96.0.1"]}},`)
	l.begun.Add(1)
	until(false)
	return true
}

// An API server whose memory lags behind etcd is asked for the state of etcd.
func TestLifeListsFromALaggingServer(t *testing.T) {
	cp := shared(t)
	apply(t, cp, shopWeb)
	var lagged atomic.Int64
	rest := behind(t, cp, func(w http.ResponseWriter, r *http.Request) bool {
		if q := r.URL.Query(); q.Get("watch") != "" || q.Get("resourceVersionMatch") == "" {
			return false
		}
		lagged.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGatewayTimeout)
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Timeout", "code": 504,
			"details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}}`)
		return true
	})
	r := start(t, Config{REST: rest})
	r.awaitNames(t, "web.shop")
	if lagged.Load() == 0 {
		t.Error("no list was asked for by its version")
	}
}

func TestLifeKilledAndRestarted(t *testing.T) {
	tier.All(t)
	cp := shared(t)
	apply(t, cp, shopWeb)
	r := start(t, Config{REST: cp.Config(), CheckInterval: 100 * time.Millisecond})
	before := r.awaitNames(t, "web.shop")
	<-r.Synced() // The publish is counted by then.
	publishes := r.Stats().Publishes
	cp.KillAPIServer()
	until.True(t, "logged", func() bool { return r.log.count("out of reach") > 0 })
	must(t, cp.StartAPIServer(t.Context()))
	until.True(t, "all watches are back", r.watching)
	if r.State() != before || r.Stats().Publishes != publishes {
		t.Errorf("published anew without a change: %+v after %+v", r.State(), before)
	}
	if r.Stats().Rollbacks != 0 {
		t.Errorf("%d rollbacks, want 0", r.Stats().Rollbacks)
	}
	apply(t, cp, shopDB)
	r.awaitNames(t, "db.shop web.shop")
	st := r.settled(t)

	must(t, cp.Freeze())
	until.True(t, "no contact for a second", func() bool { return r.Silence("", true) > time.Second })
	if r.State() != st || r.Waiting() != "" {
		t.Errorf("state %+v, waiting %q, want the last state", r.State(), r.Waiting())
	}
	must(t, cp.Thaw())
	until.True(t, "contact again", func() bool { return r.Silence("", true) < time.Second })
	remove(t, cp, shopWeb)
	r.awaitNames(t, "db.shop")
}

func TestLifeOfDefinitions(t *testing.T) {
	tier.All(t)
	cp := shared(t)
	must(t, cp.DeleteCRDs(t.Context(), controlplane.DefaultCRDs()...))
	// However slowly the API server deletes, many are all withheld, and few are not.
	r := start(t, Config{REST: cp.Config(), ConfirmAfter: time.Hour, withholdFor: time.Hour})
	until.True(t, "nothing to wait for", func() bool { return r.Waiting() == "" })
	if r.State().Ready {
		t.Error("ready without the definition of ServiceImport")
	}
	for _, crd := range controlplane.DefaultCRDs() {
		must(t, cp.InstallCRDs(t.Context(), crd))
	}
	apply(t, cp, shopWeb, ourCluster)
	r.awaitNames(t, "web.shop")
	until.True(t, "our cluster is known", func() bool { return r.State().LocalCluster == "east" })

	// The cluster ID stays while the kind is absent.
	must(t, cp.DeleteCRDs(t.Context(), controlplane.DefaultCRDs()[2]))
	r.awaitLogged(t, "ClusterProperty: not installed", 2)
	if got := r.State().LocalCluster; got != "east" {
		t.Errorf("the local cluster is %q without the definition of ClusterProperty, want east", got)
	}
	must(t, cp.InstallCRDs(t.Context(), controlplane.DefaultCRDs()[2]))

	// The API server deletes all objects with the definition. Then others come with a new one.
	must(t, cp.DeleteCRDs(t.Context(), controlplane.MCSCRDs()...))
	r.awaitNames(t, "")
	until.True(t, "logged", func() bool { return r.log.count("ServiceImport: not installed") >= 2 })
	must(t, cp.InstallCRDs(t.Context(), controlplane.MCSCRDs()...))
	apply(t, cp, bankPay)
	r.awaitNames(t, "pay.bank")

	// Many are not lost with the definition, nor when it is back without objects.
	var many strings.Builder
	for i := range 2 * apiserver.WithholdFrom {
		many.WriteString("---" + strings.NewReplacer("name: web", fmt.Sprintf("name: web-%d", i), "10.9.0.1",
			fmt.Sprintf("10.9.1.%d", 1+i)).Replace(shopWeb))
	}
	apply(t, cp, many.String(), shopDB)
	until.True(t, "all imports", func() bool { return r.State().Index.Len() == 2*apiserver.WithholdFrom+2 })
	until.True(t, "an endpoint", func() bool { return strings.Contains(show(r.State()), "10.1.0.7") })
	want := show(r.State())
	told := r.log.count("ServiceImport: not installed")
	must(t, cp.DeleteCRDs(t.Context(), controlplane.MCSCRDs()...))
	until.True(t, "logged", func() bool { return r.log.count("ServiceImport: not installed") > told })
	r.awaitLogged(t, "are gone at once; they are served", 1)
	until.True(t, "all are withheld", func() bool { return r.Stats().Withheld == 2*apiserver.WithholdFrom+2 })
	// Kubernetes deletes what belongs to an import.
	slice := schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	must(t, cp.Dynamic().Resource(slice).Namespace("shop").Delete(t.Context(), "db-east", metav1.DeleteOptions{}))
	until.True(t, "its slice is withheld, too", func() bool {
		r.withheld.mu.Lock()
		defer r.withheld.mu.Unlock()
		return len(r.withheld.orphans) == 1
	})
	if got := show(r.State()); got != want {
		t.Errorf("without the definition: %s, want %s", got, want)
	}
	must(t, cp.InstallCRDs(t.Context(), controlplane.MCSCRDs()...))
	until.True(t, "watching", r.watching)
	apply(t, cp, strings.Replace(many.String(), "10.9.1.1,", "10.9.1.99,", 1))
	until.True(t, "most are back", func() bool { return r.Stats().Withheld == 2 })
	want = strings.Replace(want, "web-0.shop=10.9.1.1,", "web-0.shop=10.9.1.99,", 1)
	until.True(t, "what has changed", func() bool { return show(r.State()) == want })
	db, _, _ := strings.Cut(shopDB, "---")
	apply(t, cp, db)
	until.True(t, "the import is back without its slice", func() bool {
		return !strings.Contains(show(r.State()), "10.1.0.7,")
	})
}

func TestLifeOfVersions(t *testing.T) {
	tier.All(t)
	cp := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{controlplane.Serving(controlplane.MCSCRDs()[0], "v1alpha1")}})
	apply(t, cp, twoNamespaces, shopWeb)
	t.Run("come and go", func(t *testing.T) { testVersions(t, cp) })
	t.Run("closed discovery", func(t *testing.T) { testClosedDiscovery(t, cp) })
	t.Run("a stored version that is gone", func(t *testing.T) { testStoredVersionIsGone(t, cp) })
}

// Each list of ClusterProperties fails where one of them is stored in a version that their definition no longer has.
func testStoredVersionIsGone(t *testing.T, cp *controlplane.ControlPlane) {
	whole := string(controlplane.DefaultCRDs()[2])
	first, last := strings.Index(whole, "  - additionalPrinterColumns"),
		strings.LastIndex(whole, "  - additionalPrinterColumns")
	must(t, cp.InstallCRDs(t.Context(), []byte(strings.NewReplacer("storage: false", "storage: true", "storage: true",
		"storage: false").Replace(whole))))
	apply(t, cp, ourCluster)
	must(t, cp.InstallCRDs(t.Context(), []byte(whole)))
	definitions := cp.Dynamic().Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	_, err := definitions.Patch(t.Context(), "clusterproperties.about.k8s.io", types.MergePatchType, []byte(`{"status": {"storedVersions": ["v1beta1"]}}`),
		metav1.PatchOptions{}, "status")
	must(t, err)
	apply(t, cp, whole[:first]+whole[last:])
	properties := cp.Dynamic().Resource(schema.GroupVersionResource{Group: "about.k8s.io", Version: "v1beta1",
		Resource: "clusterproperties"})
	until.True(t, "the list fails", func() bool {
		_, err := properties.List(t.Context(), metav1.ListOptions{})
		return err != nil && strings.Contains(err.Error(), "request to convert")
	})
	r := start(t, Config{REST: cp.Config()})
	if st := r.awaitNames(t, "web.shop"); !st.Knows("", true) || r.Waiting() != "" {
		t.Errorf("complete %t, waiting %q, want all but properties", st.Knows("", true), r.Waiting())
	}
	r.awaitLogged(t, "ClusterProperty: answers with an error", 1)
}

func testVersions(t *testing.T, cp *controlplane.ControlPlane) {
	r := start(t, Config{REST: cp.Config()})
	r.awaitNames(t, "web.shop")
	at := func(version string) func() bool {
		return func() bool { return r.watchedVersion() == "multicluster.x-k8s.io/"+version }
	}
	until.True(t, "v1alpha1 is watched", at("v1alpha1"))
	must(t, cp.InstallCRDs(t.Context(), controlplane.MCSCRDs()[0]))
	until.True(t, "v1beta1 is watched", at("v1beta1"))
	apply(t, cp, bankPay)
	r.awaitNames(t, "pay.bank web.shop")
	must(t, cp.InstallCRDs(t.Context(), controlplane.Serving(controlplane.MCSCRDs()[0], "v1alpha1")))
	until.True(t, "v1alpha1 is watched again", at("v1alpha1"))
	apply(t, cp, strings.Replace(shopWeb, "10.9.0.1", "10.9.0.3", 1))
	until.True(t, "the new address", func() bool { return strings.Contains(show(r.State()), "10.9.0.3") })
	if got := names(r.State()); got != "pay.bank web.shop" {
		t.Errorf("got %q", got)
	}
	must(t, cp.InstallCRDs(t.Context(), controlplane.Serving(controlplane.MCSCRDs()[0], "v1", "v1beta1", "v1alpha1")))
	until.True(t, "v1 is watched beside others", at("v1"))
	apply(t, cp, strings.Replace(shopWeb, "10.9.0.1", "10.9.0.4", 1))
	until.True(t, "the address by v1", func() bool { return strings.Contains(show(r.State()), "10.9.0.4") })
	must(t, cp.InstallCRDs(t.Context(), controlplane.Serving(controlplane.MCSCRDs()[0], "v1")))
	apply(t, cp, strings.NewReplacer("v1alpha1", "v1", "10.9.0.1", "10.9.0.5").Replace(shopWeb))
	until.True(t, "the address by v1 alone", func() bool { return strings.Contains(show(r.State()), "10.9.0.5") })
	must(t, cp.InstallCRDs(t.Context(), controlplane.Serving(controlplane.MCSCRDs()[0], "v1alpha1")))
	until.True(t, "v1alpha1 is watched without v1", at("v1alpha1"))
	remove(t, cp, strings.Replace(bankPay, "v1beta1", "v1alpha1", 1))
}

func TestLifeRollback(t *testing.T) {
	tier.All(t)
	cp := shared(t)
	apply(t, cp, shopWeb)
	saved, err := cp.SaveEtcd(t.Context())
	must(t, err)
	apply(t, cp, shopDB, bankPay)
	remove(t, cp, shopWeb)
	r := start(t, Config{REST: cp.Config(), CheckInterval: 100 * time.Millisecond})
	before := r.awaitNames(t, "pay.bank db.shop")
	cp.KillAPIServer() // It would wait for its watchers to go.
	must(t, cp.RestoreEtcd(t.Context(), saved))
	restored := time.Now()
	after := r.awaitNames(t, "web.shop")
	outages.Since(t, "F5", restored, time.Minute, "restored state served")
	if after.Stale("", true) || after.Serial < before.Serial {
		t.Errorf("got %+v after %+v", after, before)
	}
	until.True(t, "a rollback is counted and logged", func() bool {
		return r.Stats().Rollbacks > 0 && r.log.count("rolled back") > 0
	})
	apply(t, cp, bankPay)
	r.awaitNames(t, "pay.bank web.shop")
}

func TestLifeAnotherCluster(t *testing.T) {
	tier.All(t)
	saved := anotherCluster(t)
	cp := shared(t)
	apply(t, cp, shopWeb)
	ours, err := cp.SaveEtcd(t.Context())
	must(t, err)
	var checks atomic.Int64
	r := start(t, Config{CheckInterval: 100 * time.Millisecond,
		REST: behind(t, cp, func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/namespaces/kube-system") {
				checks.Add(1)
			}
			return false
		})})
	before := r.awaitNames(t, "web.shop")
	strange := make(chan string, 1) // what was served of the other cluster
	frozen, thaw := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for ; frozen.Err() == nil; time.Sleep(time.Millisecond) {
			if got := names(r.State()); got != "web.shop" {
				strange <- got
				return
			}
		}
	})
	cp.KillAPIServer() // It would wait for its watchers to go.
	must(t, cp.RestoreEtcd(t.Context(), saved))
	until.True(t, "frozen", func() bool { return r.State().Stale("", true) && r.Stats().Frozen })
	if st := r.State(); st.Index != before.Index || st.Serial != before.Serial || !st.Ready {
		t.Errorf("got %+v, want %+v but stale", st, before)
	}
	r.awaitLogged(t, "another cluster answers", 1)
	apply(t, cp, shopDB)
	seen := checks.Load()
	until.True(t, "checks of the other cluster", func() bool { return checks.Load() > seen+10 })
	if !r.State().Stale("", true) {
		t.Error("not stale, want the state of our cluster and stale")
	}
	thaw()
	watcher.Wait()
	if len(strange) > 0 {
		t.Errorf("served %q, want the state of our cluster all the time", <-strange)
	}

	// The right one is back, without a restart.
	cp.KillAPIServer() // It would wait for its watchers to go.
	must(t, cp.RestoreEtcd(t.Context(), ours))
	until.True(t, "no longer frozen", func() bool { return !r.State().Stale("", true) && !r.Stats().Frozen })
	r.awaitNames(t, "web.shop")
	apply(t, cp, bankPay)
	r.awaitNames(t, "pay.bank web.shop")
}

func TestLifeSnapshot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "snapshot")
	cp := shared(t)
	apply(t, cp, shopWeb, shopDB, ourCluster)
	cfg := Config{REST: cp.Config(), Snapshot: file}
	r := start(t, cfg)
	if r.awaitNames(t, "db.shop web.shop"); r.State().Stale("", true) {
		t.Error("stale without a snapshot")
	}
	apply(t, cp, bankPay)
	r.awaitNames(t, "pay.bank db.shop web.shop")
	// A second change of one second moves the serial when that is over.
	before := r.settled(t)
	r.stop()
	testSnapshotForAnyFailure(t, cp)

	must(t, cp.StopAPIServer())
	r = start(t, cfg)
	st := r.awaitNames(t, "pay.bank db.shop web.shop")
	if !st.Stale("", true) || st.Serial != before.Serial || st.LocalCluster != "east" || show(st) != show(before) ||
		r.Waiting() != "" {
		t.Errorf("got %+v, waiting %q, want the state before and stale", st, r.Waiting())
	}
	must(t, cp.StartAPIServer(t.Context()))
	until.True(t, "fresh", func() bool { return !r.State().Stale("", true) })
	if st := r.State(); st.Serial != before.Serial || st.Index == nil || show(st) != show(before) {
		t.Errorf("got %+v, want the serial of before: nothing changed", st)
	}
	remove(t, cp, bankPay)
	if st := r.awaitNames(t, "db.shop web.shop"); st.Serial <= before.Serial {
		t.Errorf("serial %d, want above %d", st.Serial, before.Serial)
	}
	r.stop()

	must(t, cp.StopAPIServer())
	rejected(t, cfg, func(c *Config) { c.SnapshotMaxAge = time.Nanosecond }, "want at most 1ns")
	rejected(t, cfg, func(c *Config) { c.Namespaces = []string{"shop"} }, "of another source")
	rejected(t, cfg, func(c *Config) { c.Snapshot = t.TempDir() }, "is not used: read ")
	rejected(t, cfg, func(*Config) { write(t, file, "x") }, "not a snapshot")
	rejected(t, cfg, func(*Config) { must(t, os.Remove(file)) }, "no snapshot")
}

// It does not matter why the lists do not come.
func testSnapshotForAnyFailure(t *testing.T, cp *controlplane.ControlPlane) {
	var status atomic.Int64
	var only atomic.Pointer[string]
	only.Store(new(""))
	cfg := Config{Snapshot: filepath.Join(t.TempDir(), "snapshot"),
		REST: behind(t, cp, func(w http.ResponseWriter, r *http.Request) bool {
			code := int(status.Load())
			if code == 0 || !strings.HasSuffix(r.URL.Path, *only.Load()) {
				return false
			}
			for code == held && status.Load() == held && r.Context().Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			return code == held || fail(w, code)
		})}
	const all = "pay.bank db.shop web.shop"
	r := start(t, cfg)
	want := show(r.awaitNames(t, all))
	r.stop()
	for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusTooManyRequests, 500} {
		status.Store(int64(code))
		r = start(t, cfg)
		if st := r.awaitNames(t, all); !st.Stale("", true) || !st.Knows("", true) || !st.Stale("shop", false) ||
			show(st) != want || r.Waiting() != "" {
			t.Errorf("%d: got %s, stale %t, waiting %q, want the state before and stale", code, show(st), st.Stale("", true),
				r.Waiting())
		}
		r.stop()
	}
	// One list fails. Objects of the other list are current and follow changes.
	for _, code := range []int{http.StatusForbidden, http.StatusTooManyRequests, 500, held} {
		status.Store(int64(code))
		only.Store(new("/endpointslices"))
		r = start(t, cfg)
		until.True(t, fmt.Sprintf("%d: true imports beside slices of the snapshot", code), func() bool {
			st := r.State()
			return show(st) == want && !st.Stale("shop", false) && st.Stale("shop", true)
		})
		status.Store(0)
		until.True(t, "fresh", func() bool { return r.State().Knows("", true) && !r.State().Stale("", true) })
		if got := show(r.State()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		r.stop()

		status.Store(int64(code))
		only.Store(new("/serviceimports"))
		r = start(t, cfg)
		until.True(t, fmt.Sprintf("%d: true slices beside imports of the snapshot", code), func() bool {
			return show(r.State()) == want && r.State().Stale("shop", false) && r.objectsListed(EndpointSlice)
		})
		moved := fmt.Sprintf("10.1.2.%d", code%256)
		apply(t, cp, strings.Replace(shopDB, "10.1.0.7", moved, 1))
		until.True(t, "an endpoint that moved", func() bool {
			return show(r.State()) == strings.Replace(want, "10.1.0.7", moved, 1)
		})
		apply(t, cp, shopDB)
		until.True(t, "as before", func() bool { return show(r.State()) == want })
		r.stop()
		status.Store(0)
	}
}

// held is no status: the server accepts the request and never answers.
const held = 1

// objectsListed reports whether the list of a kind came.
func (r *running) objectsListed(kind Kind) bool { return r.Stats().Synced[kind] }

// rejected starts without the API, and wants the reason in the log why there is no snapshot.
func rejected(t *testing.T, cfg Config, change func(*Config), why string) {
	t.Helper()
	change(&cfg)
	r := start(t, cfg)
	until.True(t, "told "+why, func() bool { return r.log.count(why) > 0 })
	if r.State().Ready {
		t.Errorf("%s: served", why)
	}
	r.stop()
}

// Many writers at once: the served state in the end is that of the API, the serial never falls and never runs ahead.
func TestLifeStress(t *testing.T) {
	cp := shared(t)
	file := filepath.Join(t.TempDir(), "snapshot")
	r := start(t, Config{REST: cp.Config(), Snapshot: file, CheckInterval: 20 * time.Millisecond})
	r.awaitNames(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			last := r.State()
			for ctx.Err() == nil {
				st := r.State()
				if st.Serial < last.Serial || int64(st.Serial) > time.Now().Unix() || !st.Ready || st.Stale("", true) {
					t.Errorf("%+v after %+v", st, last)
					return
				}
				for _, s := range st.Index.All() {
					list := s.Addresses(index.V4)
					list.Len()
				}
				r.Stats()
				last = st
			}
		})
	}
	for w := range 4 {
		writers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 0))
			for i := range 60 {
				imp := strings.Replace(bankPay, "name: pay", fmt.Sprintf("name: s%d-%d", w, rnd.IntN(5)), 1)
				imp = strings.Replace(imp, "10.9.0.2", fmt.Sprintf("10.9.%d.%d", w, 1+i), 1)
				if rnd.IntN(4) == 0 {
					_ = cp.DeleteYAML(ctx, []byte(imp)) // It may not be there.
				} else if err := cp.ApplyYAML(ctx, []byte(imp)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	apply(t, cp, shopWeb)
	until.True(t, "the last write", func() bool { return strings.Contains(names(r.State()), "web.shop") })
	cancel()
	readers.Wait()
	fresh := start(t, Config{REST: cp.Config()})
	until.True(t, "synced", func() bool { return fresh.State().Ready })
	until.True(t, "what there is, also without what was withheld",
		func() bool { return show(r.State()) == show(fresh.State()) })
}

// Before anything was served there is nothing to freeze: the zone must not stay without answers for it.
func TestLifeAnotherClusterBeforeTheFirstSync(t *testing.T) {
	tier.All(t)
	saved := anotherCluster(t)
	cp := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}})
	r := start(t, Config{REST: cp.Config(), CheckInterval: 100 * time.Millisecond})
	until.True(t, "nothing to wait for", func() bool { return r.Waiting() == "" && r.set.UID() != "" })
	cp.KillAPIServer() // It would wait for its watchers to go.
	must(t, cp.RestoreEtcd(t.Context(), saved))
	if st := r.awaitNames(t, "pay.bank"); st.Stale("", true) || r.Stats().Frozen {
		t.Errorf("got %+v, frozen %t", st, r.Stats().Frozen)
	}
	r.awaitLogged(t, "another cluster answers", 1)
	apply(t, cp, shopDB)
	r.awaitNames(t, "pay.bank db.shop")
}

// A list of properties that opens and then fails is not waited for once there is a state, and is logged once.
func TestLifePropertiesThatFail(t *testing.T) {
	cp := shared(t)
	t.Run("at the start", func(t *testing.T) { testWithoutProperties(t, cp) })
	t.Run("closed connections", func(t *testing.T) { testClosedConnections(t, cp) })
	must(t, cp.DeleteCRDs(t.Context(), controlplane.DefaultCRDs()[2:]...))
	apply(t, cp, shopWeb)
	var broken atomic.Bool
	var failures atomic.Int64
	broken.Store(true)
	rest := behind(t, cp, func(w http.ResponseWriter, r *http.Request) bool {
		if !broken.Load() || !strings.HasSuffix(r.URL.Path, "/clusterproperties") {
			return false
		}
		const status = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError", "code": 500}`
		failures.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, status)
		return true
	})
	r := start(t, Config{REST: rest, CheckInterval: 100 * time.Millisecond})
	r.awaitNames(t, "web.shop")
	must(t, cp.InstallCRDs(t.Context(), controlplane.DefaultCRDs()[2:]...))
	until.True(t, "properties fail", func() bool { return failures.Load() >= 3 })
	apply(t, cp, bankPay, ourCluster)
	r.awaitNames(t, "pay.bank web.shop")
	r.awaitLogged(t, "ClusterProperty: answers with an error", 1)
	r.awaitLogged(t, "ClusterProperty: watching", 0)
	broken.Store(false)
	until.True(t, "our cluster is known", func() bool { return r.State().LocalCluster == "east" })
	until.True(t, "logged", func() bool { return r.log.count("ClusterProperty: watching") == 1 })
}

// Behind a proxy that closes each connection, every request has a new one.
func testClosedConnections(t *testing.T, cp *controlplane.ControlPlane) {
	apply(t, cp, shopWeb)
	var requests atomic.Int64
	r := start(t, Config{REST: behind(t, cp, func(w http.ResponseWriter, _ *http.Request) bool {
		requests.Add(1)
		w.Header().Set("Connection", "close")
		return false
	})})
	r.awaitNames(t, "web.shop")
	until.True(t, "watching", r.watching)
	before := requests.Load()
	time.Sleep(2 * time.Second) // nothing has to come
	if n := requests.Load() - before; n > 6 {
		t.Errorf("%d requests in two seconds, want one a second for each watch at most", n)
	}
	r.stop()
}

// docs/spec/dns.md 6.2: answers do without ClusterProperties.
func testWithoutProperties(t *testing.T, cp *controlplane.ControlPlane) {
	apply(t, cp, shopWeb)
	for _, code := range []int{http.StatusTooManyRequests, 500, held} {
		for _, denied := range []bool{false, true} { // the list of EndpointSlices, which is not waited for then
			var done atomic.Bool
			rest := behind(t, cp, func(w http.ResponseWriter, r *http.Request) bool {
				if denied && strings.HasSuffix(r.URL.Path, "/endpointslices") {
					return fail(w, http.StatusForbidden)
				}
				if !strings.HasSuffix(r.URL.Path, "/clusterproperties") {
					return false
				}
				for code == held && !done.Load() && r.Context().Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
				return code == held || fail(w, code)
			})
			r := start(t, Config{REST: rest})
			if st := r.awaitNames(t, "web.shop"); st.Knows("", true) == denied || r.Waiting() != "" {
				t.Errorf("%d, slices denied %t: complete %t, waiting %q, want all but properties", code, denied,
					st.Knows("", true), r.Waiting())
			}
			done.Store(true)
			r.stop()
		}
	}
	remove(t, cp, shopWeb)
}

// behind is the access to a proxy in front of the API server that lets instead answer what it wants to.
func behind(t *testing.T, cp *controlplane.ControlPlane,
	instead func(http.ResponseWriter, *http.Request) bool) *rest.Config {
	t.Helper()
	target, err := url.Parse(cp.Config().Host)
	must(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // Whoever has asked is gone.
	proxy.Transport, err = rest.TransportFor(cp.Config())
	must(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !instead(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1}
}

// Where discovery is closed, a list of the objects shows which version is served.
func testClosedDiscovery(t *testing.T, cp *controlplane.ControlPlane) {
	const binding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:discovery"}`
	remove(t, cp, binding)
	whole := user(t, cp, "blind", "", "["+mayImports+", "+maySlices+"]")
	part := user(t, cp, "shopper", "shop", "["+mayImports+", "+maySlices+"]")
	for name, cfg := range map[string]Config{
		"everywhere": {REST: whole}, "in one namespace": {REST: part, Namespaces: []string{"shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, cfg)
			r.awaitNames(t, "web.shop")
			// The list is complete before the watch opens.
			until.True(t, "a watch of v1alpha1", func() bool { return r.watchedVersion() == "multicluster.x-k8s.io/v1alpha1" })
		})
	}
	// Without rights for the objects, the missing rights are the reason.
	r := start(t, Config{REST: part})
	until.True(t, "nothing to wait for", func() bool { return r.Waiting() == "" })
	r.awaitLogged(t, "ServiceImport: rights are missing", 1)
	if r.State().Ready {
		t.Errorf("ready without rights: %+v", r.State())
	}
}
