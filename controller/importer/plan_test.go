package importer

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/export"
	"github.com/clusterset-dns/clusterset/controller/liveness"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// planInputs returns inputs with a slice of 2 endpoints of each cluster, which has a Service of this port. The first
// cluster has the oldest export. This cluster is east.
func planInputs(ports map[string]int32) inputs {
	in := inputs{
		service: db, namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		broker: broker.View{Members: map[string]*v1alpha1.Member{}}, shares: map[string]share{},
	}
	for n, cluster := range []string{"west", "north", "east"} {
		if ports[cluster] == 0 {
			continue
		}
		r := merge.Record{Cluster: cluster, Spec: v1alpha1.ExportedServiceSpec{
			Namespace: "shop", Name: "db", Type: v1alpha1.ClusterSetIP, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:         []v1alpha1.ServicePort{{Name: "pg", Protocol: corev1.ProtocolTCP, Port: ports[cluster]}},
			ExportCreated: metav1.NewTime(time.Unix(1_700_000_000+int64(n), 0)),
		}}
		s := []*discoveryv1.EndpointSlice{{ObjectMeta: metav1.ObjectMeta{Name: "of-" + cluster},
			Endpoints: make([]discoveryv1.Endpoint, 2)}}
		in.records = append(in.records, r)
		if cluster == "east" {
			in.own.Result = export.Result{Record: &v1alpha1.ExportedService{Spec: r.Spec}, Local: s}
			continue
		}
		in.broker.Records = append(in.broker.Records, r)
		in.broker.Members[cluster], in.shares[cluster] = &v1alpha1.Member{}, share{slices: s}
	}
	return in
}

// textOf returns the clusters of the import with their slices, the conflicts and the rejections.
func textOf(p plan) string {
	var text []string
	if p.result.Import != nil {
		for _, src := range p.cluster.Sources {
			of := src.Cluster + ":"
			for _, s := range src.Slices {
				of += s.Name
			}
			text = append(text, of)
		}
	}
	for _, c := range p.conflicts {
		text = append(text, string(c.Reason))
	}
	for _, r := range p.rejected {
		text = append(text, fmt.Sprintf("(%s %s %s)", r.Cluster, r.Object, r.Reason))
	}
	return strings.Join(text, " ")
}

// docs/spec/selection.md 5: the zones by the Namespace of an import come before those by exports.
func TestDistribution(t *testing.T) {
	const same, node = corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode
	for _, tt := range []struct {
		exported, namespace string
		off                 bool // exported_affinity
		want, rejected      string
	}{
		{},
		{exported: same, want: same},
		{exported: same, off: true},
		{exported: same, namespace: "none"},
		{exported: same, namespace: node, want: node},
		{namespace: node, off: true, want: node},
		{exported: same, namespace: "PreferMoon",
			rejected: `annotation clusterset-dns.io/traffic-distribution: "PreferMoon": want PreferSameZone, PreferSameNode, PreferClose or none`},
	} {
		in := planInputs(map[string]int32{"west": 1})
		if tt.exported != "" {
			in.records[0].Spec.TrafficDistribution = &tt.exported
		}
		if tt.namespace != "" {
			in.namespace.Annotations = map[string]string{apibroker.AnnotationTrafficDistribution: tt.namespace}
		}
		made := planner{clusterID: "east", limits: emptyLimits(100, 20, 20, 100, 2), exportedAffinity: !tt.off}.plan(in)
		var got, rejected string
		if d := made.result.Import.Spec.TrafficDistribution; d != nil {
			got = *d
		}
		for _, r := range made.rejected {
			rejected += r.Detail
		}
		if got != tt.want || rejected != tt.rejected {
			t.Errorf("%+v: distribution %q, rejected %q", tt, got, rejected)
		}
	}
}

