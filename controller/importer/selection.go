package importer

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/selection"
)

// preferences are the selectors that an import follows, and what they match (docs/spec/selection.md 1). The zero value prefers no cluster.
type preferences struct {
	selectors string // their text
	results   selection.Results
}

// annotate writes the preferences to an import.
func (p preferences) annotate(imp *mcsv1beta1.ServiceImport) {
	if len(p.results) > 0 {
		metav1.SetMetaDataAnnotation(&imp.ObjectMeta, apibroker.AnnotationSelectors, p.selectors)
		metav1.SetMetaDataAnnotation(&imp.ObjectMeta, apibroker.AnnotationResults, p.results.String())
	}
}

// writtenPreferences returns what an import of ours says that it follows; imp may be nil.
func writtenPreferences(imp *mcsv1beta1.ServiceImport) preferences {
	if imp == nil {
		return preferences{}
	}
	return preferences{imp.Annotations[apibroker.AnnotationSelectors], selection.ParseResults(imp.Annotations[apibroker.AnnotationResults])}
}

// apply reports whether the preferences hide anything from proxies: with "internalTrafficPolicy: Local" they reach endpoints of their own node
// alone, and without a Service there are no proxies.
func (p preferences) apply(s *corev1.Service) bool {
	local := s != nil && s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	return s != nil && !local && len(p.results) > 0
}

// choices remember which rank each port of each service uses. The methods may be called by several goroutines, each for another service.
type choices struct {
	hold time.Duration // how long an earlier rank must have had an endpoint before it is used again

	mu sync.Mutex
	of map[types.NamespacedName]choice
}

// A choice is what one service uses.
type choice struct {
	selectors string // that it belongs to
	ports     map[port]selection.Failover
}

// A port is one of a slice, for its IP family: proxies balance each by itself.
type port struct {
	name     string
	protocol corev1.Protocol
	family   discoveryv1.AddressType
}

func newChoices(hold time.Duration) *choices {
	return &choices{hold: hold, of: make(map[types.NamespacedName]choice)}
}

func (cs *choices) get(svc types.NamespacedName) choice {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.of[svc]
}

// set remembers c; the zero value forgets the service.
func (cs *choices) set(svc types.NamespacedName, c choice) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.ports == nil {
		delete(cs.of, svc)
		return
	}
	cs.of[svc] = c
}

// choose decides which clusters are in use, port by port, and hides the rest of desired, which it changes: a slice of which no port is in use
// from all proxies, and of others those ports. now is what exists. It returns the time after which to choose again, 0 for none.
func (cs *choices) choose(svc types.NamespacedName, p preferences, desired []*discoveryv1.EndpointSlice, now merge.Objects) time.Duration {
	was := cs.get(svc)
	if was.selectors != p.selectors {
		was = choice{}
	}
	resumes := was.ports == nil && writtenPreferences(now.Import).selectors == p.selectors
	next := choice{p.selectors, make(map[port]selection.Failover)}
	used := make(map[port][]string)
	var wait time.Duration
	for _, key := range portsOf(desired) {
		has := func(e *discoveryv1.EndpointSlice) bool { return hasPort(e, key) }
		ranks := p.results.Ranks(clustersOf(desired, has))
		f, known := was.ports[key]
		if !known && resumes {
			f = selection.Resume(ranks, clustersOf(now.Slices, func(e *discoveryv1.EndpointSlice) bool { return has(e) && !isHidden(e) }))
		}
		eligible := clustersOf(desired, func(e *discoveryv1.EndpointSlice) bool { return has(e) && isEligible(e) })
		f, left := f.Next(ranks, eligible, time.Now(), cs.hold)
		if left > 0 && (wait == 0 || left < wait) {
			wait = left
		}
		next.ports[key], used[key] = f, ranks.Clusters(f.Used())
	}
	cs.set(svc, next)
	for _, e := range desired {
		hide(e, used)
	}
	return wait
}

