package export

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// A strategy divides the endpoints of an export into slices (KEP-2030; docs/spec/controller.md 3.7).
type strategy string

const (
	original    strategy = "Original"
	preferZone  strategy = "PreferZone"
	requireZone strategy = "RequireZone"
)

const (
	// maxDivided is how many endpoints a slice has that is not a copy of a source slice. Kubernetes puts as many into one.
	maxDivided = 100
	// With PreferZone each zone has a slice of its own once all zones have enterZone endpoints, and until one has fewer
	// than stayZone. With one number, a Pod that comes and goes would move all endpoints each time.
	enterZone, stayZone = 3, 2
)

// strategy returns that of the annotation of the export. An unknown one does not count.
func (x *exporter) strategy() strategy {
	text, given := x.exp.Annotations[broker.AnnotationSliceStrategy]
	s := strategy(text)
	switch {
	case !given:
	case s != original && s != preferZone && s != requireZone:
		x.ignore("Ignored: annotation %s: %.80q: want Original, PreferZone or RequireZone.", broker.AnnotationSliceStrategy, text)
	case s != original && x.o.Endpoints != "" && x.o.Endpoints != broker.PodIP && !x.headless():
		x.ignore("Ignored: annotation %s: %q: want Original, as the endpoints are %s.", broker.AnnotationSliceStrategy, text,
			x.o.Endpoints)
	default:
		return s
	}
	return original
}

// byStrategy returns the slices that hold the endpoints of copies as the annotation of the export asks for. copies are
// in the order of their sources.
func (x *exporter) byStrategy(copies []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	s := x.strategy()
	if s == original {
		return copies
	}
	x.divided = true
	groups := groupsOf(copies)
	byZone := s == requireZone || enoughInZones(groups, x.o.ByZone)
	var all []*discoveryv1.EndpointSlice
	for _, g := range groups {
		for _, p := range g.divide(byZone) {
			e := x.newSlice(p.source, g.family)
			if p.zone != "" {
				e.Labels[broker.LabelForZone] = p.zone
			}
			if g.trigger != "" {
				e.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: g.trigger}
			}
			e.Endpoints = p.endpoints
			for i := range g.ports {
				e.Ports = append(e.Ports, *g.ports[i].DeepCopy())
			}
			all = append(all, e)
		}
	}
	return all
}

// A group is the endpoints of one address type at the same ports: those that can be in one slice.
type group struct {
	id        string // of family and ports
	family    discoveryv1.AddressType
	ports     []discoveryv1.EndpointPort
	trigger   string // the latest of the sources: a slice changes nearly always for that
	endpoints []placed
}

// A placed endpoint knows its place: the hash of what identifies it.
type placed struct {
	discoveryv1.Endpoint
	id   string // addresses and hostname
	hash uint64
}

// A part is one slice of a group.
type part struct {
	source    string // see [broker.SliceName]; no slice has such a name, since it contains a slash
	zone      string // "" for all zones
	endpoints []discoveryv1.Endpoint
}

// groupsOf returns the groups of slices, sorted, with each endpoint once: while a Pod moves from one slice to another,
// both may have it. An address type without endpoints has one empty group.
func groupsOf(all []*discoveryv1.EndpointSlice) []*group {
	byID := make(map[string]*group)
	filled := make(map[discoveryv1.AddressType]bool)
	for _, s := range all {
		id, ports := groupOf(s)
		g := byID[id]
		if g == nil {
			g = &group{id: id, family: s.AddressType, ports: ports}
			byID[id] = g
		}
		g.trigger = laterTrigger(g.trigger, s.Annotations[corev1.EndpointsLastChangeTriggerTime])
		for i := range s.Endpoints {
			g.endpoints = append(g.endpoints, place(s.Endpoints[i]))
		}
		filled[s.AddressType] = filled[s.AddressType] || len(s.Endpoints) > 0
	}
	var groups []*group
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		g := byID[id]
		if len(g.endpoints) == 0 && filled[g.family] {
			continue
		}
		filled[g.family] = true
		g.sortOnce()
		groups = append(groups, g)
	}
	return groups
}

// groupOf returns the id of the group of a slice, and its ports, sorted.
func groupOf(s *discoveryv1.EndpointSlice) (string, []discoveryv1.EndpointPort) {
	text := func(p discoveryv1.EndpointPort) string {
		t, err := json.Marshal(p)
		if err != nil {
			panic("export: a port is no JSON: " + err.Error())
		}
		return string(t)
	}
	ports := slices.SortedFunc(slices.Values(s.Ports), func(a,
		b discoveryv1.EndpointPort) int {
		return cmp.Compare(text(a), text(b))
	})
	parts := []string{string(s.AddressType)}
	for _, p := range ports {
		parts = append(parts, text(p))
	}
	return string(s.AddressType) + "/" + broker.Hash(16, parts...), ports
}

