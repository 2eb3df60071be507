package admin

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"

	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/api/logging"
)

// A NetworkState is a declared network, with its source.
type NetworkState struct {
	Of      string `json:"of"` // Pods or Services
	CIDR    string `json:"cidr"`
	Source  string `json:"source"`            // an object, a flag, or the join before
	PerNode bool   `json:"perNode,omitempty"` // part of the network of all Pods: each new Node adds one
}

// findNetworks finds the networks of a cluster. It leaves out a source that may not be read, or has an API server that
// is away.
func (c *cluster) findNetworks(ctx context.Context) (networks.Found, error) {
	var failed error
	found := networks.Find(func(q networks.Query) ([]*unstructured.Unstructured, error) {
		objects, err := c.query(ctx, q)
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil && !apierrors.IsForbidden(err) && !apierrors.IsServiceUnavailable(err):
			failed = fmt.Errorf("networks of the cluster: %s: %w", q, err)
		}
		return objects, err
	})
	return found, failed
}

func (c *cluster) query(ctx context.Context, q networks.Query) ([]*unstructured.Unstructured, error) {
	if q.Name == "" {
		return c.listIn(ctx, q.Resource, q.Namespace, q.Labels)
	}
	o, err := c.client.Resource(q.Resource).Namespace(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return []*unstructured.Unstructured{o}, nil
}

// podsOutside counts the running Pods with addresses outside of all networks; unread is why the count is unknown.
func (c *cluster) podsOutside(ctx context.Context, declared []netip.Prefix) (outside networks.Outside, unread string) {
	running := metav1.ListOptions{FieldSelector: "status.phase=Running"}
	err := c.each(ctx, corev1.SchemeGroupVersion.WithResource("pods"), running,
		func(pod *unstructured.Unstructured) { outside.AddPod(pod, declared) })
	if err != nil {
		return networks.Outside{}, "whether Pods have addresses outside of the declared networks is not known: " +
			logging.Line(err)
	}
	return outside, ""
}

// nodesOutside counts the Nodes with addresses outside of all networks, as far as Nodes may be read.
func (c *cluster) nodesOutside(ctx context.Context, declared []netip.Prefix) (outside networks.Outside) {
	err := c.each(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), metav1.ListOptions{},
		func(node *unstructured.Unstructured) { outside.AddNode(node, declared) })
	if err != nil {
		return networks.Outside{}
	}
	return outside
}

// each calls do for each object of a resource, and holds few pages of them: Pods are many.
func (c *cluster) each(ctx context.Context, from schema.GroupVersionResource, o metav1.ListOptions,
	do func(*unstructured.Unstructured)) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.client.Resource(from).List(ctx, o)
	})
	return pages.EachListItem(ctx, o, func(item runtime.Object) error {
		u, ok := item.(*unstructured.Unstructured)
		if !ok {
			panic(fmt.Sprintf("admin: the dynamic client returned a %T", item))
		}
		do(u)
		return nil
	})
}

// have is a phrase: "3 running Pods have addresses in none of these networks, such as 10.9.0.7 of Pod shop/db-0".
func have(o networks.Outside, what, outside string) string {
	var such []string
	for _, e := range o.Examples {
		such = append(such, e.Address.String()+" of "+e.Object)
	}
	verb := "s have addresses"
	if o.Count == 1 {
		verb = " has an address"
	}
	return fmt.Sprintf("%d %s%s in none of the %s, such as %s", o.Count, what, verb, outside, strings.Join(such, " and "))
}

// joinWith returns the command that declares also the networks of the examples, which the user has to know.
func joinWith(declared []string, o networks.Outside) string {
	var flags, addresses []string
	for _, cidr := range declared {
		flags = append(flags, "--pod-cidr="+cidr)
	}
	for _, e := range o.Examples {
		flags = append(flags, "--pod-cidr=NETWORK")
		addresses = append(addresses, e.Address.String())
	}
	return fmt.Sprintf("\"clusterset join %s\", with a NETWORK that contains %s", strings.Join(flags, " "),
		strings.Join(addresses, ", and one that contains "))
}