// hide takes out of a slice the ports for which its cluster is not in use; if that are all, it hides the slice as it is.
func hide(e *discoveryv1.EndpointSlice, used map[port][]string) {
	inUse := slices.DeleteFunc(slices.Clone(e.Ports), func(p discoveryv1.EndpointPort) bool {
		return !slices.Contains(used[keyOf(e, p)], e.Labels[mcsv1beta1.LabelSourceCluster])
	})
	if len(inUse) > 0 {
		e.Ports = inUse
		return
	}
	e.Labels[corev1.IsHeadlessService] = ""
}

// isHidden reports whether a slice has the label by which every kube-proxy leaves it out, and adds and removes its endpoints as the label comes
// and goes. The label service-proxy-name does not do: from Kubernetes 1.36 on kube-proxy looks for it at Services alone.
func isHidden(e *discoveryv1.EndpointSlice) bool {
	_, hidden := e.Labels[corev1.IsHeadlessService]
	return hidden
}

// shows reports whether an update makes something of a slice visible to proxies that was not.
func shows(update, existing *discoveryv1.EndpointSlice) bool {
	return !isHidden(update) && (isHidden(existing) || lacksPort(existing, update))
}

// hides reports whether an update hides something of a slice that proxies see. It may show something else of it.
func hides(update, existing *discoveryv1.EndpointSlice) bool {
	return !isHidden(existing) && (isHidden(update) || lacksPort(update, existing))
}

// lacksPort reports whether a slice lacks a port that another one has.
func lacksPort(e, other *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(other.Ports, func(p discoveryv1.EndpointPort) bool { return !hasPort(e, keyOf(other, p)) })
}

// visible returns an update of a slice that proxies see, without what it hides: all that it shows, and what they see now of the ports that its
// cluster offers, under any name. A slice has each name once: a port that changes its protocol is hidden as the new one is shown.
func visible(update, existing *discoveryv1.EndpointSlice, offered []discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	v := update.DeepCopy()
	delete(v.Labels, corev1.IsHeadlessService)
	v.Ports = slices.DeleteFunc(slices.Clone(existing.Ports), func(p discoveryv1.EndpointPort) bool {
		key := keyOf(existing, p)
		clashes := slices.ContainsFunc(update.Ports, func(q discoveryv1.EndpointPort) bool {
			return keyOf(update, q) != key && keyOf(update, q).name == key.name
		})
		return clashes || !slices.ContainsFunc(offered, func(q discoveryv1.EndpointPort) bool {
			return keyOf(update, q).protocol == key.protocol && sameNumber(q, p)
		})
	})
	for _, p := range update.Ports {
		same := func(q discoveryv1.EndpointPort) bool { return keyOf(existing, q) == keyOf(update, p) }
		if at := slices.IndexFunc(v.Ports, same); at >= 0 {
			v.Ports[at] = p
		} else if !isHidden(update) { // else it has all ports, and shows none
			v.Ports = append(v.Ports, p)
		}
	}
	return v
}

// sameNumber reports whether two ports have the same number, or none.
func sameNumber(p, q discoveryv1.EndpointPort) bool {
	return p.Port == nil && q.Port == nil || p.Port != nil && q.Port != nil && *p.Port == *q.Port
}

// isEligible reports whether Kubernetes sends traffic to an endpoint of the slice: one that is ready, or terminates and still serves.
func isEligible(e *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(e.Endpoints, func(ep discoveryv1.Endpoint) bool {
		c := ep.Conditions
		ready := c.Ready == nil || *c.Ready
		return ready || c.Serving != nil && *c.Serving && c.Terminating != nil && *c.Terminating
	})
}

func keyOf(e *discoveryv1.EndpointSlice, p discoveryv1.EndpointPort) port {
	key := port{protocol: corev1.ProtocolTCP, family: e.AddressType}
	if p.Name != nil {
		key.name = *p.Name
	}
	if p.Protocol != nil {
		key.protocol = *p.Protocol
	}
	return key
}

func hasPort(e *discoveryv1.EndpointSlice, key port) bool {
	return slices.ContainsFunc(e.Ports, func(p discoveryv1.EndpointPort) bool { return keyOf(e, p) == key })
}

// portsOf returns the ports of slices, each once.
func portsOf(all []*discoveryv1.EndpointSlice) []port {
	var ports []port
	for _, e := range all {
		for _, p := range e.Ports {
			if key := keyOf(e, p); !slices.Contains(ports, key) {
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
