package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// points is the number of points at which a controller crashes: more than an export or its end has writes.
const points = 20

// A crash drops all writes for the service in namespace "crash-<mode>-<n>" after the first n, as if the process had
// been killed there.
type crash struct {
	mu      sync.Mutex
	written map[string]int // by namespace
	dropped map[string]bool
}

var crashNamespace = regexp.MustCompile(`[./](crash-[a-z]+-(\d+))(?:[./]|$)`)

func (c *crash) admit(write string) bool {
	at := crashNamespace.FindStringSubmatch(write)
	if at == nil {
		return true
	}
	limit, _ := strconv.Atoi(at[2])
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped[at[1]] || c.written[at[1]] == limit {
		c.dropped[at[1]] = true
		return false
	}
	c.written[at[1]]++
	return true
}

func (c *crash) hit(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped[namespace]
}

// A controller crashes after each write of an export, of its end, and of the allocation of a clusterset IP. The next
// one always reaches the state that a controller without a crash reaches.
func TestCrashAfterEveryWrite(t *testing.T) {
	tier.Nightly(t)
	for _, mode := range []merge.VIPMode{merge.Derived, merge.CIDR} {
		t.Run(string(mode), func(t *testing.T) {
			var all []string
			for n := range points {
				all = append(all, fmt.Sprintf("crash-%s-%d", mode, n))
			}
			whole := "whole-" + string(mode)
			vip := func(c *controller.Config) { c.VIP = mode }
			first := run(t, east, vip)
			export(t, east, whole, "web", "10.21.0.1")
			want := awaitExported(t, whole)
			first.stop()

			crashing(t, vip, all, want, func(ns string) { export(t, east, ns, "web", "10.21.0.1") })
			second := run(t, east, vip)
			for _, ns := range all {
				awaitPicture(t, ns, want)
			}
			if mode == merge.CIDR {
				distinct(t, append(all, whole))
			}
			second.stop()

			const nothing = "[]"
			crashing(t, vip, all, nothing, func(ns string) { east.Drop(t, testclusterset.Export(ns, "web")) })
			run(t, east, vip)
			for _, ns := range all {
				awaitPicture(t, ns, nothing)
			}
		})
	}
}

// crashing runs a controller that crashes at another point in each namespace while act is in progress there.
func crashing(t *testing.T, vip func(*controller.Config), all []string, want string, act func(namespace string)) {
	t.Helper()
	c := &crash{written: make(map[string]int), dropped: make(map[string]bool)}
	killed := run(t, east, vip, behind(t, c.admit))
	killed.awaitMetric("member", "", 1)
	for _, ns := range all {
		act(ns)
	}
	whole := 0
	for _, ns := range all {
		until.OK(t, ns+": crash, or the final state", func(ctx context.Context) error {
			if c.hit(ns) {
				return nil
			}
			got, err := picture(ctx, ns)
			if err == nil && got != want {
				err = fmt.Errorf("%s, want %s", got, want)
			}
			return err
		})
		if !c.hit(ns) {
			whole++
		}
	}
	killed.stop()
	t.Logf("%d points of a crash", len(all)-whole)
	if whole == 0 || whole == len(all) {
		t.Errorf("%d of %d were done without a crash: want some, so that every point was tried, and not all", whole, len(all))
	}
}

// awaitExported waits until the service of a namespace is exported and imported, and returns its picture.
func awaitExported(t *testing.T, namespace string) (is string) {
	t.Helper()
	until.OK(t, namespace, func(ctx context.Context) error {
		imp, err := east.Import(ctx, namespace, "web")
		if err != nil {
			return err
		}
		exp, err := east.ServiceExport(ctx, namespace, "web")
		if err != nil {
			return err
		}
		for _, want := range []string{"Valid=True/Valid", "Ready=True/Exported", "Conflict=False/NoConflicts"} {
			if err := testclusterset.Condition(exp.Status.Conditions, want); err != nil {
				return err
			}
		}
		if len(imp.Spec.IPs) == 0 {
			return fmt.Errorf("no ips: %+v", imp.Spec)
		}
		if is, err = picture(ctx, namespace); err != nil {
			return err
		}
		return testclusterset.Condition(imp.Status.Conditions, "Ready=True/Ready")
	})
	return is
}

