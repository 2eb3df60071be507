package controlplane

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/rest"
)

// lateVariable names the environment variable that makes lists and watches of the clients in this process late: each
// answer and each event by a random time up to its value, such as "600ms". A test fails then if it waits for one watch,
// but needs another one, too.
const lateVariable = "CLUSTERSET_LATE"

// late returns c, or with [lateVariable] a configuration of late clients.
func late(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	text := os.Getenv(lateVariable)
	if text == "" {
		return c
	}
	most, err := time.ParseDuration(text)
	if err != nil || most <= 0 {
		panic(fmt.Sprintf("%s %q: want a duration above 0, such as 600ms", lateVariable, text))
	}
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return lateTransport{next, most} })
	return c
}

type lateTransport struct {
	next http.RoundTripper
	most time.Duration
}

func (t lateTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		return t.next.RoundTrip(r)
	}
	holdBack(t.most, r.Context().Done())
	response, err := t.next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "" {
		response.Body = lateBody{response.Body, t.most, r.Context().Done()}
	}
	return response, err
}

type lateBody struct {
	io.ReadCloser
	most time.Duration
	done <-chan struct{}
}

// Read makes half of the pieces late: a watch that begins with a list has many.
func (b lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if rand.N(2) == 0 {
		holdBack(b.most, b.done)
	}
	return n, err
}

func holdBack(most time.Duration, done <-chan struct{}) {
	select {
	case <-time.After(rand.N(most)):
	case <-done:
	}
}