// laterTrigger returns the later of two times of changes. An invalid time is the earlier one.
func laterTrigger(a, b string) string {
	at, aErr := time.Parse(time.RFC3339Nano, a)
	bt, bErr := time.Parse(time.RFC3339Nano, b)
	if bErr != nil || aErr == nil && !bt.After(at) {
		return a
	}
	return b
}

func place(e discoveryv1.Endpoint) placed {
	var hostname string
	if e.Hostname != nil {
		hostname = *e.Hostname
	}
	id := strings.Join(e.Addresses, ",") + "/" + hostname
	sum := sha256.Sum256([]byte(id))
	return placed{e, id, binary.BigEndian.Uint64(sum[:])}
}

// sortOnce sorts the endpoints and leaves each of them once: of two the one that is ready, else that of the first
// source.
func (g *group) sortOnce() {
	slices.SortStableFunc(g.endpoints, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(unfitness(a.Endpoint), unfitness(b.Endpoint)))
	})
	g.endpoints = slices.CompactFunc(g.endpoints, func(a, b placed) bool { return a.id == b.id })
}

// unfitness is 0 for an endpoint that is ready, 1 for one that serves while it terminates, else 2.
func unfitness(e discoveryv1.Endpoint) int {
	switch {
	case isReady(e):
		return 0
	case e.Conditions.Serving != nil && *e.Conditions.Serving:
		return 1
	}
	return 2
}

// zoneOf returns the zone for which an endpoint can be, "" if no label can say it.
func zoneOf(e discoveryv1.Endpoint) string {
	if e.Zone == nil || !broker.IsLabelValue(*e.Zone) {
		return ""
	}
	return *e.Zone
}

// enoughInZones reports whether PreferZone divides the endpoints by zone; was: they are divided now. Endpoints count
// whether they are ready or not: a failing probe moves no endpoint.
func enoughInZones(groups []*group, before bool) bool {
	least := enterZone
	if before {
		least = stayZone
	}
	byFamily := make(map[discoveryv1.AddressType]map[string]int)
	for _, g := range groups {
		zones := byFamily[g.family]
		if zones == nil {
			zones = make(map[string]int)
			byFamily[g.family] = zones
		}
		for i := range g.endpoints {
			zones[zoneOf(g.endpoints[i].Endpoint)]++
		}
	}
	enough := false
	for _, zones := range byFamily {
		if len(zones) == 0 {
			continue // a family without endpoints
		}
		enough = true
		if _, unknown := zones[""]; unknown || len(zones) < 2 || slices.Min(slices.Collect(maps.Values(zones))) < least {
			return false
		}
	}
	return enough
}

// divide returns the slices of a group, at least one.
func (g *group) divide(byZone bool) []part {
	zones := map[string][]placed{}
	for _, e := range g.endpoints {
		var zone string
		if byZone {
			zone = zoneOf(e.Endpoint)
		}
		zones[zone] = append(zones[zone], e)
	}
	if len(zones) == 0 {
		zones[""] = nil
	}
	var parts []part
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		pack(zones[zone], "", func(path string, list []placed) {
			p := part{source: "divided/" + g.id + "/" + zone + "/" + path, zone: zone}
			for i := range list {
				p.endpoints = append(p.endpoints, list[i].Endpoint)
			}
			parts = append(parts, p)
		})
	}
	return parts
}

// pack calls use for lists of the endpoints that fit into slices, each under a path of its own. It halves a list that
// is too long by the next bit of the hashes. So the slice of an endpoint follows from the endpoint itself, and from how
// many others begin with the same bits: one that comes or goes changes its slice, and seldom splits it or joins two. No
// history is needed for that, and every restart finds the same slices.
func pack(list []placed, path string, use func(path string, list []placed)) {
	addresses := 0
	for i := range list {
		addresses += len(list[i].Addresses)
	}
	if len(list) <= maxDivided && addresses <= broker.MaxEndpoints || len(path) == 64 {
		use(path, list)
		return
	}
	var halves [2][]placed
	for _, e := range list {
		bit := e.hash >> (63 - len(path)) & 1
		halves[bit] = append(halves[bit], e)
	}
	for bit, half := range halves {
		if len(half) > 0 {
			pack(half, path+string("01"[bit]), use)
		}
	}
}
