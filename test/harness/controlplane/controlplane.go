// Package controlplane starts real control planes for tests: one etcd and one kube-apiserver each, on loopback, ready
// in about three seconds.
//
// Nothing outlives the process that started them, even one that panics or is killed: the kernel ends the children (on
// Linux), and a shell that waits for this removes their folder.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
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
	// MemoryLimit is the GOMEMLIMIT of both programs, "512MiB" if empty. A server that holds more collects garbage all the
	// time.
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
// those of [ControlPlane.StartControllers]: nothing but the API server itself acts on writes.
//
// Methods that read and write objects may be called from several goroutines. Those that stop and start the API server
// or etcd wait for each other.
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

// An object is one of the inventory.
type object struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// How long a program may take to get ready or to end, on a machine that is busy with other tests.
const (
	startPatience = 4 * time.Minute
	stopPatience  = 2 * time.Minute
)

// portTaken is what kube-apiserver prints before it ends because someone else has its port.
const portTaken = "address already in use"

// Kubeconfig returns the path of a kubeconfig of a user who may do everything. The file is gone after
// [ControlPlane.Stop].
func (c *ControlPlane) Kubeconfig() string { return c.kubeconfig }

// Config returns a client configuration of a user who may do everything, as fast as the server can. The caller may
// change it.
func (c *ControlPlane) Config() *rest.Config { return late(c.config) }

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

// etcd listens on Unix sockets, which no other process can take. It takes no path, only something that looks like a
// host and a port, and makes of it the name of a file in its working directory.
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

// run starts a program in the folder of the control plane. With rarer garbage collection an API server takes a sixth
// less CPU time to start; the limit is what one with few objects never reaches.
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
