package controller

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterset-dns/clusterset/api/about"
	aboutv1beta1 "github.com/clusterset-dns/clusterset/api/about/v1beta1"
	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/lease"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A scene is an API server that is a member and its own broker, where nobody acts yet.
type scene struct {
	*testing.T
	server *controlplane.ControlPlane
	admin  *apiserver.Client
	system types.UID
	dir    string
}

const sceneID = "east"

var sceneNamespace = apibroker.NamespaceName("member", sceneID)

func newScene(t *testing.T) *scene {
	server := controlplane.StartT(t, controlplane.Options{CRDs: append(controlplane.DefaultCRDs(), crd.ExportedServices, crd.Members)})
	admin, err := apiserver.NewClient(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	s := &scene{T: t, server: server, admin: admin, dir: t.TempDir()}
	if s.system, err = admin.SystemUID(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.make(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: wellknown.ControllerNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sceneNamespace, Labels: map[string]string{apibroker.LabelClusterID: sceneID}}},
		&v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: sceneID},
			Spec: v1alpha1.MemberSpec{KubeSystemUID: string(s.system), Namespace: sceneNamespace}},
	)
	s.account()
	if err := server.Apply(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "member"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: sceneNamespace, Name: apibroker.ServiceAccount}},
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scene) make(objects ...apiserver.Object) {
	s.Helper()
	for _, o := range objects {
		if err := s.admin.Create(s.Context(), o); err != nil {
			s.Fatal(err)
		}
	}
}

// account makes the service account of the member.
func (s *scene) account() {
	s.Helper()
	s.make(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: sceneNamespace, Name: apibroker.ServiceAccount}})
}

// join makes the ClusterProperty that a join ends with.
func (s *scene) join() {
	s.Helper()
	s.make(&aboutv1beta1.ClusterProperty{
		ObjectMeta: metav1.ObjectMeta{Name: about.ClusterSetName, Annotations: map[string]string{apibroker.AnnotationBrokerUID: string(s.system)}},
		Spec:       aboutv1beta1.ClusterPropertySpec{Value: "set"},
	})
}

func (s *scene) token() string {
	s.Helper()
	text, _, err := s.admin.Token(s.Context(), sceneNamespace, apibroker.ServiceAccount, minLife)
	if err != nil {
		s.Fatal(err)
	}
	return text
}

func (s *scene) kubeconfigPath() string { return filepath.Join(s.dir, apibroker.KeyKubeconfig) }

// credential writes kubeconfig and token, as a mounted Secret has them.
func (s *scene) credential(token string) {
	s.Helper()
	admin := s.server.Config()
	c := clientcmdapi.NewConfig()
	c.Clusters["broker"] = &clientcmdapi.Cluster{
		Server: admin.Host, CertificateAuthorityData: admin.CAData, CertificateAuthority: admin.CAFile,
	}
	c.AuthInfos["broker"] = &clientcmdapi.AuthInfo{TokenFile: apibroker.KeyToken}
	c.Contexts["broker"] = &clientcmdapi.Context{Cluster: "broker", AuthInfo: "broker", Namespace: sceneNamespace}
	c.CurrentContext = "broker"
	content, err := clientcmd.Write(*c)
	if err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, apibroker.KeyToken), []byte(token), 0o600); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(s.kubeconfigPath(), content, 0o600); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) config() Config {
	cfg := Defaults()
	cfg.Local, cfg.Broker, cfg.Version = s.server.Config(), s.kubeconfigPath(), "v1"
	cfg.Log, cfg.Metrics = &logtest.Recorder{}, NewMetrics(nil)
	cfg.Renew, cfg.TTL = time.Second, time.Minute
	return cfg
}

// start runs an instance until the returned function is called.
func (s *scene) start(cfg Config) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	var g errgroup.Group
	g.Go(func() error { return Run(ctx, cfg) })
	stop = func() {
		s.Helper()
		cancel()
		if err := g.Wait(); err != nil {
			s.Error(err)
		}
	}
	s.Cleanup(stop)
	return stop
}

