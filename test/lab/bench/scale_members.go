package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/protocol"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// A simulation is members of a clusterset that are nothing but what they write to the broker, with the objects that a
// join makes there, and with export records and slices as our controller writes them.
type simulation struct {
	broker *controlplane.ControlPlane
	size   scaleSize
	away   atomic.Bool  // the broker was taken away
	next   atomic.Int64 // counts changes of addresses
}

// A scaleSize is the size of the clusterset.
type scaleSize struct {
	Members    int
	Services   int
	Namespaces int
	Exporters  int
	Endpoints  int // all in one slice
}

// exports is how many export records there are, and slices.
func (z scaleSize) exports() int { return z.Services * z.Exporters }

func (z scaleSize) endpoints() int { return z.exports() * z.Endpoints }

func scaleNamespace(n int) string { return fmt.Sprintf("scale-%d", n) }

// An exported is the n-th export of a simulation: neighbours are of one service.
type exported struct {
	size scaleSize
	n    int
}

func (e exported) service() (namespace, name string) {
	i := e.n / e.size.Exporters
	return scaleNamespace(i % e.size.Namespaces), fmt.Sprintf("app-%d", i)
}

func (e exported) member() int { return e.n % e.size.Members }

// host is the owner name of one endpoint.
func (e exported) host(endpoint int) string {
	namespace, name := e.service()
	return fmt.Sprintf("%s.%s.%s.%s.svc.%s", hostname(endpoint), memberID(e.member()), name, namespace, zone)
}

// addr is the address of one endpoint at the start.
func (e exported) addr(endpoint int) netip.Addr {
	return memberAddr(e.member(), e.n/e.size.Members*e.size.Endpoints+endpoint)
}

func memberID(m int) string { return fmt.Sprintf("member-%d", m) }

// memberPods is the network of the pods of a member, and memberAddr its n-th address. The real member has another.
func memberPods(m int) netip.Prefix {
	return netip.PrefixFrom(memberAddr(m, 0), 16)
}

func memberAddr(m, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(10 + m/128), byte(128 + m%128), byte(n >> 8), byte(n)})
}

func brokerNamespace(m int) string {
	return broker.NamespaceName(join.DefaultPrefix, memberID(m))
}

// objects returns the record and the slice of an export, whose first endpoint has the address given.
func (e exported) objects(first netip.Addr) (*v1alpha1.ExportedService, *discoveryv1.EndpointSlice, error) {
	namespace, name := e.service()
	svc, exp := testclusterset.Headless(namespace, name, testclusterset.Port(portName, portNumber)),
		testclusterset.Export(namespace, name)
	svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	exp.CreationTimestamp, exp.UID = metav1.Now(), types.UID(fmt.Sprintf("%08x-0000-4000-8000-000000000000", e.n))
	var endpoints []testclusterset.Endpoint
	for i := range e.size.Endpoints {
		addr := e.addr(i)
		if i == 0 {
			addr = first
		}
		endpoints = append(endpoints, testclusterset.Endpoint{Address: addr.String(), Hostname: hostname(i)})
	}
	source := testclusterset.Slice(svc, name+"-1", endpoints...)
	r := export.From(exp, svc, []*discoveryv1.EndpointSlice{source}, export.Options{
		ClusterID: memberID(e.member()), BrokerNamespace: brokerNamespace(e.member()), Namespace: export.Allowed,
	})
	if r.Record == nil || len(r.Slices) != 1 {
		return nil, nil, fmt.Errorf("export of %s/%s: %s %s", namespace, name, r.Message, r.Failed)
	}
	stamp := time.Now().UnixMicro()
	r.Record.Spec.Stamp = stamp
	metav1.SetMetaDataAnnotation(&r.Slices[0].ObjectMeta, broker.AnnotationStamp, protocol.Stamp(stamp).String())
	return r.Record, r.Slices[0], nil
}

// admit makes the members known to the broker.
func (s *simulation) admit(ctx context.Context) error {
	return s.each(ctx, s.size.Members, func(ctx context.Context, m int) error {
		sum := sha256.Sum256([]byte(memberID(m)))
		a := join.Admission{ClusterID: memberID(m), Quota: join.DefaultQuota(), Spec: v1alpha1.MemberSpec{
			KubeSystemUID: fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]),
			Namespace:     brokerNamespace(m), PodCIDRs: []string{memberPods(m).String()},
		}}
		if err := s.broker.Apply(ctx, a.Objects()...); err != nil {
			return err
		}
		return s.renew(ctx, m)
	})
}

// export writes all records, each after its slice, and counts them.
func (s *simulation) export(ctx context.Context, written *atomic.Int64) error {
	return s.each(ctx, s.size.exports(), func(ctx context.Context, n int) error {
		e := exported{s.size, n}
		record, slice, err := e.objects(e.addr(0))
		if err != nil {
			return err
		}
		defer written.Add(1)
		return s.broker.Apply(ctx, slice, record)
	})
}

func (s *simulation) each(ctx context.Context, n int, do func(context.Context, int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}

// beat renews the heartbeats, evenly spread over the period, until ctx ends.
func (s *simulation) beat(ctx context.Context, period time.Duration) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	tick := time.NewTicker(period / time.Duration(s.size.Members))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return g.Wait()
		}
		g.Go(func() error {
			excused := s.away.Load()
			err := s.renew(ctx, n%s.size.Members)
			if excused || s.away.Load() || ctx.Err() != nil {
				return nil
			}
			return err
		})
	}
}

func (s *simulation) renew(ctx context.Context, m int) error {
	id, now := memberID(m), metav1.NowMicro()
	return s.broker.Apply(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: brokerNamespace(m), Name: broker.HeartbeatName,
			Labels: map[string]string{broker.LabelManagedBy: broker.ManagedBy},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &id, RenewTime: &now},
	})
}

// change gives the first endpoint of the n-th export another address, one that none had before.
func (s *simulation) change(ctx context.Context, n int) (host string, addr netip.Addr, err error) {
	e := exported{s.size, n}
	// Above those of the start.
	addr = memberAddr(e.member(), 1<<15+int(s.next.Add(1))%(1<<15))
	_, slice, err := e.objects(addr)
	if err == nil {
		err = s.broker.Apply(ctx, slice)
	}
	return e.host(0), addr, err
}

// askSteady asks for one host of every step-th export, which keeps its address.
func (s *simulation) askSteady(step int) []question {
	var all []question
	for n := 0; n < s.size.exports(); n += step {
		e, last := exported{s.size, n}, s.size.Endpoints-1
		all = append(all, question{owner: e.host(last), qtype: dns.TypeA, want: answer{records: 1, addr: e.addr(last)}})
	}
	return all
}
