package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

const localPod = `
apiVersion: v1
kind: Service
metadata: {name: db, namespace: reverse}
spec: {clusterIP: None, ports: [{name: pg, port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: reverse, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: pg, port: 5432}]
endpoints: [{addresses: [10.9.0.1], hostname: db-0}]
`

// importedPod has the labels of docs/spec/controller.md 5.5.
const importedPod = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: imported-1
  namespace: reverse
  labels:
    multicluster.kubernetes.io/service-name: db
    multicluster.kubernetes.io/source-cluster: east
    endpointslice.kubernetes.io/managed-by: controller.clusterset-dns.io
    service.kubernetes.io/headless: ""
    kubernetes.io/service-name: derived-0123456789
addressType: IPv4
ports: [{name: pg, port: 5432}]
endpoints: [{addresses: [10.9.0.1], hostname: db-0}]
`

// testReverse asks CoreDNS's plugin kubernetes for the name of a Pod of this cluster, before its service is imported,
// meanwhile and afterwards. Without a name in kubernetes.io/service-name the plugin makes a name with an empty label of
// the imported slice, and its reply cannot be packed: see docs/differences.md.
func testReverse(t *testing.T, c *controlplane.ControlPlane, peer string) {
	local, imported := objectsOf(t, localPod), objectsOf(t, importedPod)
	if err := c.Apply(t.Context(), namespacesFirst(local)...); err != nil {
		t.Fatal(err)
	}
	defer remove(t, c, local)
	p := port(t)
	source := "startup_timeout 5m\nkubeconfig " + c.Kubeconfig() + "\n"
	startProgram(t, peer, block([]string{"."}, p,
		"kubernetes cluster.local in-addr.arpa {\n"+source+"}\nclusterset clusterset.local {\n"+source+"}\n"), p)

	const own, derived = "db-0.db.reverse.svc.cluster.local.", "db-0.derived-0123456789.reverse.svc.cluster.local."
	awaitPTR(t, p, own)
	if err := c.Apply(t.Context(), imported...); err != nil {
		t.Fatal(err)
	}
	awaitPTR(t, p, own, derived)
	remove(t, c, imported)
	awaitPTR(t, p, own)
}

func awaitPTR(t *testing.T, p *controlplane.Port, want ...string) {
	t.Helper()
	client := dns.Client{Timeout: 10 * time.Second}
	question := new(dns.Msg).SetQuestion("1.0.9.10.in-addr.arpa.", dns.TypePTR)
	until.OK(t, "PTR "+strings.Join(want, " "), func(ctx context.Context) error {
		reply, _, err := client.ExchangeContext(ctx, question, p.String())
		if err != nil {
			return err
		}
		var got []string
		for _, rr := range reply.Answer {
			got = append(got, rr.(*dns.PTR).Ptr)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("got %s %q, want %q", dns.RcodeToString[reply.Rcode], got, want)
		}
		return nil
	})
}