// One instance acts from when there is something to act on: kubeconfig and join may come later, in any order. When it ends
// the next one takes over, and nothing is left of it.
func TestRun(t *testing.T) {
	s := newScene(t)
	before := goleak.IgnoreCurrent()
	first, second := s.config(), s.config()
	first.ClusterID = sceneID
	first.Renew = time.Hour // the first heartbeat does not wait for it
	stop := s.start(first)
	log := first.Log.(*logtest.Recorder)
	until.True(t, "it leads and says that there is no kubeconfig", func() bool {
		return testutil.ToFloat64(first.Metrics.leader) == 1 && log.Count("error: broker: ") == 1
	})
	id := &aboutv1beta1.ClusterProperty{}
	until.True(t, "it has set the cluster id", func() bool { return s.admin.Get(t.Context(), id, "", about.ClusterIDName) == nil })
	if id.Spec.Value != sceneID {
		t.Errorf("cluster id = %q, want %q", id.Spec.Value, sceneID)
	}
	if testutil.ToFloat64(first.Metrics.member) != 0 {
		t.Error("member = 1 before the join")
	}

	s.credential(s.token())
	s.join()
	lease := &coordinationv1.Lease{}
	until.True(t, "it renews its heartbeat", func() bool {
		return s.admin.Get(t.Context(), lease, sceneNamespace, apibroker.HeartbeatName) == nil
	})
	until.True(t, "it is a connected member and nothing is held", func() bool {
		m := first.Metrics
		held := 0.0
		for _, h := range allHolds {
			held += testutil.ToFloat64(m.held.WithLabelValues(string(h)))
		}
		return testutil.ToFloat64(m.member) == 1 && testutil.ToFloat64(m.connected) == 1 && held == 0 && testutil.ToFloat64(m.credential) > 0
	})
	member := &v1alpha1.Member{}
	until.True(t, "it says what it is", func() bool {
		return s.admin.Get(t.Context(), member, "", sceneID) == nil && member.Status.Version == "v1" && member.Status.MergeOptions != ""
	})

	third := s.config()
	third.Broker = filepath.Join(t.TempDir(), "none")
	stopThird := s.start(third)
	standby := third.Log.(*logtest.Recorder)
	until.True(t, "a standby says that it is one, and that it could not act", func() bool {
		return standby.Count("standing by: ") == 1 && standby.Count("error: broker: open "+third.Broker) == 1
	})
	stopThird()

	stopSecond := s.start(second)
	stop()
	if testutil.ToFloat64(first.Metrics.leader) != 0 || testutil.ToFloat64(first.Metrics.member) != 0 {
		t.Error("leader and member of an instance that ended: want 0")
	}
	until.True(t, "the second one acts", func() bool {
		return testutil.ToFloat64(second.Metrics.leader) == 1 && testutil.ToFloat64(second.Metrics.member) == 1
	})

	// Section 7: whoever leaves takes the Lease along, and is no member.
	property := &aboutv1beta1.ClusterProperty{}
	if err := s.admin.Get(t.Context(), property, "", about.ClusterSetName); err != nil {
		t.Fatal(err)
	}
	property.Annotations[apibroker.AnnotationLeaving] = "now"
	if err := s.admin.Update(t.Context(), property); err != nil {
		t.Fatal(err)
	}
	until.True(t, "it has left", func() bool {
		err := s.admin.Get(t.Context(), lease, sceneNamespace, apibroker.HeartbeatName)
		return apierrors.IsNotFound(err) && testutil.ToFloat64(second.Metrics.member) == 0
	})
	stopSecond()
	s.admin.Close()
	goleak.VerifyNone(t, before)
}

// Section 2: the token is renewed and kept in the Secret; one that is revoked is told, and an admin's new one is taken.
func TestCredential(t *testing.T) {
	s := newScene(t)
	old := s.token()
	s.credential(old)
	cfg, err := s.config().complete()
	if err != nil {
		t.Fatal(err)
	}
	f := lease.NewFence(time.Hour)
	f.Renew(time.Now())
	x, err := newSession(cfg, "test", f, kinds{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.events.client.Close()
	defer x.local.client.Close()
	if err := x.connect(); err != nil {
		t.Fatal(err)
	}
	defer x.broker.Close()
	c := x.credential
	if err := c.refresh(t.Context(), true); err == nil || !c.toSave() {
		t.Errorf("renewed without a Secret: %v, to be saved %t; want an error, and another attempt", err, c.toSave())
	}
	s.make(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: wellknown.ControllerNamespace, Name: apibroker.SecretName},
		Data:       map[string][]byte{apibroker.KeyToken: []byte(old), apibroker.KeyKubeconfig: []byte("kept")},
	})
	if err := c.refresh(t.Context(), false); err != nil || c.toSave() {
		t.Fatalf("saved later: %v, to be saved %t", err, c.toSave())
	}
	secret := &corev1.Secret{}
	if err := s.admin.Get(t.Context(), secret, wellknown.ControllerNamespace, apibroker.SecretName); err != nil {
		t.Fatal(err)
	}
	fresh := string(secret.Data[apibroker.KeyToken])
	if fresh == old || fresh != c.current().text || string(secret.Data[apibroker.KeyKubeconfig]) != "kept" {
		t.Errorf("the Secret has the old token, not the one in use, or lost its kubeconfig: %q", secret.Data)
	}
	c.readFile() // has the old one
	if got := c.current().text; got != fresh && readToken(old).Issued.Before(readToken(fresh).Issued) {
		t.Error("an older token was taken from the file")
	}
	if c.refused() != "" {
		t.Errorf("refused: %s", c.refused())
	}

	if !x.kindsChanged(t.Context()) {
		t.Error("the API server has ServiceCIDRs, which the session does not follow: want another session")
	}
	if x.has, err = checkKinds(t.Context(), x.local.client); err != nil || x.kindsChanged(t.Context()) {
		t.Errorf("the kinds that the session has changed (%v)", err)
	}

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: sceneNamespace, Name: apibroker.ServiceAccount}}
	if err := s.admin.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	until.True(t, "the revoked token is refused", func() bool {
		_, _, _ = x.broker.Token(t.Context(), minLife) // the error is noted
		return c.refused() != ""
	})
	s.account()
	secret.Data[apibroker.KeyToken] = []byte(s.token())
	if err := s.admin.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	c.readSecret(t.Context())
	until.True(t, "the admin's token works", func() bool {
		_, _, err := x.broker.Token(t.Context(), minLife)
		return err == nil && c.refused() == ""
	})
}

