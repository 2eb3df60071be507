package testclusterset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/controller/page"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A StatusPage is the status page of a controller. Pass Serve to what runs that one. The zero value is ready.
type StatusPage struct {
	mu  sync.Mutex
	url string // "" until it is served
}

// Serve has the controller serve its page at a free port.
func (p *StatusPage) Serve(c *controller.Config) {
	c.StatusPage = netip.MustParseAddrPort("127.0.0.1:0")
	c.Log = pageLog{c.Log, p}
}

// pageLog takes the address of the page from the log.
type pageLog struct {
	logging.Logger
	page *StatusPage
}

// Infof implements [logging.Logger].
func (l pageLog) Infof(format string, args ...any) {
	if url, ok := strings.CutPrefix(fmt.Sprintf(format, args...), "status page: "); ok {
		l.page.mu.Lock()
		l.page.url = strings.TrimSuffix(url, "/")
		l.page.mu.Unlock()
	}
	l.Logger.Infof(format, args...)
}

// Get returns the document at a path of the page.
func (p *StatusPage) Get(ctx context.Context, path string) (string, error) {
	p.mu.Lock()
	url := p.url
	p.mu.Unlock()
	if url == "" {
		return "", errors.New("the page is not served yet")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
	if err != nil {
		return "", err
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, reply.Status, body)
	}
	return string(body), err
}

// Await waits until check returns nil for the status, and for the page that is read after it.
func (p *StatusPage) Await(t testing.TB, what string, check func(s page.Status, html string) error) {
	t.Helper()
	until.OK(t, "status page: "+what, func(ctx context.Context) error {
		text, err := p.Get(ctx, "/status.json")
		if err != nil {
			return err
		}
		var s page.Status
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return err
		}
		html, err := p.Get(ctx, "/")
		if err != nil {
			return err
		}
		if err := check(s, html); err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
}

// MemberStates returns the states of the members by id.
func MemberStates(s page.Status) map[string]page.MemberState {
	states := make(map[string]page.MemberState)
	for _, m := range s.Members {
		states[m.ID] = m.State
	}
	return states
}
