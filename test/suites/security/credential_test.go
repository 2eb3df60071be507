package security

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/outages"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// An API server accepts a token for leeway after its expiry, and for cached after it has accepted it once.
const (
	leeway = time.Minute
	cached = 10 * time.Second
)

// TestRenewal starts west with a token that the broker accepts for one more minute. west renews it in time: answers
// stay right until the broker rejects the old token, and nothing is frozen.
func TestRenewal(t *testing.T) {
	tier.All(t)
	f := start(t)
	e, w, _ := members(f)
	for _, m := range []*testclusterset.Member{e, w} {
		m.Put(t, testclusterset.Namespace("ring"))
	}
	log := &lines{}
	run(t, e)
	exportService(t, e, "ring", "web", "10.21.0.1")
	exportService(t, w, "ring", "web", "10.22.0.1")
	imported(t, e, "ring", "web", "10.21.0.1")
	old := aged(t, f.Broker, brokerToken(t, w), time.Now().Add(time.Minute-leeway))
	keepToken(t, w, old)
	west := run(t, w, log.listen)
	imported(t, w, "ring", "web", "10.21.0.1", "10.22.0.1")
	server := testclusterset.StartDNS(t, w)
	imp, err := w.Import(t.Context(), "ring", "web")
	if err != nil || len(imp.Spec.IPs) == 0 {
		t.Fatalf("import has IPs %v (%v), want some", imp.Spec.IPs, err)
	}
	want := "NOERROR " + imp.Spec.IPs[0]
	server.Answers(t, "web.ring", dns.TypeA, want)
	stop := askOn(t, server, "web.ring", want)

	until.OK(t, "renewal in the Secret", func(context.Context) error {
		if brokerToken(t, w) == old {
			return fmt.Errorf("still the old token")
		}
		return nil
	})
	awaitRejection(t, f.Broker, old)
	mark(t, e, w)
	stop()

	renewed, err := apiserver.ParseToken(brokerToken(t, w))
	if err != nil || renewed.Expires.Before(time.Now().Add(5*time.Minute)) {
		t.Errorf("the token in the Secret expires at %s (%v), want one that is renewed", renewed.Expires, err)
	}
	until.OK(t, "metric of the expiry", func(context.Context) error {
		if got := west.metric(t, "credential_expiry_timestamp_seconds", ""); got != float64(renewed.Expires.Unix()) {
			return fmt.Errorf("%v, want %d", got, renewed.Expires.Unix())
		}
		return nil
	})
	if log.contain("frozen (credential)") {
		t.Error("imports were frozen because of the credential")
	}
}

