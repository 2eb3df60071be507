// Package controlplane starts real control planes for tests: one etcd and one kube-apiserver each, on loopback, ready in
// about three seconds.
//
// Nothing outlives the process that started them, even one that panics or is killed: the kernel ends the children (on
// Linux), and a shell that waits for this removes their folder.
package controlplane

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	"github.com/clusterset-dns/clusterset/api/crd"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// Options say what differs from the usual control plane. The zero value is a good one.
type Options struct {
	// ServiceCIDR is where cluster IPs come from: one range, or an IPv4 and an IPv6 range with a comma between. It is
	// "10.96.0.0/16,fd00:10:96::/108" if empty; clusters that meet in one test should have ranges of their own.
	ServiceCIDR string
	// CRDs are YAML manifests. They are [DefaultCRDs] if nil; an empty slice that is not nil means none.
	CRDs [][]byte
	// APIServerArgs are further flags of kube-apiserver.
	APIServerArgs []string
	// MemoryLimit is the GOMEMLIMIT of both programs, "512MiB" if empty. A server that holds more collects garbage all the time.
	MemoryLimit string
	// Progress gets a line whenever building the programs takes a while. It is os.Stderr if nil.
	Progress io.Writer
}

// MCSCRDs returns the definitions of ServiceImport and ServiceExport that sigs.k8s.io/mcs-api ships.
func MCSCRDs() [][]byte { return [][]byte{mcscrd.ServiceImportCRD, mcscrd.ServiceExportCRD} }

// DefaultCRDs returns [MCSCRDs] and the definition of ClusterProperty: what a member needs.
func DefaultCRDs() [][]byte { return append(MCSCRDs(), crd.ClusterProperties) }

// BrokerCRDs returns the definitions of Member and ExportedService: what a broker needs.
func BrokerCRDs() [][]byte { return [][]byte{crd.Members, crd.ExportedServices, crd.Inventories} }

// A ControlPlane is an etcd and a kube-apiserver. RBAC is on and certificates are verified. No controllers run, but for
// those of [ControlPlane.StartControllers]: nothing but the API server itself acts on what is written.
//
// Methods that read and write objects may be called from several goroutines. Those that stop and start the API server or
// etcd wait for each other.
type ControlPlane struct {
	opts       Options
	paths      Paths
	dir        string
	fresh      map[object]string // the inventory after the start, of one that StartT returns
	spent      atomic.Bool       // no other test may use it
	sweeper    *sweeper
	authority  *authority
	token      string
	port       *Port
	kubeconfig string

	config  *rest.Config
	http    *http.Client
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper

	mu          sync.Mutex // guards what follows
	etcd        *process
	api         *process
	controllers *process
	healthPort  *Port // of the controllers
}

// How long a program may take to get ready or to end, on a machine that is busy with other tests.
const (
	startPatience = 4 * time.Minute
	stopPatience  = 2 * time.Minute
)

