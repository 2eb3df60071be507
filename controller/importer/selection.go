package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/selection"
)

// preferences are the selectors that an import follows, and their matches (docs/spec/selection.md 1). The zero value
// prefers no cluster.
type preferences struct {
	selectors string // their text
	results   selection.Results
	weights   string // of clusters in answers of DNS, "" without any
}

// annotate writes the preferences to an import.
func (p preferences) annotate(imp *mcsv1beta1.ServiceImport) {
	if len(p.results) > 0 {
		metav1.SetMetaDataAnnotation(&imp.ObjectMeta, apibroker.AnnotationSelectors, p.selectors)
		metav1.SetMetaDataAnnotation(&imp.ObjectMeta, apibroker.AnnotationResults, p.results.String())
	}
	if p.weights != "" {
		metav1.SetMetaDataAnnotation(&imp.ObjectMeta, apibroker.AnnotationWeights, p.weights)
	}
}

// writtenPreferences returns the preferences that an import of ours follows; imp may be nil.
func writtenPreferences(imp *mcsv1beta1.ServiceImport) preferences {
	if imp == nil {
		return preferences{}
	}
	return preferences{
		selectors: imp.Annotations[apibroker.AnnotationSelectors],
		results:   selection.ParseResults(imp.Annotations[apibroker.AnnotationResults]),
		weights:   imp.Annotations[apibroker.AnnotationWeights],
	}
}

// A consumer follows the selection of an import.
type consumer uint8

const (
	nothing consumer = iota
	proxies          // they balance each port and family by itself
	dns              // the import has no address: its name has those of the endpoints, for all ports and families
)

// consumer returns the consumer of the preferences in an import with its derived Service, which may be nil. With
// "internalTrafficPolicy: Local" proxies reach endpoints of their own node alone by cluster IPs, but all of them by
// addresses of a load balancer, which clusterset IPs are. Without a Service there are no proxies.
func (p preferences) consumer(imp *mcsv1beta1.ServiceImport, s *corev1.Service) consumer {
	local := s != nil && s.Spec.Type != corev1.ServiceTypeLoadBalancer &&
		s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	switch {
	case len(p.results) == 0:
		return nothing
	case imp != nil && len(imp.Spec.IPs) == 0:
		return dns
	case s == nil || local:
		return nothing
	}
	return proxies
}

// choices remember which rank each port of each service uses. The methods may be called by several goroutines, each for
// another service.
type choices struct {
	hold time.Duration // how long an earlier rank must have had an endpoint before it is used again
	byService[choice]
}

// A choice is what one service uses. It never changes.
type choice struct {
	selectors string // that it belongs to
	ports     map[desired.Port]portChoice
}

// A portChoice is what one port of a service uses.
type portChoice struct {
	selection.Failover
	ranks    int       // how many there are
	clusters []string  // in use
	since    time.Time // when they came into use; zero if that was before this process
}

// why returns the reason for the clusters in use.
func (c portChoice) why() string {
	switch used := c.Rank(); {
	case used >= c.ranks:
		return "no cluster has a ready endpoint: all are in use"
	case used == c.ranks-1:
		return "no preferred cluster has a ready endpoint, or not for long enough"
	case used > 0:
		return "clusters that are preferred to these have no ready endpoint, or not for long enough"
	}
	return "preferred, with a ready endpoint"
}

// A Selection is which clusters the traffic of one port of a service goes to.
type Selection struct {
	Service   types.NamespacedName
	Port      string // name, protocol and IP family
	Clusters  []string
	Why       string
	Since     time.Time // zero if that was before this process
	Selectors string
}

// selections returns the selections, sorted.
func (cs *choices) selections() []Selection {
	var all []Selection
	for svc, c := range cs.all() {
		for key, p := range c.ports {
			name := "all"
			if key != (desired.Port{}) {
				name = strings.TrimSpace(fmt.Sprintf("%s %s %s", key.Name, key.Protocol, key.Family))
			}
			all = append(all, Selection{svc, name, p.clusters, p.why(), p.since, c.selectors})
		}
	}
	slices.SortFunc(all, func(a, b Selection) int {
		return cmp.Or(cmp.Compare(a.Service.String(), b.Service.String()), cmp.Compare(a.Port, b.Port))
	})
	return all
}

