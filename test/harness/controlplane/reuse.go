package controlplane

import (
	"context"
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/yaml"
)

// Starting a control plane costs five seconds of CPU time, making a used one as new costs a tenth of that. So in a package with
//
//	func TestMain(m *testing.M) { os.Exit(controlplane.Main(m)) }
//
// [StartT] returns one that an earlier test has used, if there is one with the same options. Tests that run at once get different ones.
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

// An object is one of the inventory.
type object struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// listed returns the resources whose objects tests make and delete. The API server makes APIServices and IPAddresses for other objects.
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
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") && r.Name != "apiservices" && r.Name != "ipaddresses" {
				all = append(all, gv.WithResource(r.Name))
			}
		}
	}
	return all, nil
}

// inventory returns all objects of the resources but those that the API server makes by itself at any time. The values are what must not change: the
// version of a namespace, the generation of a CRD.
func (c *ControlPlane) inventory(ctx context.Context, resources []schema.GroupVersionResource) (map[object]string, error) {
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
	if o.resource == namespaces && (err == nil || apierrors.IsConflict(err)) { // It may be deleted already, and then it ends now.
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
