package dns

import (
	"context"
	"net/netip"

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
	clusterService *corev1.Service // of the cluster's DNS server; nil if it does not exist
}

// An Answer is the response of one DNS server to TXT dns-version in the zone (docs/spec/dns-wiring.md 7).
type Answer struct {
	Server   string     `json:"server"`             // "pod/NAME", "service/NAME" or host and port
	Role     cause.Role `json:"role,omitempty"`     // "cluster" or "clusterset"
	Response string     `json:"response,omitempty"` // "NOERROR 1.0.0"; empty without a response
	Error    string     `json:"error,omitempty"`    // reason for no response
	Unread   string     `json:"unread,omitempty"`   // reason for not asking
	// Wired means that a DNS server of a clusterset has answered.
	Wired bool `json:"wired"`
}

// A Server is the DNS server of the clusterset in the cluster.
type Server struct {
	Service   string       `json:"service"` // NAMESPACE/NAME
	Addresses []netip.Addr `json:"addresses"`
	Ready     bool         `json:"ready"`
	Problem   string       `json:"problem,omitempty"` // why it has no address, or is not ready
	Zones     []string     `json:"zones,omitempty"`   // that Corefiles in its namespace serve; empty if unknown
	object    *corev1.Service
	bound     bool // [wiring.Bound] of a Corefile in its namespace
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
	w.readCorefiles(ctx, &s.Server)
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

// readCorefiles needs no right: without one, zones and bound are unknown.
func (w *wirer) readCorefiles(ctx context.Context, s *Server) {
	all, _ := w.ListObjects(ctx, corev1.SchemeGroupVersion.WithResource("configmaps"), w.o.Service.Namespace, "")
	for _, o := range all {
		text := read.StringAt(o, "data", "Corefile")
		s.Zones = append(s.Zones, wiring.ServedZones(text)...)
		s.bound = s.bound || wiring.Bound(text)
	}
}
