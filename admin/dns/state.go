package dns

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/wiring"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/broker"
)

// A State is what the resolvers of a cluster do with the zone.
type State struct {
	Zone      string            `json:"zone"`
	Server    Server            `json:"server"`
	Resolvers []wiring.Resolver `json:"resolvers"`
	Answers   []Answer          `json:"answers,omitempty"` // empty if no server was asked
	read.Result

	Kubelet        wiring.Kubelet  `json:"-"`
	clusterService *corev1.Service // that of the cluster's DNS server; nil if it does not exist
}

// A Server is the DNS server of the clusterset in the cluster.
type Server struct {
	Service   string       `json:"service"` // NAMESPACE/NAME
	Addresses []netip.Addr `json:"addresses"`
	Ready     bool         `json:"ready"`
	Problem   string       `json:"problem,omitempty"` // why it has no address, or is not ready
	Zones     []string     `json:"zones,omitempty"`   // that Corefiles in its namespace serve; empty if unknown
	object    *corev1.Service
}

// A wirer reads and writes the DNS configuration of one cluster, for one call of [Status], [Diff], [Apply],
// [Undo] or [Join]. Its methods are independent of each other: state reads, package wiring decides which edit each
// resolver needs, and edit writes those. Nothing is kept between calls, so the state is read again after an edit.
type wirer struct {
	*write.Writer
	o Options
}

// state reads the cluster. It asks nothing.
func (w *wirer) state(ctx context.Context) (State, error) {
	s := State{Zone: w.o.Zone, Result: read.NewResult()}
	w.Skipped = nil
	var err error
	if s.Server, err = ReadServer(ctx, w.Cluster, w.o.Service); err != nil {
		return s, err
	}
	objects, err := w.objects(ctx)
	s.clusterService = objects.DNSService()
	if err != nil {
		return s, err
	}
	s.Server.Zones = w.servedZones(ctx)
	s.Server.Addresses = objects.Reachable(s.Server.Addresses)
	s.Resolvers = wiring.Find(objects, wiring.Desired{Zone: w.o.Zone, Addresses: s.Server.Addresses,
		InProcess: w.o.InProcess})
	s.Warnings = append(s.Warnings, w.Skipped...)
	s.Kubelet = objects.Kubelet()
	return s, nil
}

// objects reads what package wiring looks at.
func (w *wirer) objects(ctx context.Context) (o wiring.Objects, err error) {
	o.OpenShift, err = w.Find(ctx, read.Object(read.OpenShiftDNS, "", "default"))
	switch {
	case apierrors.IsForbidden(err):
		// Other clusters do not have this kind, and a user needs no right to it there.
		w.Skipped = append(w.Skipped, "if this is OpenShift: "+err.Error())
	case err != nil:
		return o, err
	case o.OpenShift != nil:
		o.Services, err = read.List[corev1.Service](ctx, w.Cluster, read.Services, wiring.OpenShiftNamespace, "")
		return o, err
	}
	in := w.o.Namespace
	if o.Services, err = read.List[corev1.Service](ctx, w.Cluster, read.Services, in, ""); err != nil {
		return o, err
	}
	if o.Deployments, err = read.List[appsv1.Deployment](ctx, w.Cluster, read.Deployments, in, ""); err != nil {
		return o, err
	}
	daemonSets := appsv1.SchemeGroupVersion.WithResource("daemonsets")
	if o.DaemonSets, err = read.List[appsv1.DaemonSet](ctx, w.Cluster, daemonSets, in, ""); err != nil {
		return o, err
	}
	o.ConfigMaps, err = w.ListObjects(ctx, corev1.SchemeGroupVersion.WithResource("configmaps"), in, "")
	return o, err
}

