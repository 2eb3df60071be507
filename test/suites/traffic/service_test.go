//go:build traffic && linux

package traffic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/test/harness/nodeenv"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

var endpointSlices = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}

// A service is what a member offers.
type service = nodeenv.Service

// podPort is where the pods listen for a port of their Service.
func podPort(port int32) int32 { return nodeenv.PodPort(port) }

// offer creates the Service and its pods, which are ready at once, and returns their addresses. It waits for the slices
// that the endpointslice controller makes of them.
func (m *member) offer(t *testing.T, s service) []netip.Addr {
	t.Helper()
	pods, err := m.Offer(t.Context(), s)
	must(t, err)
	until.OK(t, fmt.Sprintf("slices of %s in %s", s.Name, m.ID), func(context.Context) error {
		if got := m.ready(t, s.Name); got != len(pods) {
			return fmt.Errorf("%d ready endpoints, want %d", got, len(pods))
		}
		return nil
	})
	return pods
}

// export makes the member export the service.
func (m *member) export(t *testing.T, name string) {
	t.Helper()
	m.Put(t, testclusterset.Export(namespace, name))
}

// unexport makes it export the service no longer.
func (m *member) unexport(t *testing.T, name string) {
	t.Helper()
	m.Drop(t, testclusterset.Export(namespace, name))
}

// exported waits until the export has reached the broker.
func (m *member) exported(t *testing.T, name string) {
	t.Helper()
	m.awaitReady(t, name, "Ready=True/Exported")
}

// slicesOf returns the slices with this label.
func (m *member) slicesOf(t *testing.T, label, value string) (all []discoveryv1.EndpointSlice) {
	t.Helper()
	list, err := m.Dynamic().Resource(endpointSlices).Namespace(namespace).
		List(t.Context(), metav1.ListOptions{LabelSelector: label + "=" + value})
	must(t, err)
	for _, u := range list.Items {
		var s discoveryv1.EndpointSlice
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s))
		all = append(all, s)
	}
	return all
}

func (m *member) ready(t *testing.T, service string) (endpoints int) {
	t.Helper()
	for _, s := range m.slicesOf(t, discoveryv1.LabelServiceName, service) {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				endpoints++
			}
		}
	}
	return endpoints
}

// A destination is what a client is told to connect to: a name, and a port unless it asks for SRV records.
type destination struct {
	name string
	port int32  // 0 means that of the SRV records
	srv  string // the name of the port
}

// importName is the name of an imported service, with labels in front of it.
func importName(service string, labels ...string) string {
	return strings.Join(append(labels, service, namespace, "svc", zone, ""), ".")
}

// families are those in which everything is reached.
var families = []string{"ip4", "ip6"}

// reaches waits until clients in the member reach, at the destination and in each family, those of the pods that have
// it, and no others: by their addresses, at the port where they listen.
func (m *member) reaches(t *testing.T, d destination, port int32, want ...netip.Addr) {
	t.Helper()
	for _, family := range families {
		var pods []string
		for _, a := range want {
			if a.Is4() == (family == "ip4") {
				pods = append(pods, netip.AddrPortFrom(a, uint16(port)).String())
			}
		}
		slices.Sort(pods)
		until.OK(t, fmt.Sprintf("from %s to %+v by %s", m.ID, d, family), func(context.Context) error {
			got, err := m.connect(t.Context(), d, family, 30*len(pods))
			if err == nil && !slices.Equal(got, pods) {
				err = fmt.Errorf("reached %s, want %s", got, pods)
			}
			return err
		})
	}
}

// lacks waits until there is no such destination for clients in the member.
func (m *member) lacks(t *testing.T, d destination) {
	t.Helper()
	until.OK(t, fmt.Sprintf("from %s to %+v", m.ID, d), func(context.Context) error {
		targets, err := m.resolve(t.Context(), d, "ip")
		if missing := new(net.DNSError); errors.As(err, &missing) && missing.IsNotFound {
			return nil
		}
		return fmt.Errorf("got %v (%w), want that there is no such name", targets, err)
	})
}

// answersVIP waits until the name of the service leads to the addresses of a Service of this member, which are those of
// the import: the DNS server has a watch of its own.
func (m *member) answersVIP(t *testing.T, service string) {
	t.Helper()
	until.OK(t, fmt.Sprintf("addresses of %s in %s", importName(service), m.ID), func(context.Context) error {
		imp, err := m.Import(t.Context(), namespace, service)
		if err != nil {
			return err
		}
		got, err := m.resolver.LookupNetIP(t.Context(), "ip", importName(service))
		if err != nil {
			return err
		}
		var addresses []string
		for _, a := range got {
			addresses = append(addresses, a.Unmap().String())
		}
		slices.Sort(addresses)
		if want := slices.Sorted(slices.Values(imp.Spec.IPs)); len(want) != len(families) || !slices.Equal(addresses, want) {
			return fmt.Errorf("%s, want those of the import, %s, of both families", addresses, want)
		}
		return nil
	})
}

// connect connects that many times, to all addresses in turn, and returns the addresses at which pods accepted, sorted.
func (m *member) connect(ctx context.Context, d destination, family string, times int) ([]string, error) {
	targets, err := m.resolve(ctx, d, family)
	if err != nil {
		return nil, err
	}
	reached := map[string]bool{}
	for i := range times {
		r, err := m.Node.Connect(ctx, targets[i%len(targets)])
		if err != nil {
			return nil, err
		}
		reached[r.Pod.String()] = true
	}
	return slices.Sorted(maps.Keys(reached)), nil
}

// resolve returns at least one address.
func (m *member) resolve(ctx context.Context, d destination, family string) (targets []netip.AddrPort, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	hosts := map[string]uint16{d.name: uint16(d.port)}
	if d.port == 0 {
		_, records, err := m.resolver.LookupSRV(ctx, d.srv, "tcp", d.name)
		if err != nil {
			return nil, err
		}
		clear(hosts)
		for _, r := range records {
			hosts[r.Target] = r.Port
		}
	}
	for host, port := range hosts {
		addresses, err := m.resolver.LookupNetIP(ctx, family, host)
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			targets = append(targets, netip.AddrPortFrom(a.Unmap(), port))
		}
	}
	return targets, nil
}
