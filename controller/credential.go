package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/apiserver"
)

// How the credential is looked after.
const (
	tokenEvery  = 5 * time.Second  // between two looks at the token file
	secretEvery = 30 * time.Second // between two looks at the Secret, while the broker refuses the credential
	renewEvery  = 30 * time.Second // between two attempts to renew
	minLife     = 10 * time.Minute // the shortest that an API server grants
)

// credentialManager is the field manager of the token in the Secret.
const credentialManager = "clusterset-credential"

// A link is how the broker is reached. The zero value is none.
type link struct {
	rest      *rest.Config
	namespace string // of this member on the broker
	digest    string // of the kubeconfig
}

// loadLink reads a kubeconfig; its context must name the broker namespace of this member.
func loadLink(path, kubeContext string) (link, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return link{}, err
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	raw, err := rules.Load()
	if err != nil {
		return link{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	// Not by a deferred loader: to that an empty file means the cluster that we run in.
	loaded := clientcmd.NewNonInteractiveClientConfig(*raw, kubeContext, &clientcmd.ConfigOverrides{}, rules)
	config, err := loaded.ClientConfig()
	if err != nil {
		return link{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	namespace, _, err := loaded.Namespace()
	if err != nil {
		return link{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if namespace == metav1.NamespaceDefault {
		return link{}, fmt.Errorf("kubeconfig %s: context %q has no namespace: want that of this member on the broker",
			path, kubeContext)
	}
	if _, err := rest.TLSConfigFor(config); err != nil {
		return link{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if _, _, err := rest.DefaultServerUrlFor(config); err != nil {
		return link{}, fmt.Errorf("kubeconfig %s: server %q: %w", path, config.Host, err)
	}
	sum := sha256.Sum256(append(content, kubeContext...))
	return link{rest: config, namespace: namespace, digest: hex.EncodeToString(sum[:])}, nil
}

// A token is a bearer token and what it says about itself, which is nothing unless it is one of a service account.
type token struct {
	apiserver.Token
	text string
}

// readToken reads a bearer token.
func readToken(text string) token {
	t := token{text: strings.TrimSpace(text)}
	if says, err := apiserver.ParseToken(t.text); err == nil {
		t.Token = says
	}
	return t
}

// newer reports whether t, which was found in a file or the Secret, is to be used in place of old: it is another one, and not
// one that was issued before it.
func (t token) newer(old token) bool {
	return t.text != "" && t.text != old.text && !t.Issued.Before(old.Issued)
}

// sameAccount reports whether both are tokens of one account.
func (t token) sameAccount(other token) bool {
	return t.Issuer == other.Issuer && t.User == other.User
}

// A credential is what this member shows the broker: the token of its kubeconfig, renewed at half of its life and kept in the
// Secret of the join (section 2). Other credentials of a kubeconfig are used as they are.
type credential struct {
	s    *session
	link link
	file string // of the token, "" if the credential is not a token in a file

	mu      sync.Mutex
	token   token
	loaded  time.Time // when this process got it, by its monotonic clock
	own     bool      // this process renewed it
	unsaved bool      // and the Secret does not have it
	denied  string    // the text of the token that the broker refused; "none" for a credential that is no token
}

func newCredential(s *session, l link) *credential {
	c := &credential{s: s, link: l}
	if l.rest != nil && l.rest.BearerTokenFile != "" {
		c.file = l.rest.BearerTokenFile
		c.take(readToken(l.rest.BearerToken))
	}
	c.s.metrics.setExpiry(c.current().Expires)
	return c
}

func (c *credential) current() token {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

// take uses t from now on, if it is newer, and reports whether it is.
func (c *credential) take(t token) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !t.newer(c.token) {
		return false
	}
	c.token, c.loaded, c.own, c.unsaved = t, time.Now(), false, false
	c.s.metrics.setExpiry(t.Expires)
	return true
}

// config returns how the broker is reached with this credential; without a kubeconfig it is never reached.
func (c *credential) config() *rest.Config {
	if c.link.rest == nil {
		return &rest.Config{Host: "https://broker.invalid", Transport: unreachable{}}
	}
	cfg := guarded(c.link.rest, sideBroker, c.s.fence, c.s.metrics)
	cfg.RateLimiter, cfg.QPS, cfg.Burst = nil, c.s.cfg.QPS, c.s.cfg.Burst
	if c.file != "" {
		cfg.BearerToken, cfg.BearerTokenFile = "", ""
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bearer{next: next, credential: c} })
	return cfg
}

type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("there is no kubeconfig of a broker that can be used")
}

// A bearer shows the current token, and notes which one the broker refuses.
type bearer struct {
	next       http.RoundTripper
	credential *credential
}

// RoundTrip implements [http.RoundTripper].
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	t := b.credential.current()
	if b.credential.file != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.text)
	}
	answer, err := b.next.RoundTrip(r)
	if err == nil {
		b.credential.answered(t, answer.StatusCode == http.StatusUnauthorized)
	}
	return answer, err
}

// WrappedRoundTripper lets client-go find the transport below.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.next }

// answered notes whether the broker refused a token. An answer to a token that was replaced meanwhile says nothing.
func (c *credential) answered(t token, denied bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case t.text != c.token.text:
	case !denied:
		c.denied = ""
	case t.text == "":
		c.denied = "none"
	default:
		c.denied = t.text
	}
}

// refused says that the broker refuses the credential, "" if it does not.
func (c *credential) refused() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.denied == "" {
		return ""
	}
	return "the broker refuses the credential of this cluster: join again"
}

// run renews the token, and takes a newer one from its file or the Secret, until ctx ends; it then returns nil.
func (c *credential) run(ctx context.Context) error {
	if c.file == "" {
		return nil
	}
	defer c.s.metrics.setExpiry(time.Time{})
	c.readSecret(ctx)
	var secretRead, attempt time.Time
	told := false
	half := 0.45 + 0.1*rand.Float64() // members that joined at one time should not renew at one time
	return every(ctx, tokenEvery, func() error {
		c.readFile()
		now := time.Now()
		if c.refused() != "" && now.Sub(secretRead) >= secretEvery {
			secretRead = now
			c.readSecret(ctx)
		}
		if due := c.due(now, half); (due || c.toSave()) && now.Sub(attempt) >= renewEvery {
			attempt = now
			err := c.refresh(ctx, due)
			if err != nil && !told && ctx.Err() == nil {
				c.s.log.Errorf("credential: %v; trying again", err)
			}
			told = err != nil
		}
		return nil
	})
}

func (c *credential) readFile() {
	// The kubelet replaces the file; a moment later it is there again.
	if text, err := os.ReadFile(c.file); err == nil {
		c.take(readToken(string(text)))
	}
}

// readSecret takes the token that an earlier instance, or an admin, wrote to the Secret, if it is of the same account.
func (c *credential) readSecret(ctx context.Context) {
	var secret corev1.Secret
	if err := c.s.local.client.Get(ctx, &secret, c.s.cfg.Namespace, apibroker.SecretName); err != nil {
		return
	}
	if t := readToken(string(secret.Data[apibroker.KeyToken])); t.sameAccount(c.current()) {
		c.take(t)
	}
}

// due reports whether the token has lived for the given part of its life. One that this process renewed is as old as that
// says, whatever the clocks of the machines are. What another one says is believed if it makes the token older; if it is from
// the future, one of the clocks is wrong, and nobody knows how old it is.
func (c *credential) due(now time.Time, part float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	life := c.token.Life()
	if life <= 0 || c.denied != "" {
		return false
	}
	until := time.Duration(part * float64(life))
	if now.Sub(c.loaded) >= until {
		return true
	}
	return !c.own && (now.Before(c.token.Issued) || now.Sub(c.token.Issued) >= until)
}

// toSave reports whether the token was renewed, but could not be written.
func (c *credential) toSave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsaved
}

