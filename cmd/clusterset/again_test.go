package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A rejecting stands before an API server and rejects one write, with an error that has no remedy.
type rejecting struct {
	kubeconfig string
	left       atomic.Int64 // writes that succeed until the next one is rejected; less than 0: all succeed
	count      atomic.Int64 // writes that succeeded
}

const rejected = "the test rejects this write"

// failure is an error that names the write and its object.
var failure = regexp.MustCompile(`^error: .*\b(apply|create|update|delete|delete all|issue a token for|write) \S+.*: .*` + rejected)

func reject(t *testing.T, c *controlplane.ControlPlane) *rejecting {
	t.Helper()
	transport, err := rest.TransportFor(c.Config())
	must(t, err)
	to, err := url.Parse(c.Config().Host)
	must(t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport}
	r := &rejecting{}
	r.left.Store(-1)
	proxy.ModifyResponse = func(a *http.Response) error {
		// Not those that the API server rejects: a command repeats some until a policy lets them pass.
		if a.Request.Method != http.MethodGet && a.StatusCode < http.StatusBadRequest {
			r.count.Add(1)
			r.left.Add(-1)
		}
		return nil
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodGet {
			if r.left.CompareAndSwap(0, -1) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusUnprocessableEntity)
				_ = json.NewEncoder(w).Encode(metav1.Status{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
					Code: http.StatusUnprocessableEntity, Message: rejected,
				})
				return
			}
		}
		proxy.ServeHTTP(w, q)
	}))
	t.Cleanup(server.Close)
	r.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(r.kubeconfig, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "%s"}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
users: [{name: a, user: {}}]
current-context: a
`, server.URL), 0o600))
	return r
}

// TestAgain rejects one write of a command, in the middle or the last one. The command names the object and says that
// it can be run again, and a second run leads to the objects of an undisturbed run. TestCrash in package admin goes
// through all writes of join and leave.
func TestAgain(t *testing.T) {
	tier.All(t)
	hub := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}})
	east := controlplane.StartT(t, controlplane.Options{CRDs: [][]byte{}, ServiceCIDR: "10.97.0.0/16"})
	hub.EndNamespacesT(t)
	east.EndNamespacesT(t)
	server, err := os.ReadFile("../../admin/wiring/testdata/kubeadm.yaml")
	must(t, err)
	must(t, east.ApplyYAML(t.Context(), []byte(strings.ReplaceAll(string(server), "10.96.0.10", "10.97.0.10"))))
	onHub, onEast := reject(t, hub), reject(t, east)
	broker, member := "--broker-kubeconfig="+onHub.kubeconfig, "--kubeconfig="+onEast.kubeconfig

	// Each command writes more on one of the two, which rejects one of its writes.
	commands := []struct {
		args []string
		at   *rejecting
		on   *controlplane.ControlPlane
		more func() // what others do after it
	}{
		{args: []string{"broker", "init", broker}, at: onHub, on: hub},
		{args: []string{"join", broker, member, "--cluster-id=east", "--components=none",
			"--broker-server=" + hub.Config().Host}, at: onEast, on: east,
			more: func() { must(t, east.ApplyYAML(t.Context(), []byte(clustersetDNS))) }},
		{args: []string{"dns", "apply", member, "--wait=false", "--ask=127.0.0.1:1"}, at: onEast, on: east},
		{args: []string{"leave", broker, member}, at: onHub, on: hub},
		{args: []string{"uninstall", member}, at: onEast, on: east},
		{args: []string{"broker", "uninstall", broker}, at: onHub, on: hub},
	}
	writes := make([]int64, len(commands))
	objects := make([]map[string]bool, len(commands))
	for i, c := range commands {
		before := c.at.count.Load()
		want(t, exitOK, nil, c.args...)
		writes[i] = c.at.count.Load() - before
		objects[i] = mustInventory(t, c.on)
		if c.more != nil {
			c.more()
		}
	}
	if t.Failed() {
		return
	}
	for _, part := range []int64{1, 2} {
		for i, c := range commands {
			k := max(1, writes[i]*part/2)
			name := fmt.Sprintf("%s, write %d of %d is rejected", strings.Join(c.args[:2], " "), k, writes[i])
			c.at.left.Store(k - 1)
			_, out, errOut := command(t, c.args...)
			last := errOut[strings.LastIndex(errOut[:max(len(errOut)-1, 0)], "\n")+1:]
			if !failure.MatchString(last) || k > 1 && !strings.Contains(last, "run the same command again to do the rest") {
				t.Errorf("%s: it printed\n%s%swant the error, what it was about, and that it can be run again", name, out, errOut)
			}
			c.at.left.Store(-1)
			want(t, exitOK, nil, c.args...)
			until.OK(t, name, func(ctx context.Context) error {
				got, err := inventory(ctx, c.on)
				if err == nil && !maps.Equal(got, objects[i]) {
					err = fmt.Errorf("objects after the second run:\n%s\nof one without a fault:\n%s",
						strings.Join(slices.Sorted(maps.Keys(got)), "\n"), strings.Join(slices.Sorted(maps.Keys(objects[i])), "\n"))
				}
				return err
			})
			if c.more != nil {
				c.more()
			}
		}
		if t.Failed() {
			return
		}
	}
}
