// Package clusterset tests a whole clusterset: a broker and three members that are real API servers, joined by the code
// of the command, controllers with the rights and policies that are shipped, and CoreDNS.
package clusterset

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

var update = flag.Bool("update", false, "write the observed objects and answers into the files of testdata")

// longID is a cluster ID of 63 octets, the maximum. Files of testdata call it west.
var longID = "west-" + strings.Repeat("w", 58)

const northID = "north.registry1"

// All tests but TestIPFamilies share one clusterset, and a CoreDNS in its last member. Each removes what it created.
var (
	clusters          *testclusterset.Clusterset
	east, north, west *testclusterset.Member
	server            *testclusterset.DNS
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "clusterset:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	stop, err := startClusters(ctx, nil)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// startClusters sets the variables above. The families are those of members with one.
func startClusters(ctx context.Context, families map[string]corev1.IPFamily) (stop func() error, err error) {
	started, err := testclusterset.Start(ctx,
		testclusterset.Options{IDs: []string{"east", northID, longID}, Families: families})
	if err != nil {
		return func() error { return nil }, err
	}
	clusters, east, north, west = started, started.Members[0], started.Members[1], started.Members[2]
	for _, member := range started.Members {
		if _, err := member.Join(ctx, withVIPs); err != nil {
			return started.Stop, err
		}
	}
	running, err := west.StartDNS(ctx)
	if err != nil {
		return started.Stop, err
	}
	server = running
	return func() error { return errors.Join(running.StopDNS(), started.Stop()) }, nil
}

// withVIPs gives a member a VIP CIDR, for "vip cidr".
func withVIPs(o *join.Options) { o.VIPCIDR = join.VIPAuto }

// option returns the change of a setting that a line of a Corefile makes: "merge lighthouse".
func option(t testing.TB, line string) func(*controller.Config) {
	t.Helper()
	fields := strings.Fields(line)
	for _, o := range controller.Options() {
		if o.Name == fields[0] {
			return func(c *controller.Config) {
				if err := o.Set(c, fields[1:]); err != nil {
					t.Errorf("%s: %v", line, err)
				}
			}
		}
	}
	t.Fatalf("%q: want an option of the controller", line)
	return nil
}

// runAll runs a controller in each member with these options until the test ends. It returns when all of them are idle.
func runAll(t testing.TB, lines ...string) []*meter {
	t.Helper()
	meters := make([]*meter, len(clusters.Members))
	for i, m := range clusters.Members {
		meters[i], _ = start(t, m, lines...)
	}
	for _, m := range meters {
		m.awaitIdle(t)
	}
	return meters
}

// start runs the controller of a member.
func start(t testing.TB, m *testclusterset.Member, lines ...string) (metrics *meter, stop func()) {
	t.Helper()
	metrics = &meter{prometheus.NewRegistry()}
	changes := []func(*controller.Config){func(c *controller.Config) { c.Metrics = controller.NewMetrics(metrics) }}
	for _, line := range lines {
		changes = append(changes, option(t, line))
	}
	return metrics, m.Run(t, changes...)
}
