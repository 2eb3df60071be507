package join

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// startControlPlanes starts n control planes without CRDs and with service CIDRs of their own. The first is the broker:
// the test does there what kube-controller-manager does, and empties namespaces that are being deleted.
func startControlPlanes(t *testing.T, n int) []*controlplane.ControlPlane {
	t.Helper()
	var all []*controlplane.ControlPlane
	for i := range n {
		c := controlplane.StartT(t, controlplane.Options{ServiceCIDR: fmt.Sprintf("10.%d.0.0/16", 100+i), CRDs: [][]byte{}})
		all = append(all, c)
	}
	all[0].EndNamespacesT(t)
	return all
}

// steps collects the reported steps.
type steps []write.Step

func (s *steps) options(dry write.DryRun) write.Options {
	return write.Options{DryRun: dry, Report: func(step write.Step) { *s = append(*s, step) }}
}

func (s *steps) String() string {
	var b strings.Builder
	for _, step := range *s {
		b.WriteString(step.String() + "\n")
	}
	return b.String()
}

// only fails unless there are steps, and each has one of the actions.
func (s *steps) only(t *testing.T, actions ...write.Action) {
	t.Helper()
	if len(*s) == 0 {
		t.Errorf("no step was reported, want some with %q", actions)
	}
	for _, step := range *s {
		if !slices.Contains(actions, step.Action) {
			t.Errorf("step %q, want only %q", step, actions)
		}
	}
}

func initBroker(t *testing.T, c *controlplane.ControlPlane) {
	t.Helper()
	if err := Init(t.Context(), c.Config(), InitOptions{}); err != nil {
		t.Fatal(err)
	}
}

func options(id string) Options {
	o := Defaults()
	o.ClusterID, o.PodCIDRs, o.AllowOverlap = id, []string{"10.244.0.0/16"}, true
	return o
}

func mustJoin(t *testing.T, onBroker, member *controlplane.ControlPlane, o Options) Result {
	t.Helper()
	joined, err := Join(t.Context(), onBroker.Config(), member.Config(), o)
	if err != nil {
		t.Fatal(err)
	}
	return joined
}

func leaveOptions() LeaveOptions {
	return LeaveOptions{Namespace: wellknown.ControllerNamespace, Now: time.Now}
}

func mustLeave(t *testing.T, onBroker, member *controlplane.ControlPlane) LeaveResult {
	t.Helper()
	left, err := Leave(t.Context(), onBroker.Config(), member.Config(), leaveOptions())
	if err != nil {
		t.Fatal(err)
	}
	return left
}

var (
	memberResource = schema.GroupVersionResource{Group: "broker.clusterset-dns.io", Version: "v1alpha1",
		Resource: "members"}
	memberRecords = schema.GroupVersionResource{Group: "broker.clusterset-dns.io", Version: "v1alpha1",
		Resource: "exportedservices"}
	serviceImportResource = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1beta1",
		Resource: "serviceimports"}
	policyResource = schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies",
	}
	policyBindingResource = schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings",
	}
)

// snapshotResources are the resources of the objects in a snapshot.
var snapshotResources = []schema.GroupVersionResource{
	memberResource, serviceImportResource, policyResource, policyBindingResource,
	{Version: "v1", Resource: "namespaces"},
	{Version: "v1", Resource: "secrets"},
	{Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "serviceaccounts"},
	{Version: "v1", Resource: "resourcequotas"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "flowschemas"},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "prioritylevelconfigurations"},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	{Group: "about.k8s.io", Version: "v1beta1", Resource: "clusterproperties"},
	memberRecords,
	{Group: "multicluster.x-k8s.io", Version: "v1beta1", Resource: "serviceexports"},
}

// snapshot returns, for each object that a join or leave could have changed, what show returns: its content or its
// resource version.
func snapshot(t *testing.T, show func(*unstructured.Unstructured) string,
	all ...*controlplane.ControlPlane) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for i, c := range all {
		for _, r := range snapshotResources {
			objects, err := c.Dynamic().Resource(r).List(t.Context(), metav1.ListOptions{})
			if err != nil && strings.Contains(err.Error(), "could not find the requested resource") {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for j := range objects.Items {
				o := &objects.Items[j]
				if read.IsMarked(o) {
					continue
				}
				// The API server creates objects of its own there, at any time.
				if o.GetNamespace() != metav1.NamespaceSystem && o.GetNamespace() != metav1.NamespaceDefault {
					found[fmt.Sprintf("%d %s %s/%s", i, r.Resource, o.GetNamespace(), o.GetName())] = show(o)
				}
			}
		}
	}
	return found
}

// versions differ after any write, except those of the API server itself: it writes the status of definitions and of
// flow schemas whenever it gets to it.
func versions(o *unstructured.Unstructured) string {
	if o.GetKind() != "CustomResourceDefinition" && o.GetKind() != "FlowSchema" {
		return o.GetResourceVersion()
	}
	written := slices.DeleteFunc(o.GetManagedFields(), func(
		f metav1.ManagedFieldsEntry) bool {
		return f.Subresource == "status"
	})
	text, err := json.Marshal(written)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(o.GetUID(), contents(o), string(text))
}

// contents omits the fields that differ between two objects of the same content.
func contents(o *unstructured.Unstructured) string {
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	o.SetUID("")
	o.SetGeneration(0)
	o.SetCreationTimestamp(metav1.Time{})
	delete(o.Object, "status")
	for _, at := range []string{broker.AnnotationStamp, broker.AnnotationJoined} { // differ between joins
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations", at)
	}
	if o.GetKind() == "Secret" {
		_ = unstructured.SetNestedField(o.Object, "some", "data", "token")
	}
	text, err := json.Marshal(o.Object)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// sameObjects compares two snapshots.
func sameObjects(t *testing.T, when string, got, want map[string]string) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got[key] != want[key] {
			t.Errorf("%s: %s is\n%s\nwant\n%s", when, key, got[key], want[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[key]; !ok {
			t.Errorf("%s: %s is there", when, key)
		}
	}
}

// A crash lets a number of writes through, to broker and member together; every later request fails.
type crash struct {
	left atomic.Int64
	of   string // count only writes with this in their path
}

func (c *crash) wrap(config *rest.Config) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return crashing{c, next} })
	return config
}

type crashing struct {
	*crash
	next http.RoundTripper
}

func (c crashing) RoundTrip(r *http.Request) (*http.Response, error) {
	if left := c.left.Load(); left < 0 || r.Method != http.MethodGet && strings.Contains(r.URL.Path, c.of) &&
		c.left.Add(-1) < 0 {
		return nil, errCrash
	}
	return c.next.RoundTrip(r)
}

var errCrash = fmt.Errorf("crashed")