func awaitPicture(t *testing.T, namespace, want string) {
	t.Helper()
	until.OK(t, namespace, func(ctx context.Context) error {
		got, err := picture(ctx, namespace)
		if err == nil && got != want {
			err = fmt.Errorf("%s\nwant %s", got, want)
		}
		return err
	})
}

// picture returns all objects of the service "web" of a namespace in east and on the broker, without the fields that
// differ from one export to the next: names, versions, times, addresses of VIPs. For a service that is not exported it
// returns "[]".
func picture(ctx context.Context, namespace string) (string, error) {
	record := broker.RecordName(namespace, "web")
	all := []any{}
	for _, of := range []struct {
		m         interface{ Dynamic() dynamic.Interface }
		resource  schema.GroupVersionResource
		namespace string
	}{
		{clusters.Broker, records, east.BrokerNamespace()}, {clusters.Broker, endpoints, east.BrokerNamespace()},
		{east, exports, namespace}, {east, imports, namespace}, {east, services, namespace}, {east, endpoints, namespace},
	} {
		list, err := of.m.Dynamic().Resource(of.resource).Namespace(of.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		for _, o := range list.Items {
			given := of.namespace == namespace && (o.GetName() == "web" && o.GetKind() == "Service" || o.GetName() == "web-east")
			if !given && (of.namespace == namespace || o.GetName() == record || strings.HasPrefix(o.GetName(), record+".")) {
				all = append(all, features(o))
			}
		}
	}
	inventories, err := clusters.Broker.Dynamic().Resource(v1alpha1.Inventories).Namespace(east.BrokerNamespace()).List(
		ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, part := range inventories.Items {
		entries, _, err := unstructured.NestedSlice(part.Object, "spec", "exports")
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			if entry := e.(map[string]any); entry["name"] == record && entry["uid"] != nil { // else an address that is released
				all = append(all, record)
			}
		}
	}
	text, err := json.Marshal(all)
	return strings.ReplaceAll(string(text), namespace, "NAMESPACE"), err
}

// features returns the fields of an object that picture compares.
func features(o unstructured.Unstructured) map[string]any {
	for _, path := range [][]string{
		{"spec", "exportCreated"}, {"spec", "exportGeneration"}, {"spec", "exportUID"}, {"spec", "stamp"},
		{"spec", "sourceClusterIPs"},
		{"spec", "clusterIP"}, {"spec", "clusterIPs"},
	} {
		unstructured.RemoveNestedField(o.Object, path...)
	}
	for _, path := range [][]string{{"spec", "ips"}, {"status", "loadBalancer", "ingress"}} {
		if ips, ok, _ := unstructured.NestedSlice(o.Object, path...); ok {
			_ = unstructured.SetNestedField(o.Object, int64(len(ips)), path...)
		}
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		delete(c.(map[string]any), "lastTransitionTime")
	}
	// Their order depends on the order in which several authors wrote.
	slices.SortFunc(conditions, func(a, b any) int {
		return strings.Compare(fmt.Sprint(a.(map[string]any)["type"]), fmt.Sprint(b.(map[string]any)["type"]))
	})
	if len(conditions) > 0 {
		_ = unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions")
	}
	labels := o.GetLabels()
	if labels[discoveryv1.LabelServiceName] != "" {
		labels[discoveryv1.LabelServiceName] = "DERIVED"
	}
	f := map[string]any{"labels": labels}
	for _, field := range []string{"kind", "spec", "status", "endpoints", "ports"} {
		if value, ok := o.Object[field]; ok {
			f[field] = value
		}
	}
	return f
}

// distinct fails the test unless each service has exactly one clusterset IP, its own.
func distinct(t *testing.T, all []string) {
	t.Helper()
	owner := make(map[string]string)
	for _, ns := range all {
		imp, err := east.Import(t.Context(), ns, "web")
		if err != nil {
			t.Error(err)
			continue
		}
		if len(imp.Spec.IPs) != 1 {
			t.Errorf("%s: import has %v, want one address", ns, imp.Spec.IPs)
			continue
		}
		ips := imp.Spec.IPs
		if other, taken := owner[ips[0]]; taken {
			t.Errorf("%s and %s have the same address %s", ns, other, ips[0])
		}
		owner[ips[0]] = ns
	}
}
