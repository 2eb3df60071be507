package clusterset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/admin/status"
	"github.com/clusterset-dns/clusterset/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// TestMembership lets a member leave. It cannot join again under the ID of another member, but can under a new one
// (docs/spec/controller.md 7).
func TestMembership(t *testing.T) {
	runAll(t)
	s := scriptIn(t, "membership", east, webOfEast)
	defer s.withdraw(t)
	clusters.Broker.EndNamespacesT(t)
	s.change(t, north, strings.ReplaceAll(webOfEast, "10.21.", "10.22."))
	both := strings.Replace(webImported, "[east]", "[east north.registry1]", 1) +
		"slice of web from north.registry1, derived: http=TCP/8080 at 10.22.0.1\n"
	s.awaitImports(t, both, clusters.Members...)

	north.Leave(t)
	s.awaitImports(t, webImported, east, west)
	s.awaitImports(t, "", north)
	s.condition(t, north, "web", "Valid=False/NotMember")
	if left, err := records(t.Context(), north.BrokerNamespace()); err != nil || len(left) > 0 {
		t.Errorf("records of a member that left = %v, %v, want none", left, err)
	}
	until.OK(t, "properties of a member that left", func(ctx context.Context) error {
		properties, err := list[v1beta1.ClusterProperty](ctx, north, "about.k8s.io/v1beta1", "clusterproperties", "")
		if err == nil && (len(properties) != 1 || properties[0].Name != "cluster.clusterset.k8s.io") {
			err = fmt.Errorf("%v, want its ID alone", properties)
		}
		return err
	})

	as := func(id string) func(*join.Options) {
		return func(o *join.Options) { o.ClusterID = id }
	}
	if _, err := north.Join(t.Context(), as("east")); err == nil || !strings.Contains(err.Error(), `cluster id "east" is taken`) {
		t.Errorf("join as east: %v, want an error that says that the id is taken", err)
	}
	s.awaitImports(t, webImported, east, west)

	if _, err := north.Join(t.Context(), withVIPs, as("renamed")); err != nil {
		t.Fatal(err)
	}
	renamed := strings.ReplaceAll(both, "north.registry1", "renamed")
	s.awaitImports(t, renamed, clusters.Members...)
	server.Answers(t, "renamed.web."+s.namespace, dns.TypeA, "NOERROR 10.22.0.1")
	server.Answers(t, "north.registry1.web."+s.namespace, dns.TypeA, "NXDOMAIN")

	north.Leave(t)
	s.awaitImports(t, webImported, east, west)
	if _, err := north.Join(t.Context(), withVIPs); err != nil {
		t.Fatal(err)
	}
	s.awaitImports(t, both, clusters.Members...)
}

// TestClustersetVIP: a controller publishes its option vip, and status names the member whose option is not that of the
// clusterset (docs/spec/controller.md 7.9).
func TestClustersetVIP(t *testing.T) {
	tier.All(t)
	set := func(vip string) {
		t.Helper()
		if err := join.Init(context.WithoutCancel(t.Context()), clusters.Broker.Config(),
			join.InitOptions{VIP: vip, AggregateView: true}); err != nil {
			t.Error(err)
		}
	}
	set("derived")
	defer set(join.VIPAny)
	start(t, east)
	start(t, west, "vip cidr 10.250.0.0/16")
	const want = ` has vip cidr 10.250.0.0/16, and the clusterset has vip derived: run "clusterset join --vip=derived" there, or give its controller this option`
	until.OK(t, "status", func(ctx context.Context) error {
		state, err := status.Read(ctx, nil, east.Config(), status.Defaults())
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(state.Members, func(m status.MemberState) bool { return m.ClusterID == east.ID }); i < 0 ||
			state.Members[i].VIP != "derived" {
			return fmt.Errorf("members %+v, want that east publishes its vip", state.Members)
		}
		problems := strings.Join(state.Problems, "\n")
		if !strings.Contains(problems, fmt.Sprintf("member %q", west.ID)+want) ||
			strings.Contains(problems, fmt.Sprintf("member %q has vip", east.ID)) {
			return fmt.Errorf("problems %q, want west alone with another vip", state.Problems)
		}
		return nil
	})
}
