package identity

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/elapsed"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/metrics"
)

// maxAge is the age, doubled, at which a token is renewed although it lives longer: once a day.
const maxAge = 48 * time.Hour

// A Credential is what this member presents to the broker. If the kubeconfig names a token file, the token is renewed
// by a [Renewal]; other credentials of a kubeconfig are used as they are. The methods may be called by several
// goroutines.
//
//	file or Secret has a newer token --> take --> +---------+ --> transport adds it to each request
//	TokenRequest when it is due     -> renewed-> | current |
//	                                              +---------+ <-- a 401 marks it as rejected, any other response clears that
//
// While the current token is rejected, take accepts any other one: the broker's clock may have been ahead when it
// issued the current one.
type Credential struct {
	link    Link
	file    string // of the token, "" if the credential is not a token in a file
	metrics *metrics.Metrics

	mu           sync.Mutex
	token        token
	loaded       time.Time // when this process got it
	own          bool      // this process renewed it
	unsaved      bool      // the Secret does not have it yet
	unauthorized bool      // the last response was a 401; of a new token nothing is known before its first response
	rejected     string    // the text of the token that the broker rejected last, "" once it accepts that
}

// NewCredential returns the credential of a kubeconfig.
func NewCredential(l Link, m *metrics.Metrics) *Credential {
	c := &Credential{link: l, metrics: m}
	if l.REST != nil && l.REST.BearerTokenFile != "" {
		c.file = l.REST.BearerTokenFile
		c.take(readToken(l.REST.BearerToken))
	}
	c.metrics.SetCredentialExpiry(c.current().Expires)
	return c
}

func (c *Credential) current() token {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

// Expiry returns when the credential expires, zero if never or unknown, and whether less than 0.3 of its life is left:
// it is renewed long before.
func (c *Credential) Expiry(now time.Time) (expires time.Time, ends bool) {
	t := c.current()
	return t.Expires, !t.Expires.IsZero() && t.Expires.Sub(now) < t.Life()*3/10
}

// replacedBy reports whether t, from the file or the Secret, replaces the current token. A rejected token stays out
// even if its time of issue is later.
func (c *Credential) replacedBy(t token) bool {
	switch {
	case t.text == "" || t.text == c.token.text:
		return false
	case c.rejected == c.token.text:
		return true
	}
	return t.text != c.rejected && !t.Issued.Before(c.token.Issued)
}

// take uses t from now on if it replaces the current token, and reports whether it does.
func (c *Credential) take(t token) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.replacedBy(t) {
		return false
	}
	c.token, c.loaded, c.own, c.unsaved = t, time.Now(), false, false
	c.metrics.SetCredentialExpiry(t.Expires)
	return true
}

// renewed uses t, which this process got from the broker and has not saved, from now on.
func (c *Credential) renewed(t token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.loaded, c.own, c.unsaved = t, time.Now(), true, true
	c.metrics.SetCredentialExpiry(t.Expires)
}

// saved records that the Secret has t.
func (c *Credential) saved(t token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsaved = c.unsaved && c.token.text != t.text
}

// toSave reports whether the token was renewed but could not be saved.
func (c *Credential) toSave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsaved
}

func (c *Credential) readFile() {
	// The kubelet replaces the file; for a moment it may be missing.
	if text, err := os.ReadFile(c.file); err == nil {
		c.take(readToken(string(text)))
	}
}

// due reports whether the token has lived for the given part of its life, up to two days.
//
// The age of an own token counts from its renewal, by the clocks of this machine. The time of issue of another
// process's token counts if it makes the token older. A time in the future means that a clock is wrong: the token is
// renewed.
func (c *Credential) due(now time.Time, part float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	life := c.token.Life()
	if life <= 0 || c.unauthorized {
		return false
	}
	age := time.Duration(part * float64(min(life, maxAge)))
	if elapsed.Between(c.loaded, now) >= age {
		return true
	}
	return !c.own && (now.Before(c.token.Issued) || now.Sub(c.token.Issued) >= age)
}

// Rejected returns the broker's rejection of the credential, or "".
func (c *Credential) Rejected() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.unauthorized {
		return ""
	}
	return "the broker rejects the credential of this cluster: join again"
}

// Config returns how the broker is reached with this credential. Without a kubeconfig every request fails.
func (c *Credential) Config() *rest.Config {
	if c.link.REST == nil {
		return &rest.Config{Host: "https://broker.invalid", Transport: unreachable{}}
	}
	cfg := rest.CopyConfig(c.link.REST)
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

// A bearer adds the current token to requests and records which token the broker rejects.
type bearer struct {
	next       http.RoundTripper
	credential *Credential
}

// RoundTrip implements [http.RoundTripper].
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	t := b.credential.current()
	if b.credential.file != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.text)
	}
	response, err := b.next.RoundTrip(r)
	if err == nil {
		b.credential.answered(t, response.StatusCode == http.StatusUnauthorized)
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport below.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.next }

// answered records whether the broker rejected t. A response to a token that was replaced meanwhile means nothing.
func (c *Credential) answered(t token, unauthorized bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.text != c.token.text {
		return
	}
	switch c.unauthorized = unauthorized; {
	case unauthorized:
		c.rejected = t.text
	case c.rejected == t.text:
		c.rejected = ""
	}
}

// A token is a bearer token and its claims, which are zero unless it is a token of a service account.
type token struct {
	apiserver.Token
	text string
}

// readToken reads a bearer token.
func readToken(text string) token {
	t := token{text: strings.TrimSpace(text)}
	if claims, err := apiserver.ParseToken(t.text); err == nil {
		t.Token = claims
	}
	return t
}

// sameAccount reports whether both are tokens of one account.
func (t token) sameAccount(other token) bool {
	return t.Issuer == other.Issuer && t.User == other.User
}
