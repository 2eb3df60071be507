// Package testclusterset starts clustersets for tests and the demo: a broker and its members.
//
//	          Clusterset
//	Broker                Members[0] "east"   Members[1] "west"
//	control plane         control plane       control plane      each a kube-apiserver with etcd
//	  ^                     Run: controller     StartDNS: CoreDNS
//	  +--- Join ------------+-------------------+
//
// All API servers are real. Join does what `clusterset join` does, and every controller and server runs with the
// service account, the rights and the policies that are shipped.
package testclusterset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// A Clusterset is a broker and the clusters that are, or may become, its members.
type Clusterset struct {
	Broker  *controlplane.ControlPlane
	Members []*Member
}

// A Member is a cluster. Its Services have addresses in 10.1N.0.0/16 and fd00:1N::/108, its Pods in 10.2N.0.0/16 and
// fd00:2N::/64, where N counts the members from 1, or is 1 with SameNetworks. It may have only one of the two families.
type Member struct {
	*controlplane.ControlPlane
	ID    string
	Index int

	family     corev1.IPFamily // "" for both
	clusterset *Clusterset
	dir        string
}

// Options are the parameters of [Start].
type Options struct {
	IDs []string // cluster ids of the members; 9 at most
	// Broker and Member are the options of the control planes. Start sets ServiceCIDR of Member.
	Broker, Member controlplane.Options
	// SameNetworks gives all members the networks of the first.
	SameNetworks bool
	// Families are those of members with one IP family, by ID.
	Families map[string]corev1.IPFamily
	// Bare leaves out join.Init, for tests that prepare the broker by the command.
	Bare bool
	// Manifests are what each member has before it joins: its namespace and rights. Those that are shipped, if nil.
	Manifests [][]byte
}

// Start starts the control planes and prepares the broker. ctx bounds the start only: the caller has to call Stop.
func Start(ctx context.Context, o Options) (_ *Clusterset, err error) {
	c := &Clusterset{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if o.Broker.CRDs == nil {
		o.Broker.CRDs = [][]byte{} // Init brings them.
	}
	if c.Broker, err = controlplane.Start(ctx, o.Broker); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	if o.Manifests == nil {
		o.Manifests = [][]byte{deploy.Namespace, deploy.ControllerRBAC, deploy.DNSRBAC}
	}
	c.Members = make([]*Member, len(o.IDs))
	var g errgroup.Group
	for i, id := range o.IDs {
		n := i + 1
		if o.SameNetworks {
			n = 1
		}
		g.Go(func() (err error) {
			c.Members[i], err = c.start(ctx, id, n, o)
			return err
		})
	}
	g.Go(func() error {
		if o.Bare {
			return nil
		}
		return c.init(ctx)
	})
	return c, g.Wait()
}

// init prepares the broker. On a busy machine an API server that has just started may need longer than the minute it
// allows each request; then it goes on where it stopped.
func (c *Clusterset) init(ctx context.Context) error {
	for {
		if err := join.Init(ctx, c.Broker.Config(), join.InitOptions{AggregateView: true}); !apierrors.IsTimeout(err) ||
			ctx.Err() != nil {
			return err
		}
	}
}

// start starts one cluster with the service accounts of the controller and of the DNS server.
func (c *Clusterset) start(ctx context.Context, id string, n int, all Options) (*Member, error) {
	o := all.Member
	services := ofFamily(all.Families[id], fmt.Sprintf("10.1%d.0.0/16", n), fmt.Sprintf("fd00:1%d::/108", n))
	o.ServiceCIDR = strings.Join(services, ",")
	cp, err := controlplane.Start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("member %s: %w", id, err)
	}
	// In the folder of the control plane, which is removed even if this process is killed.
	m := &Member{ControlPlane: cp, ID: id, Index: n, family: all.Families[id], clusterset: c,
		dir: filepath.Join(filepath.Dir(cp.Kubeconfig()), "mounted")}
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return m, fmt.Errorf("member %s: %w", id, err)
	}
	for _, manifest := range all.Manifests {
		if err := cp.ApplyYAML(ctx, manifest); err != nil {
			return m, fmt.Errorf("member %s: %w", id, err)
		}
	}
	return m, nil
}

// StartT is [Start] for a test. It also joins all members, and stops the clusterset with the test.
func StartT(t testing.TB, ids ...string) *Clusterset {
	t.Helper()
	c, err := Start(t.Context(), Options{IDs: ids})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, m := range c.Members {
		if _, err := m.Join(t.Context()); err != nil {
			t.Fatalf("join %s: %v", m.ID, err)
		}
	}
	return c
}

// Stop ends all control planes. It may be called more than once.
func (c *Clusterset) Stop() error {
	var errs []error
	for _, m := range c.Members {
		if m != nil {
			errs = append(errs, m.Stop())
		}
	}
	if c.Broker != nil {
		errs = append(errs, c.Broker.Stop())
	}
	return errors.Join(errs...)
}