// refresh renews a token that is due, or else keeps the one that could not be kept before.
func (c *credential) refresh(ctx context.Context, due bool) error {
	if due {
		return c.renew(ctx)
	}
	return c.keep(ctx, c.current())
}

// renew gets a new token, uses it, and keeps it in the Secret.
func (c *credential) renew(ctx context.Context) error {
	life := max(c.current().Life(), minLife)
	text, expires, err := c.s.broker.Token(ctx, life)
	if err != nil {
		return err
	}
	t := readToken(text)
	if t.Expires.IsZero() {
		t.Issued, t.Expires = time.Now(), expires
	}
	c.mu.Lock()
	c.token, c.loaded, c.own, c.unsaved = t, time.Now(), true, true
	c.mu.Unlock()
	c.s.metrics.setExpiry(t.Expires)
	return c.keep(ctx, t)
}

// keep writes the token to the Secret of the join, and to no other place. Whoever has no such Secret has to renew again after
// a restart.
func (c *credential) keep(ctx context.Context, t token) error {
	var secret corev1.Secret
	if err := c.s.local.client.Get(ctx, &secret, c.s.cfg.Namespace, apibroker.SecretName); err != nil {
		return err
	}
	if err := c.s.local.client.Apply(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID},
		Data:       map[string][]byte{apibroker.KeyToken: []byte(t.text)},
	}, credentialManager); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsaved = c.unsaved && c.token.text != t.text
	return nil
}