// choose decides which clusters are in use, for proxies port by port. It hides the rest in desired: slices without a
// port in use as a whole, and unused ports of the others. now is the existing state. It returns the time after which to
// choose again, or 0.
func (cs *choices) choose(svc types.NamespacedName, p preferences, c consumer, wanted []*discoveryv1.EndpointSlice,
	current desired.Objects) time.Duration {
	before := cs.get(svc)
	if before.selectors != p.selectors {
		before = choice{}
	}
	resumes := before.ports == nil && writtenPreferences(current.Import).selectors == p.selectors
	next := choice{p.selectors, make(map[desired.Port]portChoice)}
	at := time.Now()
	used := make(map[desired.Port][]string)
	var wait time.Duration
	for _, key := range c.ports(wanted) {
		present := func(e *discoveryv1.EndpointSlice) bool { return key == desired.Port{} || desired.HasPort(e, key) }
		ranks := p.results.Ranks(clustersOf(wanted, present))
		last, known := before.ports[key]
		if !known && resumes {
			last = resume(ranks, clustersOf(current.Slices, func(e *discoveryv1.EndpointSlice) bool {
				return present(e) && !desired.IsHidden(e)
			}))
		}
		eligible := c.eligible(wanted, present)
		f, remaining := last.Next(ranks, eligible, at, cs.hold)
		if remaining > 0 && (wait == 0 || remaining < wait) {
			wait = remaining
		}
		used[key] = ranks.Clusters(f.Rank())
		next.ports[key] = portChoice{f, len(ranks), used[key], last.sinceOf(used[key], at)}
	}
	cs.set(svc, next, true)
	for _, e := range wanted {
		if clusters, whole := used[desired.Port{}]; whole {
			hideWhole(e, clusters)
		} else {
			hide(e, used)
		}
	}
	return wait
}

// hideWhole hides a slice unless its cluster is in use.
func hideWhole(e *discoveryv1.EndpointSlice, used []string) {
	if !slices.Contains(used, e.Labels[mcsv1beta1.LabelSourceCluster]) {
		desired.Hide(e)
	}
}

// resume returns the choice of a port when a controller starts, by the clusters that are shown.
func resume(ranks selection.Ranks, visible []string) portChoice {
	c := portChoice{Failover: selection.Resume(ranks, visible)}
	if used := c.Rank(); used >= 0 {
		c.clusters = ranks.Clusters(used)
	}
	return c
}

// sinceOf returns since when clusters are in use: for as long as those of c, if they are the same.
func (c portChoice) sinceOf(used []string, now time.Time) time.Time {
	if len(c.clusters) > 0 && slices.Equal(c.clusters, used) {
		return c.since
	}
	return now
}

// hide takes out of a slice the ports for which its cluster is not in use; if those are all its ports, it hides the
// slice as it is.
func hide(e *discoveryv1.EndpointSlice, used map[desired.Port][]string) {
	inUse := slices.DeleteFunc(slices.Clone(e.Ports), func(p discoveryv1.EndpointPort) bool {
		return !slices.Contains(used[desired.PortOf(e, p)], e.Labels[mcsv1beta1.LabelSourceCluster])
	})
	if len(inUse) > 0 {
		e.Ports = inUse
		return
	}
	desired.Hide(e)
}

// eligible returns the clusters that can be used, of those that have such a slice: with an endpoint that is ready. If
// no endpoint is, proxies also take endpoints that terminate and still serve; so a cluster that is drained is left
// while its Pods still accept connections.
func (c consumer) eligible(all []*discoveryv1.EndpointSlice, present func(*discoveryv1.EndpointSlice) bool) []string {
	with := func(counts func(discoveryv1.EndpointConditions) bool) []string {
		return clustersOf(all, func(e *discoveryv1.EndpointSlice) bool {
			return present(e) && slices.ContainsFunc(e.Endpoints, func(ep discoveryv1.Endpoint) bool {
				return counts(ep.Conditions)
			})
		})
	}
	clusters := with(apibroker.IsReady)
	if len(clusters) == 0 && c == proxies {
		clusters = with(isDrained)
	}
	return clusters
}

// isDrained reports whether an endpoint terminates and still serves.
func isDrained(current discoveryv1.EndpointConditions) bool {
	return current.Serving != nil && *current.Serving && current.Terminating != nil && *current.Terminating
}

// ports returns what the consumer decides by itself: the ports of slices, each once.
func (c consumer) ports(all []*discoveryv1.EndpointSlice) []desired.Port {
	if c == dns {
		return []desired.Port{{}}
	}
	var ports []desired.Port
	for _, e := range all {
		for _, p := range e.Ports {
			if key := desired.PortOf(e, p); !slices.Contains(ports, key) {
				ports = append(ports, key)
			}
		}
	}
	return ports
}

// clustersOf returns the clusters of the slices that count, sorted, each once.
func clustersOf(all []*discoveryv1.EndpointSlice, counts func(*discoveryv1.EndpointSlice) bool) []string {
	var clusters []string
	for _, e := range all {
		if counts(e) {
			clusters = append(clusters, e.Labels[mcsv1beta1.LabelSourceCluster])
		}
	}
	slices.Sort(clusters)
	return slices.Compact(clusters)
}
