package identity

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/test/harness/clocks"
)

func TestTokenIsDue(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	hour := token{text: "a", Token: apiserver.Token{Issued: start, Expires: start.Add(time.Hour)}}
	week := token{text: "a", Token: apiserver.Token{Issued: start, Expires: start.Add(7 * 24 * time.Hour)}}
	for _, tt := range []struct {
		name  string
		given *Credential
		after time.Duration
		want  bool
	}{
		{name: "young", given: &Credential{token: hour, loaded: start}, after: 29 * time.Minute},
		{name: "at half of its life", given: &Credential{token: hour, loaded: start.Add(time.Minute)},
			after: 30 * time.Minute, want: true},
		{name: "expired", given: &Credential{token: hour, loaded: start.Add(time.Hour)}, after: 2 * time.Hour, want: true},
		{name: "rejected", given: &Credential{token: hour, unauthorized: true}, after: 30 * time.Minute},
		{name: "of a week, young", given: &Credential{token: week, loaded: start}, after: 23 * time.Hour},
		{name: "of a week, after a day", given: &Credential{token: week, loaded: start}, after: 24 * time.Hour, want: true},
		{name: "says nothing", given: &Credential{token: token{text: "opaque"}}, after: time.Hour},
		{name: "our clock is an hour ahead", given: &Credential{token: hour, loaded: start.Add(time.Hour), own: true},
			after: 89 * time.Minute},
		{name: "and half of its life is over", given: &Credential{token: hour, loaded: start.Add(time.Hour), own: true},
			after: 90 * time.Minute, want: true},
		{name: "our clock is behind", given: &Credential{token: hour, loaded: start.Add(-time.Hour)},
			after: -59 * time.Minute, want: true},
		{name: "behind, and renewed", given: &Credential{token: hour, loaded: start.Add(-time.Hour), own: true},
			after: -59 * time.Minute},
		{name: "our clock was set back", given: &Credential{token: hour, loaded: start.Add(-20 * time.Minute)},
			after: 10 * time.Minute, want: true},
	} {
		if got := tt.given.due(start.Add(tt.after), 0.5); got != tt.want {
			t.Errorf("%s: due = %t, want %t", tt.name, got, tt.want)
		}
	}
	now := time.Now()
	renewed := &Credential{token: week, loaded: now, own: true}
	if !renewed.due(clocks.SetWall(now, 164*time.Hour), 0.5) {
		t.Error("the machine slept for 164 hours: not due, want due")
	}
	if !renewed.due(clocks.SetWall(now.Add(24*time.Hour), -time.Hour), 0.5) {
		t.Error("the clock was set back within a day: not due, want due")
	}
}

// docs/spec/controller.md 2.4: a newer token replaces the current one, and any other one replaces a current one that
// the broker rejects.
func TestTokenIsReplaced(t *testing.T) {
	at := func(text string, issued int64) token {
		return token{text: text, Token: apiserver.Token{Issued: time.Unix(issued, 0)}}
	}
	for _, tt := range []struct {
		name     string
		old, now token
		rejected string // the token that the broker rejected last
		want     bool
	}{
		{name: "the first", now: at("a", 1), want: true},
		{name: "the same", old: at("a", 1), now: at("a", 1)},
		{name: "none", old: at("a", 1), now: token{}},
		{name: "issued later", old: at("a", 1), now: at("b", 2), want: true},
		{name: "issued earlier", old: at("a", 2), now: at("b", 1)},
		{name: "opaque ones", old: token{text: "a"}, now: token{text: "b"}, want: true},
		{name: "issued earlier, and the old one is rejected", old: at("a", 2), now: at("b", 1), rejected: "a", want: true},
		{name: "the same, which is rejected", old: at("a", 2), now: at("a", 2), rejected: "a"},
		{name: "none, and the old one is rejected", old: at("a", 2), now: token{}, rejected: "a"},
		{name: "issued later, but rejected before", old: at("b", 1), now: at("a", 2), rejected: "a"},
	} {
		if got := (&Credential{token: tt.old, rejected: tt.rejected}).replacedBy(tt.now); got != tt.want {
			t.Errorf("%s: replaced = %t, want %t", tt.name, got, tt.want)
		}
	}
}

// A 401 marks the current token as rejected, until the broker accepts that token. Another token is tried once.
func TestTokenIsRejected(t *testing.T) {
	a, b := token{text: "a"}, token{text: "b"}
	c := &Credential{token: a}
	for i, step := range []struct {
		current, answered token
		unauthorized      bool
		rejects           bool
		rejected          string
	}{
		{current: a, answered: a},
		{current: a, answered: a, unauthorized: true, rejects: true, rejected: "a"},
		{current: b, answered: a, rejects: true, rejected: "a"}, // a late response
		{current: b, answered: b, rejected: "a"},
		{current: b, answered: b, unauthorized: true, rejects: true, rejected: "b"},
		{current: b, answered: b},
	} {
		c.token = step.current
		c.answered(step.answered, step.unauthorized)
		if got := c.Rejected() != ""; got != step.rejects || c.rejected != step.rejected {
			t.Errorf("step %d: rejected = %t, last %q; want %t, %q", i, got, c.rejected, step.rejects, step.rejected)
		}
	}
}

func TestReadToken(t *testing.T) {
	for _, text := range []string{"", "opaque", "a.b.c", "a.e30.c", "....", "a.bnVsbA.c"} {
		if got := readToken(text); got.text != text || got.Life() != 0 {
			t.Errorf("token %q = %+v, want that it says nothing", text, got)
		}
	}
}

// A kubeconfig with an impossible server is an error that names the server.
func TestServerOfKubeconfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	c := clientcmdapi.NewConfig()
	c.Clusters["broker"] = &clientcmdapi.Cluster{Server: "::"}
	c.Contexts["broker"] = &clientcmdapi.Context{Cluster: "broker", Namespace: "member-east"}
	c.CurrentContext = "broker"
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	if l, err := LoadLink(path, ""); err == nil || l.Digest != "" || !strings.Contains(err.Error(), `"::"`) {
		t.Errorf("link = %+v, error %v; want an error with the server", l, err)
	}
}
