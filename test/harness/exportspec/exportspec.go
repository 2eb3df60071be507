// Package exportspec makes exports for the tests of packages that merge them.
package exportspec

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// V4 and V6 are the IP families.
const V4, V6 = corev1.IPv4Protocol, corev1.IPv6Protocol

// Shop is the service of all exports.
var Shop = types.NamespacedName{Namespace: "shop", Name: "db"}

// Hour is an hour of one day.
func Hour(h int) metav1.Time { return metav1.NewTime(time.Date(2026, 3, 1, h, 0, 0, 0, time.UTC)) }

// New returns an export of [Shop], created at hour h.
func New(h int, with ...func(*v1alpha1.ExportedServiceSpec)) v1alpha1.ExportedServiceSpec {
	s := v1alpha1.ExportedServiceSpec{
		Namespace: Shop.Namespace, Name: Shop.Name, Type: v1alpha1.ClusterSetIP, ExportCreated: Hour(h),
		IPFamilies: []corev1.IPFamily{V4}, SessionAffinity: corev1.ServiceAffinityNone,
	}
	Ports("http/TCP/80")(&s)
	for _, f := range with {
		f(&s)
	}
	return s
}

// Ports sets ports of the form "name/TCP/80", "/TCP/80" or "name/TCP/80/h2c".
func Ports(list ...string) func(*v1alpha1.ExportedServiceSpec) {
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

// Families sets the IP families.
func Families(f ...corev1.IPFamily) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) { s.IPFamilies = f }
}

// Headless makes an export headless.
func Headless(s *v1alpha1.ExportedServiceSpec) { s.Type = v1alpha1.Headless }

// ClientIP sets session affinity with a time-out in seconds.
func ClientIP(seconds int32) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) {
		s.SessionAffinity = corev1.ServiceAffinityClientIP
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
}

// Label adds an exported label.
func Label(key, value string) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) {
		s.Labels = append(s.Labels, v1alpha1.Label{Key: key, Value: value})
	}
}

// Annotation adds an exported annotation.
func Annotation(key, value string) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) {
		s.Annotations = append(s.Annotations, v1alpha1.Annotation{Key: key, Value: value})
	}
}

// Distribution sets the traffic distribution.
func Distribution(value string) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) { s.TrafficDistribution = &value }
}

// Policy sets the internal traffic policy.
func Policy(value corev1.ServiceInternalTrafficPolicy) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) { s.InternalTrafficPolicy = &value }
}

// VIP sets the request for a clusterset IP.
func VIP(wanted bool) func(*v1alpha1.ExportedServiceSpec) {
	return func(s *v1alpha1.ExportedServiceSpec) { s.VIP = &v1alpha1.VIP{Wanted: wanted} }
}

// Randomize gives an export random properties that meet often: few names, few numbers.
func Randomize(r *rand.Rand, s *v1alpha1.ExportedServiceSpec) {
	s.Type = pick(r, v1alpha1.ClusterSetIP, v1alpha1.ClusterSetIP, v1alpha1.Headless)
	s.IPFamilies = pick(r, [][]corev1.IPFamily{{V4}, {V6}, {V4, V6}, {V6, V4}}...)
	s.Ports = nil
	for range r.IntN(4) {
		p := v1alpha1.ServicePort{
			Name: pick(r, "", "http", "dns"), Protocol: pick(r, corev1.ProtocolTCP, corev1.ProtocolUDP),
			Port:        int32(1 + r.IntN(3)),
			AppProtocol: pick(r, nil, nil, new("h2c")),
		}
		s.Ports = append(s.Ports, p)
		if s.Validate() != nil {
			s.Ports = s.Ports[:len(s.Ports)-1]
		}
	}
	if r.IntN(3) == 0 {
		ClientIP(pick[int32](r, 10, 20))(s)
	}
	s.TrafficDistribution = pick(r, nil, nil, new("PreferClose"))
	s.InternalTrafficPolicy = pick(r, nil, new(corev1.ServiceInternalTrafficPolicyCluster),
		new(corev1.ServiceInternalTrafficPolicyLocal))
	for _, f := range []func(*v1alpha1.ExportedServiceSpec){Label("x", "1"), Label("y", "2"), Annotation("x", "1")} {
		if r.IntN(3) == 0 {
			f(s)
		}
	}
	s.VIP = pick(r, nil, &v1alpha1.VIP{}, &v1alpha1.VIP{Wanted: true})
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }
