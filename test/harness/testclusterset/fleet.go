// Package testclusterset starts clustersets for tests and the demo: a broker and members, all real API servers, joined as
// `clusterset join` does it, with the rights and policies that are shipped.
package testclusterset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterset-dns/clusterset/admin"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// A Fleet is a broker and the clusters that are, or may become, its members.
type Fleet struct {
	Broker  *controlplane.ControlPlane
	Members []*Member
}

// A Member is a cluster. Its Services have addresses in 10.1N.0.0/16 and fd00:1N::/108, its Pods in 10.2N.0.0/16 and
// fd00:2N::/64, where N counts the members from 1.
type Member struct {
	*controlplane.ControlPlane
	ID    string
	Index int

	fleet *Fleet
	dir   string
}

// Options say what a Fleet is made of.
type Options struct {
	IDs []string // cluster ids of the members; 9 at most
	// Broker and Member say what differs from usual control planes; of Member, ServiceCIDR does not count.
	Broker, Member controlplane.Options
	// Bare leaves the broker as it is, for those who prepare it by the command.
	Bare bool
}

// Start starts the control planes and prepares the broker. ctx bounds the start only: the caller has to call Stop.
func Start(ctx context.Context, o Options) (_ *Fleet, err error) {
	f := &Fleet{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Stop())
		}
	}()
	if o.Broker.CRDs == nil {
		o.Broker.CRDs = [][]byte{} // Init brings them.
	}
	if f.Broker, err = controlplane.Start(ctx, o.Broker); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	f.Members = make([]*Member, len(o.IDs))
	var g errgroup.Group
	for i, id := range o.IDs {
		g.Go(func() (err error) {
			f.Members[i], err = f.start(ctx, id, i+1, o.Member)
			return err
		})
	}
	g.Go(func() error {
		if o.Bare {
			return nil
		}
		return admin.Init(ctx, f.Broker.Config(), admin.InitOptions{AggregateView: true})
	})
	return f, g.Wait()
}

// start starts one cluster and gives it the controller's service account.
func (f *Fleet) start(ctx context.Context, id string, n int, o controlplane.Options) (*Member, error) {
	o.ServiceCIDR = fmt.Sprintf("10.1%d.0.0/16,fd00:1%d::/108", n, n)
	cp, err := controlplane.Start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("member %s: %w", id, err)
	}
	// In the folder of the control plane, which is removed whatever becomes of this process.
	m := &Member{ControlPlane: cp, ID: id, Index: n, fleet: f, dir: filepath.Join(filepath.Dir(cp.Kubeconfig()), "mounted")}
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return m, fmt.Errorf("member %s: %w", id, err)
	}
	for _, manifest := range [][]byte{deploy.Namespace, deploy.ControllerRBAC, deploy.DNSRBAC} {
		if err := cp.ApplyYAML(ctx, manifest); err != nil {
			return m, fmt.Errorf("member %s: %w", id, err)
		}
	}
	return m, nil
}

// StartT is Start for a test, which ends if it fails. All members are joined.
func StartT(t testing.TB, ids ...string) *Fleet {
	t.Helper()
	f, err := Start(t.Context(), Options{IDs: ids})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, m := range f.Members {
		if _, err := m.Join(t.Context()); err != nil {
			t.Fatalf("join %s: %v", m.ID, err)
		}
	}
	return f
}

// Stop ends all control planes. It may be called more than once.
func (f *Fleet) Stop() error {
	var errs []error
	for _, m := range f.Members {
		if m != nil {
			errs = append(errs, m.Stop())
		}
	}
	if f.Broker != nil {
		errs = append(errs, f.Broker.Stop())
	}
	return errors.Join(errs...)
}

// PodCIDRs are the networks of the member's Pods.
func (m *Member) PodCIDRs() []string {
	return []string{fmt.Sprintf("10.2%d.0.0/16", m.Index), fmt.Sprintf("fd00:2%d::/64", m.Index)}
}

// PodIP is the n-th address of a Pod of the member, by family.
func (m *Member) PodIP(n int, family corev1.IPFamily) string {
	if family == corev1.IPv6Protocol {
		return fmt.Sprintf("fd00:2%d::%x", m.Index, n)
	}
	return fmt.Sprintf("10.2%d.%d.%d", m.Index, n/250, n%250+1)
}

// BrokerNamespace is the namespace of the member on the broker.
func (m *Member) BrokerNamespace() string {
	return broker.NamespaceName(admin.DefaultPrefix, m.ID)
}

// Join makes the cluster a member. change may alter the options.
func (m *Member) Join(ctx context.Context, change ...func(*admin.JoinOptions)) (admin.Joined, error) {
	o := admin.JoinDefaults()
	o.ClusterID, o.PodCIDRs = m.ID, m.PodCIDRs()
	for _, c := range change {
		c(&o)
	}
	joined, err := admin.Join(ctx, m.fleet.Broker.Config(), m.Config(), o)
	if err != nil {
		return joined, err
	}
	return joined, m.MountSecret(ctx)
}

// Leave takes the cluster out of the clusterset.
func (m *Member) Leave(ctx context.Context) error {
	_, err := admin.Leave(ctx, m.fleet.Broker.Config(), m.Config(),
		admin.LeaveOptions{Namespace: admin.DefaultNamespace})
	return err
}

// BrokerKubeconfig is the path at which a Pod would find the member's kubeconfig for the broker.
func (m *Member) BrokerKubeconfig() string { return filepath.Join(m.dir, broker.KeyKubeconfig) }

// MountSecret writes the broker credential to files as the kubelet does for a Pod that mounts it.
func (m *Member) MountSecret(ctx context.Context) error {
	secret, err := m.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).
		Namespace(admin.DefaultNamespace).Get(ctx, broker.SecretName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var s corev1.Secret
	if err := fromUnstructured(secret, &s); err != nil {
		return err
	}
	for name, content := range s.Data {
		// In one step: a controller may read at any moment.
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
	c.Local, c.Broker, c.Namespace = local, m.BrokerKubeconfig(), admin.DefaultNamespace
	c.Version = "test"
	return c, nil
}

// As returns the access of a service account in the controller's namespace.
func (m *Member) As(ctx context.Context, serviceAccount string) (*rest.Config, error) {
	path, err := m.ServiceAccountKubeconfig(ctx, admin.DefaultNamespace, serviceAccount)
	if err != nil {
		return nil, err
	}
	return clientcmd.BuildConfigFromFlags("", path)
}

// Run runs a controller until the test, or what it returns, ends it; then it has ended.
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

// A logger shows what a controller says in the output of the test.
type logger struct {
	t  testing.TB
	id string
}

func (l logger) Infof(format string, args ...any)    { l.t.Logf(l.id+": "+format, args...) }
func (l logger) Warningf(format string, args ...any) { l.t.Logf(l.id+": warning: "+format, args...) }
func (l logger) Errorf(format string, args ...any)   { l.t.Logf(l.id+": error: "+format, args...) }
