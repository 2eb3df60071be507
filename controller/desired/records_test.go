package desired

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/exportspec"
)

// See package exportspec.
var (
	shop, hour                          = exportspec.Shop, exportspec.Hour
	ports, families, headless, clientIP = exportspec.Ports, exportspec.Families, exportspec.Headless, exportspec.ClientIP
	label, annotation                   = exportspec.Label, exportspec.Annotation
	distribution, policy, vip           = exportspec.Distribution, exportspec.Policy, exportspec.VIP
)

const v4, v6 = exportspec.V4, exportspec.V6

// record returns an export of shop/db by cluster, created at hour h, which the broker got a minute later.
func record(cluster string, h int, with ...func(*v1alpha1.ExportedServiceSpec)) merge.Record {
	return merge.Record{Cluster: cluster, Admitted: hour(0), Created: metav1.NewTime(hour(h).Add(time.Minute)),
		Spec: exportspec.New(h, with...)}
}

func pools() []merge.Pool {
	return []merge.Pool{
		{Cluster: "a", Prefix: netip.MustParsePrefix("243.0.0.0/16")},
		{Cluster: "a", Prefix: netip.MustParsePrefix("fd17:87d8:f436::/112")},
		{Cluster: "b", Prefix: netip.MustParsePrefix("243.1.0.0/16")},
	}
}

// claims returns what inventories with stamp 7 say, from texts such as "a 243.0.0.1 3": since an hour. The members are
// known since hour 0.
func claims(texts ...string) (all []merge.Claim) {
	for _, text := range texts {
		var c merge.Claim
		var ip string
		var since int
		if _, err := fmt.Sscan(text, &c.Cluster, &ip, &since); err != nil {
			panic(err)
		}
		c.IP, c.Stamp, c.Since, c.Admitted = netip.MustParseAddr(ip), 7, hour(since), hour(0)
		all = append(all, c)
	}
	return all
}

// A generator makes exports that meet often: few names, few numbers, few times.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 1))} }

func pick[T any](g generator, values ...T) T { return values[g.IntN(len(values))] }

var clusters = []string{"a", "b", "c.d", "east", "west"}

func (g generator) record(cluster string) merge.Record {
	r := record(cluster, g.IntN(5))
	r.Admitted, r.Created = hour(g.IntN(3)), hour(g.IntN(6))
	if g.IntN(10) == 0 {
		r.Created = metav1.Time{}
	}
	exportspec.Randomize(g.Rand, &r.Spec)
	return r
}

// address is in the VIP CIDR of a cluster.
func (g generator) address(by int) netip.Addr {
	if g.IntN(3) == 0 {
		return netip.MustParseAddr(fmt.Sprintf("fd17:87d8:f436:%d::%d", by, 1+g.IntN(2)))
	}
	return netip.MustParseAddr(fmt.Sprintf("243.%d.0.%d", by, 1+g.IntN(2)))
}

func (g generator) records() []merge.Record {
	var records []merge.Record
	for _, cluster := range clusters[:g.IntN(len(clusters)+1)] {
		records = append(records, g.record(cluster))
	}
	if len(records) > 0 && g.IntN(5) == 0 {
		records = append(records, g.record(records[0].Cluster)) // a second one of a cluster
	}
	return records
}

func (g generator) options() merge.Options {
	o := merge.Options{Mode: pick(g, "", merge.KEP, merge.Lighthouse, merge.First)}
	o.VIP = pick(g, merge.Derived, merge.CIDR, merge.NoVIP)
	o.VIPNetworks = pick(g, merge.VIPNetworks{}, merge.DefaultVIPNetworks)
	v := &o.VIPs
	v.Stamps = make(map[string]int64)
	for i, cluster := range clusters {
		for _, network := range []string{"243.%d.0.0/16", "fd17:87d8:f436:%d::/64"} {
			prefix := netip.MustParsePrefix(fmt.Sprintf(network, i))
			v.Pools = append(v.Pools, merge.Pool{Cluster: cluster, Prefix: prefix})
		}
		v.Stamps[cluster] = int64(g.IntN(3))
		if g.IntN(2) == 0 {
			v.Claims = append(v.Claims, merge.Claim{
				Address: merge.Address{IP: g.address(g.IntN(len(clusters))), Cluster: cluster, Stamp: v.Stamps[cluster]},
				Since:   hour(g.IntN(5)), Admitted: hour(g.IntN(2)), Created: pick(g, metav1.Time{}, hour(2+g.IntN(4))),
			})
		}
		if g.IntN(6) == 0 {
			v.Has = append(v.Has, merge.Address{
				IP: g.address(i), Cluster: cluster, Stamp: int64(g.IntN(3)), Exported: g.IntN(2) == 0,
			})
		}
		if g.IntN(6) == 0 {
			v.Removed, v.Taken = append(v.Removed, cluster), append(v.Taken, g.address(i))
		}
	}
	return o
}

// slices returns those that a cluster offers; some are not worth having.
func (g generator) slices(cluster string) []*discoveryv1.EndpointSlice {
	var list []*discoveryv1.EndpointSlice
	for i := range g.IntN(3) {
		s := slice(cluster, fmt.Sprintf("%s-%d", cluster, i),
			pick(g, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6))
		for range g.IntN(3) {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{pick(g, "10.1.0.1", "fd00:1::1", "127.0.0.1", "8.8.8.8")},
				Conditions: discoveryv1.EndpointConditions{Ready: pick(g, nil, new(true), new(false))},
			})
		}
		for _, name := range []string{"", "http", "dns"} {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: new(int32(8080)),
				Protocol: new(pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP))})
		}
		list = append(list, s)
	}
	return list
}

func slice(cluster, source string, family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: broker.SliceName(shop.Namespace, shop.Name, source),
			Labels: map[string]string{
				"multicluster.kubernetes.io/service-name":   shop.Name,
				"multicluster.kubernetes.io/source-cluster": cluster,
				broker.LabelSourceNamespace:                 shop.Namespace,
			},
		},
		AddressType: family,
	}
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