// PodCIDRs returns the networks of the member's Pods.
func (m *Member) PodCIDRs() []string {
	return ofFamily(m.family, fmt.Sprintf("10.2%d.0.0/16", m.Index), fmt.Sprintf("fd00:2%d::/64", m.Index))
}

// ofFamily returns the network of a family, or both if it is "".
func ofFamily(family corev1.IPFamily, v4, v6 string) []string {
	switch family {
	case corev1.IPv4Protocol:
		return []string{v4}
	case corev1.IPv6Protocol:
		return []string{v6}
	}
	return []string{v4, v6}
}

// PodIP returns the n-th Pod address of the member in a family.
func (m *Member) PodIP(n int, family corev1.IPFamily) string {
	if family == corev1.IPv6Protocol {
		return fmt.Sprintf("fd00:2%d::%x", m.Index, n)
	}
	return fmt.Sprintf("10.2%d.%d.%d", m.Index, n/250, n%250+1)
}

// BrokerNamespace returns the namespace of the member on the broker.
func (m *Member) BrokerNamespace() string {
	return broker.NamespaceName(join.DefaultPrefix, m.ID)
}

// Join makes the cluster a member. change alters the options.
func (m *Member) Join(ctx context.Context, change ...func(*join.Options)) (join.Result, error) {
	o := join.Defaults()
	o.ClusterID, o.PodCIDRs = m.ID, m.PodCIDRs()
	for _, c := range change {
		c(&o)
	}
	joined, err := join.Join(ctx, m.clusterset.Broker.Config(), m.Config(), o)
	if err != nil {
		return joined, err
	}
	return joined, m.MountSecret(ctx)
}

// Leave takes the cluster out of the clusterset. Its broker namespace stays, with a mark, until the next join, which
// needs [controlplane.ControlPlane.EndNamespacesT].
func (m *Member) Leave(t testing.TB) {
	t.Helper()
	o := join.LeaveOptions{Namespace: wellknown.ControllerNamespace}
	if _, err := join.Leave(t.Context(), m.clusterset.Broker.Config(), m.Config(), o); err != nil {
		t.Fatalf("leave %s: %v", m.ID, err)
	}
}

// BrokerKubeconfig returns the path of the member's kubeconfig for the broker, which a Pod would mount.
func (m *Member) BrokerKubeconfig() string { return filepath.Join(m.dir, broker.KeyKubeconfig) }

// MountSecret writes the broker credential to files as the kubelet does for a Pod that mounts it.
func (m *Member) MountSecret(ctx context.Context) error {
	secret, err := m.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).
		Namespace(wellknown.ControllerNamespace).Get(ctx, broker.SecretName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var s corev1.Secret
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(secret.Object, &s); err != nil {
		return err
	}
	for name, content := range s.Data {
		// In one step: a controller may read it at any time.
		next := filepath.Join(m.dir, "."+name)
		if err := os.WriteFile(next, content, 0o600); err != nil {
			return err
		}
		if err := os.Rename(next, filepath.Join(m.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// Controller returns the settings of a controller of this member, which has the rights of the shipped service
// account.
func (m *Member) Controller(ctx context.Context) (controller.Config, error) {
	local, err := m.As(ctx, "clusterset-controller")
	if err != nil {
		return controller.Config{}, err
	}
	c := controller.Defaults()
	c.Local, c.Broker, c.Namespace = local, m.BrokerKubeconfig(), wellknown.ControllerNamespace
	c.Version = "test"
	return c, nil
}

// As returns the access of a service account in the controller's namespace.
func (m *Member) As(ctx context.Context, serviceAccount string) (*rest.Config, error) {
	path, err := m.ServiceAccountKubeconfig(ctx, wellknown.ControllerNamespace, serviceAccount)
	if err != nil {
		return nil, err
	}
	return clientcmd.BuildConfigFromFlags("", path)
}

// Run runs a controller until the test is over or stop is called. stop returns when the controller has ended.
func (m *Member) Run(t testing.TB, change ...func(*controller.Config)) (stop func()) {
	t.Helper()
	config, err := m.Controller(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config.Log = logger{t, m.ID}
	for _, c := range change {
		c(&config)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := controller.Run(ctx, config); err != nil {
			t.Errorf("controller of %s: %v", m.ID, err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// A logger writes the log of a controller to the output of the test.
type logger struct {
	t  testing.TB
	id string
}

func (l logger) Infof(format string, args ...any)    { l.t.Logf(l.id+": "+format, args...) }
func (l logger) Warningf(format string, args ...any) { l.t.Logf(l.id+": warning: "+format, args...) }
func (l logger) Errorf(format string, args ...any)   { l.t.Logf(l.id+": error: "+format, args...) }