func TestTokenIsDue(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	hour := token{text: "a", Token: apiserver.Token{Issued: start, Expires: start.Add(time.Hour)}}
	for _, tt := range []struct {
		name  string
		given *credential
		after time.Duration
		want  bool
	}{
		{name: "young", given: &credential{token: hour, loaded: start}, after: 29 * time.Minute},
		{name: "at half of its life", given: &credential{token: hour, loaded: start.Add(time.Minute)}, after: 30 * time.Minute, want: true},
		{name: "expired", given: &credential{token: hour, loaded: start.Add(time.Hour)}, after: 2 * time.Hour, want: true},
		{name: "refused", given: &credential{token: hour, denied: "a"}, after: 30 * time.Minute},
		{name: "says nothing", given: &credential{token: token{text: "opaque"}}, after: time.Hour},
		{name: "our clock is an hour ahead", given: &credential{token: hour, loaded: start.Add(time.Hour), own: true}, after: 89 * time.Minute},
		{name: "and half of its life is over", given: &credential{token: hour, loaded: start.Add(time.Hour), own: true}, after: 90 * time.Minute, want: true},
		{name: "our clock is behind", given: &credential{token: hour, loaded: start.Add(-time.Hour)}, after: -59 * time.Minute, want: true},
		{name: "behind, and renewed", given: &credential{token: hour, loaded: start.Add(-time.Hour), own: true}, after: -59 * time.Minute},
		{name: "our clock was set back", given: &credential{token: hour, loaded: start.Add(-20 * time.Minute)}, after: 10 * time.Minute, want: true},
	} {
		if got := tt.given.due(start.Add(tt.after), 0.5); got != tt.want {
			t.Errorf("%s: due = %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestTokenIsNewer(t *testing.T) {
	at := func(text string, issued int64) token {
		return token{text: text, Token: apiserver.Token{Issued: time.Unix(issued, 0)}}
	}
	for _, tt := range []struct {
		name     string
		old, now token
		want     bool
	}{
		{name: "the first", now: at("a", 1), want: true},
		{name: "the same", old: at("a", 1), now: at("a", 1)},
		{name: "none", old: at("a", 1), now: token{}},
		{name: "issued later", old: at("a", 1), now: at("b", 2), want: true},
		{name: "issued earlier", old: at("a", 2), now: at("b", 1)},
		{name: "opaque ones", old: token{text: "a"}, now: token{text: "b"}, want: true},
	} {
		if got := tt.now.newer(tt.old); got != tt.want {
			t.Errorf("%s: newer = %t, want %t", tt.name, got, tt.want)
		}
	}
	for _, text := range []string{"", "opaque", "a.b.c", "a.e30.c", "....", "a.bnVsbA.c"} {
		if got := readToken(text); got.text != text || got.Life() != 0 {
			t.Errorf("token %q = %+v, want that it says nothing", text, got)
		}
	}
}

// A kubeconfig whose server cannot be one is like none: it is told, and waited for.
func TestServerOfKubeconfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	c := clientcmdapi.NewConfig()
	c.Clusters["broker"] = &clientcmdapi.Cluster{Server: "::"}
	c.Contexts["broker"] = &clientcmdapi.Context{Cluster: "broker", Namespace: sceneNamespace}
	c.CurrentContext = "broker"
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	if l, err := loadLink(path, ""); err == nil || l.digest != "" || !strings.Contains(err.Error(), `"::"`) {
		t.Errorf("link = %+v, error %v; want an error with the server", l, err)
	}
}

// What cannot be had of the member's own API server is waited for: the lease is not given up meanwhile.
func TestAwaitKinds(t *testing.T) {
	cfg, err := Config{Local: &rest.Config{Host: "::"}, Broker: "none", Namespace: wellknown.ControllerNamespace, Log: &logtest.Recorder{}}.complete()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var g errgroup.Group
	g.Go(func() error {
		if _, ok := (term{cfg: cfg}).awaitKinds(ctx); ok || ctx.Err() == nil {
			t.Errorf("kinds found: %t, the term goes on: %t; want neither", ok, ctx.Err() == nil)
		}
		return nil
	})
	until.True(t, "it tells", func() bool { return cfg.Log.(*logtest.Recorder).Count("local: ") == 1 })
	cancel()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