// TestRevocation deletes the service account of west. Its imports are frozen, and it says so, until an admin joins it
// again.
func TestRevocation(t *testing.T) {
	tier.All(t)
	f := start(t)
	e, w, _ := members(f)
	for _, m := range []*testclusterset.Member{e, w} {
		m.Put(t, testclusterset.Namespace("ring"))
	}
	log := &lines{}
	run(t, e)
	west := run(t, w, log.listen, func(c *controller.Config) { c.Renew = time.Second })
	exportService(t, e, "ring", "db", "10.21.0.3")
	exportService(t, w, "ring", "db", "10.22.0.3")
	for _, m := range []*testclusterset.Member{e, w} {
		imported(t, m, "ring", "db", "10.21.0.3", "10.22.0.3")
	}
	was := settled(t, f, func() map[string]string { return importedVersions(t, w) })

	account := f.Broker.Dynamic().Resource(accounts).Namespace(w.BrokerNamespace())
	if err := account.Delete(t.Context(), broker.ServiceAccount, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	revoked := time.Now()
	until.OK(t, "metric frozen", func(context.Context) error { return frozen(t, west, 1) })
	outages.Since(t, "F33", revoked, time.Minute, "revoked credential reported")
	log.await(t, "frozen (credential)")
	log.await(t, "join again")
	exportService(t, w, "ring", "late", "10.22.0.4")
	until.OK(t, "condition", func(ctx context.Context) error {
		exp, err := w.ServiceExport(ctx, "ring", "late")
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(exp.Status.Conditions, "Ready")
		if ready != nil && ready.Status == metav1.ConditionUnknown &&
			strings.Contains(ready.Message, "rejects the credential") {
			return nil
		}
		return fmt.Errorf("conditions %v", exp.Status.Conditions)
	})
	is := importedVersions(t, w)
	maps.DeleteFunc(is, func(key, _ string) bool { return was[key] == "" }) // the late service, which west itself exports
	compare(t, "west", was, is)

	joinMember(t, w)
	until.OK(t, "metric frozen", func(context.Context) error { return frozen(t, west, 0) })
	imported(t, e, "ring", "late", "10.22.0.4")
	mark(t, e, w)
	log.await(t, "no longer frozen (credential)")
}

func frozen(t *testing.T, v member, want float64) error {
	t.Helper()
	if got := v.metric(t, "frozen", "credential"); got != want {
		return fmt.Errorf("%v, want %v", got, want)
	}
	return nil
}

// brokerToken returns the token in the Secret of a member.
func brokerToken(t *testing.T, m *testclusterset.Member) string {
	t.Helper()
	u, err := m.Dynamic().Resource(secrets).Namespace(wellknown.ControllerNamespace).Get(t.Context(), broker.SecretName,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	data, _ := u.Object["data"].(map[string]any)
	text, err := base64.StdEncoding.DecodeString(fmt.Sprint(data[broker.KeyToken]))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// keepToken puts a token into the Secret and the files of a member, as a join does.
func keepToken(t *testing.T, m *testclusterset.Member, token string) {
	t.Helper()
	m.Put(t, &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: wellknown.ControllerNamespace, Name: broker.SecretName},
		Data:       map[string][]byte{broker.KeyToken: []byte(token)},
	})
	if err := m.MountSecret(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// aged returns a token as if it had been issued ten minutes before it expires, signed with the broker's own key. So a
// test need not wait until one is old: the shortest life that an API server grants is ten minutes.
func aged(t *testing.T, c *controlplane.ControlPlane, token string, expires time.Time) string {
	t.Helper()
	parts := strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	issued := expires.Add(-10 * time.Minute).Unix()
	claims["iat"], claims["nbf"], claims["exp"] = issued, issued, expires.Unix()
	if payload, err = json.Marshal(claims); err != nil {
		t.Fatal(err)
	}
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(payload)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, signingKey(t, c), digest[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...) // ES256, RFC 7518 section 3.4
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// signingKey returns the key with which a control plane signs tokens. It is beside its kubeconfig.
func signingKey(t *testing.T, c *controlplane.ControlPlane) *ecdsa.PrivateKey {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(c.Kubeconfig()), "serviceaccount.key"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatal("serviceaccount.key is not PEM")
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key.(*ecdsa.PrivateKey)
}

// awaitRejection waits until an API server rejects a token.
func awaitRejection(t *testing.T, c *controlplane.ControlPlane, token string) {
	t.Helper()
	config := rest.AnonymousClientConfig(c.Config())
	config.BearerToken = token
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), leeway+cached+until.Patience)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/api/v1/namespaces/kube-system",
			http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatalf("waiting until the broker rejects a token: %v", err)
		}
		answer.Body.Close()
		if answer.StatusCode == http.StatusUnauthorized {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// askOn sends one question again and again until stop is called, and fails the test if an answer is not want.
func askOn(t *testing.T, server *testclusterset.DNS, name, want string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	var asked atomic.Int64
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			got, err := server.Ask(ctx, name, dns.TypeA)
			if ctx.Err() != nil {
				break
			}
			var lost net.Error
			if errors.As(err, &lost) && lost.Timeout() {
				continue // A datagram may be lost.
			}
			if err != nil || got != want {
				t.Errorf("question %d: %s (%v), want %s", asked.Load(), got, err, want)
				return
			}
			asked.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
		t.Logf("%d questions were answered", asked.Load())
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return func() {
		t.Helper()
		before := asked.Load()
		until.True(t, "another answer", func() bool {
			select {
			case <-done: // with an error
				return true
			default:
				return asked.Load() > before
			}
		})
		cancel()
		<-done
	}
}

// lines is the log of a controller.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) listen(c *controller.Config) { c.Log = listener{c.Log, l} }

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

// contain reports whether a line contains the text.
func (l *lines) contain(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(strings.Join(l.all, "\n"), text)
}

// await waits until a line contains the text.
func (l *lines) await(t *testing.T, text string) {
	t.Helper()
	until.True(t, "a log line with "+text, func() bool { return l.contain(text) })
}

// A listener is a Logger that copies each line to lines.
type listener struct {
	logging.Logger
	lines *lines
}

func (l listener) Infof(format string, args ...any) {
	l.lines.add(fmt.Sprintf(format, args...))
	l.Logger.Infof(format, args...)
}

func (l listener) Warningf(format string, args ...any) {
	l.lines.add(fmt.Sprintf(format, args...))
	l.Logger.Warningf(format, args...)
}

func (l listener) Errorf(format string, args ...any) {
	l.lines.add(fmt.Sprintf(format, args...))
	l.Logger.Errorf(format, args...)
}
