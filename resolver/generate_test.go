package resolver_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/resolver"
)

// An entropy is a string of octets that objects are generated from. Any string is valid, also the empty one, so a
// fuzzer can shrink and mutate it. It is read once, from the front; after its end each choice is the first.
type entropy []byte

func (e *entropy) below(n int) int {
	if len(*e) == 0 {
		return 0
	}
	b := (*e)[0]
	*e = (*e)[1:]
	return int(b) % n
}

func choose[T any](e *entropy, from []T) T { return from[e.below(len(from))] }

// randomEntropy makes reproducible octets.
func randomEntropy(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// The pools are small, so that names and addresses collide: a host, a port, a cluster and a service with the same
// label, a host and a dotted cluster id with the same name, an address in two places, a hostname that looks like an
// address.
var (
	long       = strings.Repeat("l", 63)
	services   = []string{"web", "db", "east", long, "tcp", "svc"}
	namespaces = []string{"shop", "a", "web", long}
	clusterIDs = []string{"east", "west", "", "b", "a.b", "east.b", "b.east", "x.west",
		strings.Repeat("c", 31) + "." + strings.Repeat("d", 31)}
	hostnames   = []string{"", "", "a", "b", "east", "web", "10-0-0-1", "0--2-3", long}
	portNames   = []string{"http", "", "tcp", "dns", "a", strings.Repeat("p", 62)}
	portNumbers = []uint16{80, 53, 8080}
	protos      = []index.Proto{index.TCP, index.UDP, index.SCTP}
	places      = []string{"", "", "here", "there"}
	nameLimits  = []limits{{}, {}, {}, {all: []int{235}}, {all: []int{150}}, {all: []int{100}}, {all: []int{40}},
		{all: []int{20}}, {all: []int{12}},
		{all: []int{235, 150}}, {all: []int{235, 150}, at: 1}, {all: []int{100, 40, 12}, at: 1},
		{all: []int{100, 40, 12}, at: 2}}
	pool4 = addrs("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.1.0.1", "192.0.2.255")
	pool6 = addrs("::2:3", "fd00::", "fd00::1", "2001:db8:0:1:1:1:1:1", "::1:0:0:0")
)

// limits are those of the names of zones that one index is for, and which of them is asked for.
type limits struct {
	all []int
	at  int
}

func addrs(text ...string) (list []netip.Addr) {
	for _, s := range text {
		list = append(list, netip.MustParseAddr(s))
	}
	return list
}

// String renders objects for the message of a failure.
func (objs objects) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "index %+v resolver %+v\n", objs.build, objs.serve)
	for _, imp := range objs.imports {
		fmt.Fprintf(&b, "%s/%s type %d vip %v %v ports %v weights %v\n", imp.namespace, imp.name, imp.typ, imp.vip, imp.ips,
			imp.ports, imp.weights)
		for _, sl := range imp.slices {
			fmt.Fprintf(&b, "  cluster %q hidden %v zone %q region %q ports %v: %v\n", sl.cluster, sl.hidden, sl.zone,
				sl.region, sl.ports, sl.endpoints)
		}
	}
	return b.String()
}

// newObjects generates objects and settings from octets.
func newObjects(octets []byte) objects {
	e := entropy(octets)
	objs := objects{}
	clusterNames := e.below(3) != 1
	objs.build = index.Options{ClusterNames: clusterNames, Zone: choose(&e, places), Region: choose(&e, places)}
	objs.serve = resolver.Options{
		ClusterNames: clusterNames,
		Policy: choose(&e, []resolver.Policy{resolver.LocalFirst, resolver.RoundRobin, resolver.All,
			resolver.NoCluster}),
		LocalCluster: choose(&e, clusterIDs),
	}
	limits := choose(&e, nameLimits)
	objs.serve.Limit = limits.at
	for _, limit := range limits.all {
		objs.serve.MaxName = limits.all[limits.at]
		objs.build.MaxNames = append(objs.build.MaxNames, limit-len(".svc"))
	}
	for range 1 + e.below(2) {
		imp := newImport(&e)
		if !slices.ContainsFunc(objs.imports, func(o importObject) bool {
			return o.namespace == imp.namespace && o.name == imp.name
		}) {
			objs.imports = append(objs.imports, imp)
		}
	}
	return objs
}

func newImport(e *entropy) importObject {
	imp := importObject{
		name: choose(e, services), namespace: choose(e, namespaces),
		typ: choose(e, []index.Type{index.Headless, index.ClusterSetIP, index.ClusterSetIP}),
	}
	if e.below(3) == 1 {
		imp.vip = true
		for range e.below(4) {
			imp.ips = append(imp.ips, choose(e, slices.Concat(pool4, pool6)))
		}
	}
	imp.ports = newPorts(e)
	for range e.below(7) {
		imp.slices = append(imp.slices, newSlice(e))
	}
	if e.below(2) == 1 {
		for _, id := range clusterIDs {
			if id != "" {
				imp.weights = append(imp.weights, index.Weight{Cluster: id, Share: uint16(1 + e.below(3))})
			}
		}
	}
	return imp
}

func newPorts(e *entropy) (ports []index.Port) {
	for range e.below(4) {
		ports = append(ports, index.Port{Name: choose(e, portNames), Proto: choose(e, protos),
			Number: choose(e, portNumbers)})
	}
	return ports
}

func newSlice(e *entropy) sliceObject {
	sl := sliceObject{cluster: choose(e, clusterIDs), ports: newPorts(e)}
	if where := e.below(4); where > 1 {
		sl.zone, sl.region = choose(e, places), choose(e, places)
	}
	pool := pool4
	if e.below(2) == 1 {
		sl.family, pool = index.V6, pool6
	}
	for range e.below(6) {
		ep := index.Endpoint{Host: choose(e, hostnames)}
		for range max(1, e.below(5)) - e.below(8)/7 {
			ep.Addrs = append(ep.Addrs, choose(e, pool))
		}
		sl.endpoints = append(sl.endpoints, ep)
	}
	sl.hidden = e.below(3) == 1
	return sl
}

// pack returns the import and its slices as input for the index.
func (imp importObject) pack() (*index.Import, []*index.Slice) {
	packed := index.NewImport(index.ImportSpec{
		Namespace: imp.namespace, Name: imp.name, Type: imp.typ, VIP: imp.vip, IPs: imp.ips,
		Ports: index.NewPorts(imp.ports), Weights: imp.weights,
	})
	var list []*index.Slice
	for _, sl := range imp.slices {
		list = append(list, index.NewSlice(index.SliceSpec{
			Cluster: sl.cluster, Zone: sl.zone, Region: sl.region, Hidden: sl.hidden, Family: sl.family,
			Ports: index.NewPorts(sl.ports), Endpoints: sl.endpoints,
		}))
	}
	return packed, list
}

// newIndex builds the index of objs.
func newIndex(objs objects) *index.Index {
	e := new(index.Index).Edit()
	for _, imp := range objs.imports {
		packed, list := imp.pack()
		if s := index.Build(packed, list, objs.build); s != nil {
			e.Put(s)
		}
	}
	return e.Index()
}