// Plans by inputs, without any API server (docs/spec/controller.md 8.2, docs/spec/controller.md 9.2,
// docs/spec/controller.md 9.6).
func TestPlan(t *testing.T) {
	annotate := func(key, value string) func(*inputs) {
		return func(in *inputs) { in.namespace.Annotations = map[string]string{key: value} }
	}
	all := map[string]int32{"west": 1, "north": 1, "east": 1}
	for _, tt := range []struct {
		name   string
		ports  map[string]int32
		change func(*inputs)
		limit  int // of services, 100 if 0
		want   string
	}{
		{name: "all count", ports: all, want: "east:of-east north:of-north west:of-west"},
		{name: "no exports"},
		{name: "a silent member stays without endpoints", ports: all,
			change: func(in *inputs) { in.silent = silentWest(liveness.ActRemove) }, want: "east:of-east north:of-north west:"},
		{name: "no namespace", ports: all, change: func(in *inputs) { in.namespace = nil }},
		{name: "a namespace of the broker", ports: all,
			change: func(in *inputs) { in.namespace.Labels = map[string]string{apibroker.LabelClusterID: "west"} },
			want:   "(west db.shop namespace) (north db.shop namespace)"},
		{name: "what a namespace does not accept is in conflict nevertheless",
			ports:  map[string]int32{"west": 1, "north": 2, "east": 2},
			change: annotate(apibroker.AnnotationAllowedSources, "north,east"),
			want:   "east:of-east north:of-north PortConflict (west db.shop namespace)"},
		{name: "an annotation that is malformed", ports: map[string]int32{"west": 1},
			change: annotate(apibroker.AnnotationAffinity, "moon"),
			want:   "west:of-west (this cluster Namespace shop selector)"},
		{name: "an export to others", ports: all, change: func(in *inputs) {
			in.records[1].Spec.ToClusters = toProperty("tier", "gold")
			in.reach = map[string]map[string]string{"east": {"tier": "lead"}, "north": {"tier": "gold"},
				"west": {"tier": "gold"}}
		}, want: "east:of-east west:of-west"},
		{name: "no room", ports: all, limit: 1, want: "east:of-east (west db.shop limit) (north db.shop limit)"},
		{name: "room for the endpoints of one", ports: all,
			change: func(in *inputs) { in.shares["north"].slices[0].Endpoints = make([]discoveryv1.Endpoint, 11) },
			want:   "east:of-east north: west:of-west (north of-north limit)"},
	} {
		in, same := planInputs(tt.ports), planInputs(tt.ports)
		if tt.change != nil {
			tt.change(&in)
			tt.change(&same)
		}
		made := make([]plan, 2)
		for n := range made {
			limit := tt.limit
			if limit == 0 {
				limit = 100
			}
			p := planner{clusterID: "east", limits: emptyLimits(limit, 20, 20, 100, 2), exportedAffinity: true}
			made[n] = p.plan(in)
		}
		if got := textOf(made[0]); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if !reflect.DeepEqual(made[0], made[1]) || !reflect.DeepEqual(in, same) {
			t.Errorf("%s: another plan of the same inputs differs, or a plan changes its inputs", tt.name)
		}
		if families := made[0].cluster.Families; !slices.Equal(families,
			[]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}) {
			t.Errorf("%s: families = %v, want both while those of this cluster are unknown", tt.name, families)
		}
	}
}

// An unknown share freezes an import, unless its cluster has no part in it any more.
func TestTaken(t *testing.T) {
	unknown := share{unknown: true}
	for _, tt := range []struct {
		name, sources string
		shares        map[string]share
		silent        liveness.Action // of west; "" if it is not
		want          string
	}{
		{name: "unknown", shares: map[string]share{"west": unknown}, want: "west"},
		{name: "not accepted", sources: "north", shares: map[string]share{"west": unknown, "north": unknown}, want: "north"},
		{name: "known and not accepted is rejected later", sources: "north", shares: map[string]share{"west": {}},
			want: "west"},
		{name: "silent and alone", silent: liveness.ActRemove, shares: map[string]share{"west": unknown}, want: "west"},
		{name: "a last resort", silent: liveness.ActLastResort, shares: map[string]share{"west": unknown, "north": {}},
			want: "north west"},
		{name: "silent beside another", silent: liveness.ActRemove, shares: map[string]share{"west": unknown, "north": {}},
			want: "north"},
		{name: "silent and kept", silent: liveness.ActKeep, shares: map[string]share{"west": unknown, "north": {}},
			want: "north west"},
	} {
		in := planInputs(nil)
		if tt.silent != "" {
			in.silent = silentWest(tt.silent)
		}
		if tt.sources != "" {
			in.namespace.Annotations = map[string]string{apibroker.AnnotationAllowedSources: tt.sources}
		}
		p := planner{clusterID: "east"}
		if got := strings.Join(slices.Sorted(maps.Keys(p.withoutEmpty(in, tt.shares))), " "); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func silentWest(a liveness.Action) liveness.Result {
	return liveness.Result{}.Silence("west", 0, liveness.OnExpiry{Action: a, Limit: time.Hour}, time.Unix(0, 0))
}

// While a member is silent, also from the start on, its endpoints keep their place within the limits.
func TestExpiredKeepPlace(t *testing.T) {
	in := planInputs(map[string]int32{"west": 1, "north": 1})
	in.silent = silentWest(liveness.ActRemove)
	p := planner{clusterID: "east", limits: emptyLimits(100, 20, 20, 100, 2), exportedAffinity: true}
	p.plan(in)
	want := map[string]contribution{"north": {endpoints: 2}, "west": {endpoints: 2}}
	if got := p.limits.contributions(db); !reflect.DeepEqual(got, want) {
		t.Errorf("contributions = %v, want %v", got, want)
	}
}
