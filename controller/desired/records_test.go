package desired

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// The helpers below repeat those of package merge: no other package can use its test files.

var shop = types.NamespacedName{Namespace: "shop", Name: "db"}

func hour(h int) metav1.Time { return metav1.NewTime(time.Date(2026, 3, 1, h, 0, 0, 0, time.UTC)) }

// record returns an export of shop/db by cluster, created at hour h, which the broker got a minute later.
func record(cluster string, h int, with ...func(*v1alpha1.ExportedServiceSpec)) merge.Record {
	r := merge.Record{
		Cluster: cluster, Admitted: hour(0), Created: metav1.NewTime(hour(h).Add(time.Minute)),
		Spec: v1alpha1.ExportedServiceSpec{
			Namespace: shop.Namespace, Name: shop.Name, Type: v1alpha1.ClusterSetIP, ExportCreated: hour(h),
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, SessionAffinity: corev1.ServiceAffinityNone,
		},
	}
	ports("http/TCP/80")(&r.Spec)
	for _, f := range with {
		f(&r.Spec)
	}
	return r
}

// ports sets ports of the form "name/TCP/80", "/TCP/80" or "name/TCP/80/h2c".
func ports(list ...string) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) {
		s.Ports = nil
		for _, text := range list {
			part := strings.Split(text, "/")
			number, err := strconv.Atoi(part[2])
			if err != nil {
				panic(err)
			}
			p := v1alpha1.ServicePort{Name: part[0], Protocol: corev1.Protocol(part[1]), Port: int32(number)}
			if len(part) > 3 {
				p.AppProtocol = &part[3]
			}
			s.Ports = append(s.Ports, p)
		}
	}
}

func families(f ...corev1.IPFamily) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) { s.IPFamilies = f }
}

func headless(s *v1alpha1.ExportedServiceSpec) { s.Type = v1alpha1.Headless }

func clientIP(seconds int32) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) {
		s.SessionAffinity = corev1.ServiceAffinityClientIP
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
}

func label(key, value string) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) {
		s.Labels = append(s.Labels, v1alpha1.Label{Key: key, Value: value})
	}
}

func annotation(key, value string) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) {
		s.Annotations = append(s.Annotations, v1alpha1.Annotation{Key: key, Value: value})
	}
}

func distribution(value string) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) { s.TrafficDistribution = &value }
}

func policy(value corev1.ServiceInternalTrafficPolicy) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) { s.InternalTrafficPolicy = &value }
}

const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol

func pools() []merge.Pool {
	return []merge.Pool{
		{Cluster: "a", Prefix: netip.MustParsePrefix("243.0.0.0/16")},
		{Cluster: "a", Prefix: netip.MustParsePrefix("fd17:87d8:f436::/112")},
		{Cluster: "b", Prefix: netip.MustParsePrefix("243.1.0.0/16")},
	}
}

// vip makes the request for a clusterset IP.
func vip(wanted bool) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) { s.VIP = &v1alpha1.VIP{Wanted: wanted} }
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
	s := &r.Spec
	s.Type = pick(g, v1alpha1.ClusterSetIP, v1alpha1.ClusterSetIP, v1alpha1.Headless)
	s.IPFamilies = pick(g, [][]corev1.IPFamily{{v4}, {v6}, {v4, v6}, {v6, v4}}...)
	s.Ports = nil
	for range g.IntN(4) {
		p := v1alpha1.ServicePort{
			Name: pick(g, "", "http", "dns"), Protocol: pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP),
			Port:        int32(1 + g.IntN(3)),
			AppProtocol: pick(g, nil, nil, new("h2c")),
		}
		s.Ports = append(s.Ports, p)
		if s.Validate() != nil {
			s.Ports = s.Ports[:len(s.Ports)-1]
		}
	}
	if g.IntN(3) == 0 {
		clientIP(pick[int32](g, 10, 20))(s)
	}
	s.TrafficDistribution = pick(g, nil, nil, new("PreferClose"))
	s.InternalTrafficPolicy = pick(g, nil, new(corev1.ServiceInternalTrafficPolicyCluster),
		new(corev1.ServiceInternalTrafficPolicyLocal))
	for _, f := range []func(*v1alpha1.ExportedServiceSpec){label("x", "1"), label("y", "2"), annotation("x", "1")} {
		if g.IntN(3) == 0 {
			f(s)
		}
	}
	s.VIP = pick(g, nil, &v1alpha1.VIP{}, &v1alpha1.VIP{Wanted: true})
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