// StartT is [Start] for a test, which ends if it fails. The control plane is stopped when the test ends.
func StartT(t testing.TB, opts Options) *ControlPlane {
	t.Helper()
	key := opts.key()
	c := take(key)
	if c == nil {
		var err error
		if c, err = Start(t.Context(), opts); err == nil && pool.idle != nil {
			var resources []schema.GroupVersionResource
			if resources, err = c.listed(); err == nil {
				c.fresh, err = c.inventory(t.Context(), resources)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { giveBack(t, key, c) })
	return c
}

// Start builds the programs if need be, starts a control plane, installs the CRDs and returns when all of it serves. ctx
// bounds the start only: the caller has to call [ControlPlane.Stop].
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	opts.ServiceCIDR = cmp.Or(opts.ServiceCIDR, "10.96.0.0/16,fd00:10:96::/108")
	opts.MemoryLimit = cmp.Or(opts.MemoryLimit, "512MiB")
	if opts.CRDs == nil {
		opts.CRDs = DefaultCRDs()
	}
	if opts.Progress == nil {
		opts.Progress = os.Stderr
	}
	paths, err := Binaries(ctx, opts.Progress)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "clusterset-")
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	sweeper, err := newSweeper(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("control plane: %w", err), os.RemoveAll(dir))
	}
	c := &ControlPlane{opts: opts, paths: paths, dir: dir, sweeper: sweeper, token: rand.Text()}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("control plane: %w", err), c.Stop())
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context) (err error) {
	if c.authority, err = newAuthority(); err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	if err := c.writeIdentity(); err != nil {
		return err
	}
	if c.etcd, err = c.startEtcd(ctx); err != nil {
		return err
	}
	for {
		if c.port, err = ReservePort(); err != nil {
			return err
		}
		if err := c.connect(); err != nil {
			return err
		}
		if c.api, err = c.startAPIServer(ctx, c.port); err == nil {
			break
		}
		// Someone who does not reserve ports was faster.
		if !strings.Contains(err.Error(), portTaken) {
			return err
		}
		c.port.Close()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if err := eventually(ctx, func() error { return c.ownObjects(ctx) }); err != nil {
		return err
	}
	return c.InstallCRDs(ctx, c.opts.CRDs...)
}

// ownObjects fails unless there are the namespaces and the Service that the API server makes. It may be ready before.
func (c *ControlPlane) ownObjects(ctx context.Context) error {
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		if _, err := c.dynamic.Resource(namespaces).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	_, err := c.dynamic.Resource(services).Namespace(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	return err
}

// portTaken is what kube-apiserver prints before it ends because someone else has its port.
const portTaken = "address already in use"

// connect makes the kubeconfig and the clients.
func (c *ControlPlane) connect() (err error) {
	if c.kubeconfig, err = c.writeKubeconfig("admin-*.kubeconfig", &clientcmdapi.AuthInfo{Token: c.token}); err != nil {
		return err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	c.config.QPS, c.config.Burst = 10_000, 10_000
	// Deleting the content of a namespace causes warnings about deprecated kinds.
	c.config.WarningHandler = rest.NoWarnings{}
	if c.http, err = rest.HTTPClientFor(c.config); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(c.config, c.http); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(c.config, c.http)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	return nil
}

// Kubeconfig returns the path of a kubeconfig of a user who may do everything. The file is gone after [ControlPlane.Stop].
func (c *ControlPlane) Kubeconfig() string { return c.kubeconfig }

// Config returns a client configuration of a user who may do everything, as fast as the server can. The caller may change
// it.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Dynamic returns a client of a user who may do everything.
func (c *ControlPlane) Dynamic() dynamic.Interface { return c.dynamic }

// Pids returns the process ids of the API server and of etcd. Both must run.
func (c *ControlPlane) Pids() (apiServer, etcd int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.api.Pid(), c.etcd.Pid()
}

func (c *ControlPlane) url() string { return fmt.Sprintf("https://127.0.0.1:%d", c.port.Number) }

// Stop ends the control plane and removes its files. It may be called more than once. The error reports a
// program that had ended by itself.
func (c *ControlPlane) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sweeper == nil {
		return nil
	}
	// Their data is not needed any more. The API server ends first: without etcd it would hang.
	err := errors.Join(c.controllers.discard(), c.api.discard(), c.etcd.discard())
	c.controllers, c.api, c.etcd = nil, nil, nil
	if c.http != nil {
		utilnet.CloseIdleConnectionsFor(c.http.Transport)
	}
	for _, p := range []*Port{c.port, c.healthPort} {
		if p != nil {
			err = errors.Join(err, p.Close())
		}
	}
	err = errors.Join(err, c.sweeper.run())
	c.sweeper = nil
	return err
}

// StopAPIServer ends the API server as an administrator would; etcd goes on. It does nothing if the API server does not
// run.
func (c *ControlPlane) StopAPIServer() error {
	c.spent.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopAPIServer()
}

// KillAPIServer ends the API server at once, without a chance to say goodbye to its clients.
func (c *ControlPlane) KillAPIServer() {
	c.spent.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api != nil {
		c.api.kill()
		c.api = nil
	}
}

// StartAPIServer starts the API server again, at the same address and over the same etcd, and returns when it is ready.
// It does nothing if the API server runs.
func (c *ControlPlane) StartAPIServer(ctx context.Context) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api.running() {
		return nil
	}
	c.api, err = c.startAPIServer(ctx, c.port)
	return err
}

// A Replica is a further API server of a control plane, over the same etcd.
type Replica struct {
	port *Port
	api  *process
}

// StartReplica starts a further API server and returns when it is ready. The caller has to call [Replica.Kill].
func (c *ControlPlane) StartReplica(ctx context.Context) (*Replica, error) {
	c.spent.Store(true)
	port, err := ReservePort()
	if err != nil {
		return nil, err
	}
	api, err := c.startAPIServer(ctx, port)
	if err != nil {
		return nil, errors.Join(err, port.Close())
	}
	return &Replica{port, api}, nil
}

// Address returns host and port.
func (r *Replica) Address() string { return r.port.String() }

// Kill ends the API server at once. It may be called more than once.
func (r *Replica) Kill() {
	r.api.kill()
	_ = r.port.Close() // it may be closed
}

func (c *ControlPlane) stopAPIServer() error {
	if c.api == nil {
		return nil
	}
	p := c.api
	c.api = nil
	return p.stop(stopPatience)
}

func (c *ControlPlane) stopEtcd() error {
	if c.etcd == nil {
		return nil
	}
	p := c.etcd
	c.etcd = nil
	return p.stop(stopPatience)
}

// etcd listens on Unix sockets, which no other process can take. It takes no path, only something that looks like a host and a
// port, and makes of it the name of a file in its working directory.
const etcdClient, etcdPeer = "client:1", "peer:1"

func (c *ControlPlane) dataDir() string { return filepath.Join(c.dir, "etcd") }

func (c *ControlPlane) startEtcd(ctx context.Context) (*process, error) {
	const client, peer = "unix://" + etcdClient, "unix://" + etcdPeer
	p, err := c.run("etcd", c.paths.Etcd, []string{
		"--name=etcd",
		"--data-dir=" + c.dataDir(),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=etcd=" + peer,
		"--unsafe-no-fsync",
		"--log-level=warn",
	})
	if err != nil {
		return nil, err
	}
	return awaitReady(ctx, p, func(context.Context) error {
		_, err := os.Stat(filepath.Join(c.dir, etcdClient))
		return err
	})
}

func (c *ControlPlane) startAPIServer(ctx context.Context, port *Port) (*process, error) {
	file := func(name string) string { return filepath.Join(c.dir, name) }
	args := append([]string{
		"--etcd-servers=unix://" + file(etcdClient),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port.Number),
		// A machine without a route to anywhere has no address that the server would advertise by itself.
		"--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none",
		"--cert-dir=" + c.dir,
		"--tls-cert-file=" + file("apiserver.crt"), "--tls-private-key-file=" + file("apiserver.key"),
		"--client-ca-file=" + file("ca.crt"),
		"--token-auth-file=" + file("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=" + c.opts.ServiceCIDR,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + file("serviceaccount.key"),
		"--service-account-signing-key-file=" + file("serviceaccount.key"),
		"--kubelet-client-certificate=" + file("kubelet-client.crt"), "--kubelet-client-key=" + file("kubelet-client.key"),
		// No controller makes the default service account that this plugin would wait for.
		"--disable-admission-plugins=ServiceAccount",
	}, c.opts.APIServerArgs...)
	p, err := c.run("kube-apiserver", c.paths.APIServer, args)
	if err != nil {
		return nil, err
	}
	return awaitReady(ctx, p, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return subprocess.Healthy(ctx, c.http, "https://"+port.String()+"/readyz")
	})
}

// run starts a program in the folder of the control plane. With rarer garbage collection an API server takes a sixth less CPU time to start; the
// limit is what one with few objects never reaches.
func (c *ControlPlane) run(name, bin string, args []string) (*process, error) {
	return start(name, bin, c.dir, args, "GOGC=400", "GOMEMLIMIT="+c.opts.MemoryLimit)
}

// awaitReady returns p, or kills it if it does not get ready.
func awaitReady(ctx context.Context, p *process, ready func(context.Context) error) (*process, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("not ready after %s", startPatience))
	defer cancel()
	if err := p.await(ctx, ready); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}