// ReadServer reads the Service of the DNS server, and whether it has an endpoint.
func ReadServer(ctx context.Context, c *read.Cluster, name types.NamespacedName) (Server, error) {
	s := Server{Service: name.String(), Addresses: []netip.Addr{}}
	kind := corev1.SchemeGroupVersion.WithKind("Service")
	service, err := read.As[corev1.Service](ctx, c, kind, name.Namespace, name.Name)
	if err != nil {
		return s, err
	}
	if service == nil {
		s.Problem = "Service " + s.Service +
			" does not exist: want that of the DNS server of the clusterset (deploy/dns), or another one by --service"
		return s, nil
	}
	s.object = service
	for _, ip := range service.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(ip); err == nil {
			s.Addresses = append(s.Addresses, a)
		}
	}
	if len(s.Addresses) == 0 {
		s.Problem = "Service " + s.Service + " has no cluster IP: want one that the cluster's DNS server can forward to"
		return s, nil
	}
	found, err := read.List[discoveryv1.EndpointSlice](ctx, c, read.EndpointSlices, service.Namespace,
		discoveryv1.LabelServiceName+"="+service.Name)
	if err != nil {
		return s, err
	}
	for _, slice := range found {
		for i := range slice.Endpoints {
			if broker.IsReady(slice.Endpoints[i].Conditions) {
				s.Ready = true
			}
		}
	}
	if !s.Ready {
		s.Problem = "Service " + s.Service + " has no ready endpoint"
	}
	return s, nil
}

// servedZones needs no right: without one, the zones are unknown.
func (w *wirer) servedZones(ctx context.Context) (zones []string) {
	all, _ := w.ListObjects(ctx, corev1.SchemeGroupVersion.WithResource("configmaps"), w.o.Service.Namespace, "")
	for _, o := range all {
		zones = append(zones, wiring.ServedZones(read.StringAt(o, "data", "Corefile"))...)
	}
	return zones
}

// CheckZone returns an error if another zone is served than the one to forward.
func (s *State) CheckZone() error {
	if len(s.Server.Zones) == 0 || slices.Contains(s.Server.Zones, s.Zone) ||
		s.inProcess() {
		return nil
	}
	return fmt.Errorf("zone %q: the DNS server of the clusterset serves %s", s.Zone, strings.Join(s.Server.Zones, ", "))
}

// evaluate lists the faults. An answer decides: a configuration that is not as we would write it is no fault if all
// Pods of the cluster's DNS server answer with it.
func (s *State) evaluate() {
	wired, answered := true, s.answered(cause.ClusterDNS)
	for i := range s.Resolvers {
		r := &s.Resolvers[i]
		text := problem(r, s.Zone)
		switch {
		case text != "" && answered && r.Kind != wiring.NodeLocal:
			s.Warnings = append(s.Warnings, text)
		case text != "":
			wired = false
			s.Problems = append(s.Problems, text)
		}
		for _, text := range r.Diverted {
			s.Problems = append(s.Problems, r.Name()+": "+text)
		}
		for _, text := range r.Warnings {
			s.Warnings = append(s.Warnings, r.Name()+": "+text)
		}
	}
	// A zone that is served in the process of the resolver needs no server.
	if s.Server.Problem != "" && (!wired || len(s.Server.Addresses) > 0) {
		s.Problems = append(s.Problems, s.Server.Problem)
	}
	for _, a := range s.Answers {
		switch {
		case a.Unread != "":
			s.Unread = append(s.Unread, a.Server+": "+a.Unread)
		case a.Error != "" && a.Role == cause.ClusterSetDNS && s.Server.Problem != "": // named above
		case a.Error != "":
			s.Problems = append(s.Problems, a.String())
		case !a.Wired && (wired || a.Role == cause.ClusterSetDNS):
			s.Problems = append(s.Problems, fmt.Sprintf("%s to dns-version.%s TXT: want NOERROR and a version", a, s.Zone))
		}
	}
}

// byHand lists the resolvers that an edit does not wire.
func (s *State) byHand() {
	for i := range s.Resolvers {
		if r := &s.Resolvers[i]; r.State == wiring.Taken || r.State == wiring.Manual {
			s.Problems = append(s.Problems, problem(r, s.Zone))
		}
	}
}

// problem returns the fault of a resolver, or "" if it is wired.
func problem(r *wiring.Resolver, zone string) string {
	switch r.State {
	case wiring.Missing:
		return r.Name() + " does not forward " + zone + ": run \"clusterset dns apply\""
	case wiring.Outdated:
		return r.Name() + " does not forward " + zone + " as is wanted now: run \"clusterset dns apply\""
	case wiring.Taken:
		return r.Name() + " is left alone: " + r.Reason
	case wiring.Manual:
		return r.Name() + " needs an edit by hand: " + r.Reason
	}
	return ""
}
