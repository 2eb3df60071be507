package join

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// putNode makes a Node have a region; "" is no label.
func putNode(t *testing.T, c *controlplane.ControlPlane, name, region string) {
	t.Helper()
	labels := "{}"
	if region != "" {
		labels = fmt.Sprintf("{topology.kubernetes.io/region: %s}", region)
	}
	node := fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: %s}\n", name, labels)
	if err := c.ApplyYAML(t.Context(), []byte(node)); err != nil {
		t.Fatal(err)
	}
}

// withRegion joins with a region.
func withRegion(region string) Options {
	o := options("east")
	o.Region = region
	return o
}

// regionOf returns the region that a cluster publishes, or "".
func regionOf(t *testing.T, c *controlplane.ControlPlane) string {
	t.Helper()
	o, err := openReader(t, c).Find(t.Context(), read.Local{AboutVersion: "v1beta1"}.Property(about.RegionName, ""))
	if err != nil {
		t.Fatal(err)
	}
	return read.PropertyValue(o)
}

func openReader(t *testing.T, c *controlplane.ControlPlane) *read.Cluster {
	t.Helper()
	found, err := read.Open(read.RoleMember, c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestDecideRegion: which region a join writes or offers, and which it rejects.
func TestDecideRegion(t *testing.T) {
	others := read.Local{AboutVersion: "v1beta1"}.Property(about.RegionName, "asia")
	for _, tt := range []struct {
		name, asked string
		property    *unstructured.Unstructured
		regions     []string
		unread      error
		want, offer string
		wantErr     string
	}{
		{name: "no region"},
		{name: "that of the Nodes is offered", regions: []string{"eu"}, offer: "eu"},
		{name: "of two none is offered", regions: []string{"eu", "us"}},
		{name: "no offer if it has one", property: others, regions: []string{"eu"}},
		{name: "no offer if Nodes cannot be read", regions: []string{"eu"}, unread: errors.New("no right")},
		{name: "that of the Nodes", asked: "auto", regions: []string{"eu"}, want: "eu"},
		{name: "another one", asked: "us", regions: []string{"eu"}, want: "us"},
		{name: "that of others", asked: "asia", property: others, want: "asia"},
		{name: "no Nodes", asked: "auto",
			wantErr: "--region=auto: the Nodes have 0 regions by their label topology.kubernetes.io/region: want one, or --region=REGION"},
		{name: "two regions", asked: "auto", regions: []string{"eu", "us"},
			wantErr: "--region=auto: the Nodes have 2 regions by their label topology.kubernetes.io/region, such as eu, us: want one, or --region=REGION"},
		{name: "unread", asked: "auto", unread: errors.New("no right"), wantErr: "--region=auto: no right"},
		{name: "long", asked: strings.Repeat("x", 300), wantErr: "want 1 to "},
		{name: "of others", asked: "eu", property: others, wantErr: `--region=eu: ClusterProperty region.topology.k8s.io is "asia", and was not written by clusterset`},
	} {
		got, offer, err := decideRegion(tt.asked, tt.property, tt.regions, tt.unread)
		if got != tt.want || offer != tt.offer || (err == nil) != (tt.wantErr == "") || err != nil &&
			!strings.Contains(err.Error(), tt.wantErr) {
			t.Errorf("%s: %q, offered %q, %v; want %q, %q, error %q", tt.name, got, offer, err, tt.want, tt.offer, tt.wantErr)
		}
	}
}

// TestRegion: join sets the region of a cluster, where the policies of a member are in force, and offers that of its
// Nodes; uninstall removes it.
func TestRegion(t *testing.T) {
	tier.All(t)
	all := startControlPlanes(t, 2)
	onBroker, east := all[0], all[1]
	initBroker(t, onBroker)
	joins := func(asked, region, ofNodes string) {
		t.Helper()
		joined := mustJoin(t, onBroker, east, withRegion(asked))
		if got := regionOf(t, east); got != region || joined.RegionOfNodes != ofNodes {
			t.Errorf("join with region %q: region %q, offered %q, want %q and %q", asked, got, joined.RegionOfNodes, region,
				ofNodes)
		}
	}
	putNode(t, east, "one", "")
	badJoin{"no label", func(o *Options) { o.Region = "auto" },
		"--region=auto: the Node one has no label topology.kubernetes.io/region"}.test(t, onBroker, east)
	joins("", "", "")
	if err := east.AwaitPolicies(t.Context()); err != nil {
		t.Fatal(err)
	}
	putNode(t, east, "one", "eu")
	joins("", "", "eu")
	joins("auto", "eu", "")
	joins("", "eu", "")
	joins("us", "us", "")

	mustLeave(t, onBroker, east)
	east.EndNamespacesT(t)
	until.OK(t, "everything but what others have written is removed", func(ctx context.Context) error {
		_, err := Uninstall(ctx, east.Config(), UninstallOptions{Namespace: wellknown.ControllerNamespace,
			DNS: dns.Defaults()})
		return err
	})
	joinsAfterOthers(t, onBroker, east)
}

// joinsAfterOthers: a region that somebody else has written stays, and uninstall has removed that of join.
func joinsAfterOthers(t *testing.T, onBroker, east *controlplane.ControlPlane) {
	t.Helper()
	mustJoin(t, onBroker, east, withRegion(""))
	if err := east.AwaitPolicies(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := regionOf(t, east); got != "" {
		t.Errorf("region %q after uninstall, want none", got)
	}
	if err := east.Apply(t.Context(), read.Local{AboutVersion: "v1beta1"}.Property(about.RegionName, "asia")); err != nil {
		t.Fatal(err)
	}
	if _, err := Join(t.Context(), onBroker.Config(), east.Config(), withRegion("asia")); err != nil {
		t.Error(err)
	}
	if err := east.Apply(t.Context(), read.Local{AboutVersion: "v1beta1"}.Property("region.k8s.io",
		"eu")); !isInvalid(err) {
		t.Errorf("property region.k8s.io: %v, want a denial", err)
	}
}

func isInvalid(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && apierrors.IsInvalid(err)
}
