package controlplane

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
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

// Start builds the programs if need be, starts a control plane, installs the CRDs and returns when all of it serves.
// ctx bounds the start only: the caller has to call [ControlPlane.Stop].
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
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic,
		corev1.NamespaceNodeLease} {
		if _, err := c.dynamic.Resource(namespaces).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	_, err := c.dynamic.Resource(services).Namespace(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	return err
}

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

// Starting a control plane costs five seconds of CPU time, making a used one as new costs a tenth of that. So in a
// package with
//
//	func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }
//
// [StartT] returns one that an earlier test has used, if there is one with the same options. Tests that run at once get
// different ones.
//
//	                 +---- StartT ----+
//	                 v                |
//	   StartT ---> in use --------> reset --> idle
//	                 |  test ends             (everything deleted that a new one has not)
//	                 +--> stopped: the test has stopped, frozen, restored or extended it, or changed what a new one has

// pool holds the idle control planes of a process, by their options. It is nil outside of [Main].
var pool struct {
	sync.Mutex
	idle map[string][]*ControlPlane
}

// Main runs the tests of a package, which share control planes, and stops these. It returns the exit code.
func Main(m interface{ Run() int }) (code int) {
	pool.idle = map[string][]*ControlPlane{}
	code = m.Run()
	for _, all := range pool.idle {
		for _, c := range all {
			if err := c.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
	}
	return code
}

// take returns an idle control plane with these options, nil if there is none.
func take(key string) *ControlPlane {
	pool.Lock()
	defer pool.Unlock()
	all := pool.idle[key]
	if len(all) == 0 {
		return nil
	}
	pool.idle[key] = all[:len(all)-1]
	return all[len(all)-1]
}

// giveBack makes a control plane as new for the next test, or stops it if that is not possible.
func giveBack(t testing.TB, key string, c *ControlPlane) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if !c.spent.Load() && pool.idle != nil {
		err := c.reset(ctx)
		if err == nil {
			pool.Lock()
			defer pool.Unlock()
			pool.idle[key] = append(pool.idle[key], c)
			return
		}
		t.Logf("no other test uses the control plane: %v", err)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
}

func (o Options) key() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q %s", o.ServiceCIDR, o.APIServerArgs, o.MemoryLimit)
	if o.CRDs != nil {
		fmt.Fprintf(&b, " %q", o.CRDs)
	}
	return b.String()
}

// errChanged: something that a new control plane has was changed.
var errChanged = errors.New("it was changed")

// listed returns the resources whose objects tests make and delete. The API server makes APIServices and IPAddresses
// for other objects.
func (c *ControlPlane) listed() (all []schema.GroupVersionResource, err error) {
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(c.config, c.http)
	if err != nil {
		return nil, err
	}
	lists, err := disco.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") && r.Name != "apiservices" &&
				r.Name != "ipaddresses" {
				all = append(all, gv.WithResource(r.Name))
			}
		}
	}
	return all, nil
}

// inventory returns all objects of the resources but those that the API server makes by itself at any time. The values
// are what must not change: the version of a namespace, the generation of a CRD.
func (c *ControlPlane) inventory(ctx context.Context, resources []schema.GroupVersionResource) (map[object]string,
	error) {
	client, err := metadata.NewForConfigAndClient(c.config, c.http)
	if err != nil {
		return nil, err
	}
	all := map[object]string{}
	for _, r := range resources {
		items, err := client.Resource(r).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", r.Resource, err)
		}
		for i := range items.Items {
			o := &items.Items[i]
			switch key := (object{r, o.Namespace, o.Name}); {
			case o.Labels["kubernetes.io/bootstrapping"] != "", o.Annotations["apf.kubernetes.io/autoupdate-spec"] != "",
				o.Namespace == metav1.NamespaceSystem && r.Resource == "leases":
			case r == namespaces:
				all[key] = o.ResourceVersion
			case r == definitions:
				all[key] = fmt.Sprint(o.UID, o.Generation)
			default:
				all[key] = ""
			}
		}
	}
	return all, nil
}

// reset deletes everything that a new control plane has not. It fails if something is left, or changed.
func (c *ControlPlane) reset(ctx context.Context) error {
	resources, err := c.listed()
	if err != nil {
		return err
	}
	all, err := c.inventory(ctx, resources)
	if err != nil {
		return err
	}
	for o, value := range c.fresh {
		if is, ok := all[o]; !ok || is != value {
			return fmt.Errorf("%v: %w", o, errChanged)
		}
		delete(all, o)
	}
	steps := []func(object) bool{
		func(o object) bool { return o.resource.Group == admissionv1.GroupName }, // may deny deletions
		func(o object) bool {
			return o.resource.Group != admissionv1.GroupName && o.resource != namespaces && o.resource != definitions
		},
		func(o object) bool { return o.resource == namespaces },
	}
	deleted := map[schema.GroupVersionResource]bool{}
	for _, step := range steps {
		policies := false
		for o := range all {
			if step(o) {
				if err := c.remove(ctx, o); err != nil {
					return err
				}
				deleted[o.resource] = true
				policies = policies || o.resource.Group == admissionv1.GroupName
			}
		}
		if policies {
			if err := c.AwaitPolicies(ctx); err != nil {
				return err
			}
		}
	}
	left, err := c.inventory(ctx, slices.Collect(maps.Keys(deleted)))
	if err != nil {
		return err
	}
	for o := range left {
		if _, ok := c.fresh[o]; !ok {
			return fmt.Errorf("%v is left: %w", o, errChanged)
		}
	}
	return errors.Join(c.removeDefinitions(ctx, all), c.AwaitRights(ctx))
}

func (c *ControlPlane) remove(ctx context.Context, o object) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	err := c.dynamic.Resource(o.resource).Namespace(o.namespace).Delete(ctx, o.name, now)
	// It may be deleted already, and then it ends now.
	if o.resource == namespaces && (err == nil || apierrors.IsConflict(err)) {
		err = c.endNamespace(ctx, o.name)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// removeDefinitions deletes the CRDs among the objects.
func (c *ControlPlane) removeDefinitions(ctx context.Context, objects map[object]string) error {
	var manifests [][]byte
	for o := range objects {
		if o.resource != definitions {
			continue
		}
		crd, err := c.dynamic.Resource(definitions).Get(ctx, o.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		manifest, err := yaml.Marshal(crd.Object)
		if err != nil {
			return err
		}
		manifests = append(manifests, manifest)
	}
	return c.DeleteCRDs(ctx, manifests...)
}
