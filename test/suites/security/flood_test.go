package security

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/series"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// most is how many objects of each kind mallory may have.
const most = 10

// TestFlood lets mallory write as many objects and then send as many requests as she can. The other members are not
// affected.
func TestFlood(t *testing.T) {
	tier.All(t)
	f := start(t)
	e, w, m := members(f)
	run(t, e)
	run(t, w)
	joinMember(t, m, func(o *join.Options) { o.Quota = join.Quota{Exports: most, Slices: most, Leases: 1} })
	shared.quotas.Do(func() {
		if err := f.Broker.StartControllers(t.Context(), "resourcequota-controller"); err != nil {
			t.Fatal(err)
		}
	})
	mallory := newAttacker(t, f, m)
	if err := f.Broker.AwaitQuotas(t.Context(), m.BrokerNamespace()); err != nil {
		t.Fatal(err)
	}
	mark(t, e, w)
	t.Run("objects", func(t *testing.T) {
		for _, v := range []*testclusterset.Member{e, w} {
			v.Put(t, testclusterset.Namespace("flood"))
		}
		mallory.fill(t)
		mark(t, e, w)
	})
	t.Run("requests", func(t *testing.T) {
		before := brokerRejections(t, f.Broker)
		flood := mallory.flood(t, f.Broker)
		defer flood.stop()
		hers := "clusterset-" + m.BrokerNamespace()
		for range 3 {
			mark(t, e, w)
		}
		// Not until any of her requests gets a 429: on a busy machine one may get it because it has waited for too long.
		until.OK(t, "rejections because the queues of flow schema "+hers+" are full", func(context.Context) error {
			if mark(t, e, w); brokerRejections(t, f.Broker)[hers] == before[hers] {
				return fmt.Errorf("still %v, and %d requests were rejected for any reason", before[hers], flood.rejected.Load())
			}
			return nil
		})
		flood.stop()
		if flood.strange.Load() > 0 {
			t.Errorf("%d requests of mallory were of another flow schema than hers", flood.strange.Load())
		}
		after := brokerRejections(t, f.Broker)
		for schema, rejected := range after {
			if schema != hers && rejected > before[schema] {
				t.Errorf("%v requests of flow schema %s were rejected, want those of %s alone", rejected-before[schema], schema, hers)
			}
		}
	})
	mallory.withdraw(t, e, w)
}

// fill writes more records and slices than the quota allows.
func (h attacker) fill(t *testing.T) {
	t.Helper()
	var rejected [2]int
	for i := range 2 * most {
		r, s := h.export("flood", fmt.Sprintf("f%d", i), "10.23.0.1")
		for kind, err := range []error{h.do(t.Context(), "apply", r), h.do(t.Context(), "apply", s)} {
			switch {
			case err == nil:
			case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: member"):
				rejected[kind]++
			default:
				t.Fatal(err)
			}
		}
	}
	for kind, r := range []schema.GroupVersionResource{records, exported} {
		list, err := h.client.Resource(r).Namespace(h.BrokerNamespace()).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != most || rejected[kind] != most {
			t.Errorf("%d %s were written and %d rejected, want %d each", len(list.Items), r.Resource, rejected[kind], most)
		}
	}
}

// The number of requests that mallory keeps open: more than fit into the queues of her flow (4 with 50 each).
const (
	connections = 4  // an API server takes 100 requests at a time on each
	requests    = 80 // on each
)

// A flood sends requests until it is stopped.
type flood struct {
	cancel     context.CancelFunc
	group      sync.WaitGroup
	transports []*http.Transport
	rejected   atomic.Int64 // with 429
	strange    atomic.Int64 // of another flow schema
}

func (h attacker) flood(t *testing.T, c *controlplane.ControlPlane) *flood {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", h.BrokerKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	fl := &flood{cancel: cancel}
	schema := flowSchema(t, c, "clusterset-"+h.BrokerNamespace())
	h.awaitFlowSchema(t, config, schema)
	for range connections {
		tls, err := rest.TLSConfigFor(config)
		if err != nil {
			t.Fatal(err)
		}
		// Not the transport of client-go, which is one for all clients of one configuration.
		transport := &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true}
		fl.transports = append(fl.transports, transport)
		for range requests {
			fl.group.Go(func() {
				for ctx.Err() == nil {
					fl.ask(ctx, transport, config, schema)
				}
			})
		}
	}
	t.Cleanup(fl.stop)
	return fl
}

// awaitFlowSchema waits until the API server assigns requests to the flow schema.
func (h attacker) awaitFlowSchema(t *testing.T, config *rest.Config, schema string) {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	until.OK(t, "flow schema", func(ctx context.Context) error {
		got, _, err := listRecords(ctx, transport, config)
		if err == nil && got != schema {
			err = fmt.Errorf("%s, want %s", got, schema)
		}
		return err
	})
}

// listRecords lists all records of all members, and returns the flow schema of the request and the status.
func listRecords(ctx context.Context, transport http.RoundTripper, config *rest.Config) (schema string, status int,
	err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		config.Host+"/apis/broker.clusterset-dns.io/v1alpha1/exportedservices", http.NoBody)
	if err != nil {
		return "", 0, err
	}
	request.Header.Set("Authorization", "Bearer "+config.BearerToken)
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return "", 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.Header.Get("X-Kubernetes-PF-FlowSchema-UID"), answer.StatusCode, err
}

// ask sends one request. It ignores errors.
func (fl *flood) ask(ctx context.Context, transport http.RoundTripper, config *rest.Config, schema string) {
	got, status, _ := listRecords(ctx, transport, config)
	if status == 0 {
		return
	}
	if got != schema {
		fl.strange.Add(1)
	}
	if status == http.StatusTooManyRequests {
		fl.rejected.Add(1)
		select { // A higher rate would only take processor time from the others.
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (fl *flood) stop() {
	fl.cancel()
	fl.group.Wait()
	for _, transport := range fl.transports {
		transport.CloseIdleConnections()
	}
}

// flowSchema returns the UID of a flow schema.
func flowSchema(t *testing.T, c *controlplane.ControlPlane, name string) string {
	t.Helper()
	r := c.Dynamic().Resource(schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1",
		Resource: "flowschemas"})
	s, err := r.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(s.GetUID())
}

// brokerRejections returns how many requests an API server has rejected because the queues of their flow were full, by
// flow schema. On a busy machine others are rejected, too, which waited for too long.
func brokerRejections(t *testing.T, c *controlplane.ControlPlane) map[string]float64 {
	t.Helper()
	all, err := series.OfAPIServer(t.Context(), c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return all.Named("apiserver_flowcontrol_rejected_requests_total").With("reason", "queue-full").By("flow_schema")
}
