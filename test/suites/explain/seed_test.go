package explain

import (
	"context"
	"errors"
	"net"

	"github.com/miekg/dns"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

var resources = map[string]schema.GroupVersionResource{
	"namespaces":        {Version: "v1", Resource: "namespaces"},
	"leases":            {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	"secrets":           {Version: "v1", Resource: "secrets"},
	"services":          {Version: "v1", Resource: "services"},
	"configmaps":        {Version: "v1", Resource: "configmaps"},
	"serviceimports":    {Group: "multicluster.x-k8s.io", Version: "v1beta1", Resource: "serviceimports"},
	"serviceexports":    {Group: "multicluster.x-k8s.io", Version: "v1beta1", Resource: "serviceexports"},
	"endpointslices":    {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	"exportedservices":  {Group: "broker.clusterset-dns.io", Version: "v1alpha1", Resource: "exportedservices"},
	"members":           {Group: "broker.clusterset-dns.io", Version: "v1alpha1", Resource: "members"},
	"clusterproperties": {Group: "about.k8s.io", Version: "v1beta1", Resource: "clusterproperties"},
}

// An object is the content of an API object.
type object map[string]any

func (o object) set(value any, path ...string) {
	if err := unstructured.SetNestedField(o, value, path...); err != nil {
		panic(err)
	}
}

func (o object) get(path ...string) string {
	s, _, _ := unstructured.NestedString(o, path...)
	return s
}

func at(c *controlplane.ControlPlane, resource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.Dynamic().Resource(resources[resource])
	}
	return c.Dynamic().Resource(resources[resource]).Namespace(namespace)
}

// patch changes an object until the test is over.
func (w *env) patch(c *controlplane.ControlPlane, resource, namespace, name string, change func(object)) {
	w.Helper()
	w.change(at(c, resource, namespace), name, nil, change)
}

// patchStatus is patch for the status of an object in namespace shop of west.
func (w *env) patchStatus(resource, name string, change func(object)) {
	w.Helper()
	w.change(at(w.west.ControlPlane, resource, "shop"), name, []string{"status"}, change)
}

func (w *env) change(r dynamic.ResourceInterface, name string, subresource []string, change func(object)) {
	w.Helper()
	update := func(ctx context.Context, o *unstructured.Unstructured) error {
		if len(subresource) > 0 {
			_, err := r.UpdateStatus(ctx, o, metav1.UpdateOptions{})
			return err
		}
		_, err := r.Update(ctx, o, metav1.UpdateOptions{})
		return err
	}
	before, err := r.Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	after := before.DeepCopy()
	change(after.Object)
	if err := update(w.Context(), after); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		now, err := r.Get(context.Background(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return
		}
		if err == nil {
			before.SetResourceVersion(now.GetResourceVersion())
			before.SetUID(now.GetUID()) // another test may have removed it and created it again
			err = update(context.Background(), before)
		}
		if err != nil {
			w.Error(err)
		}
	})
}

// remove deletes an object until the test is over.
func (w *env) remove(c *controlplane.ControlPlane, resource, namespace, name string) {
	w.Helper()
	r := at(c, resource, namespace)
	before, err := r.Get(w.Context(), name, metav1.GetOptions{})
	if err == nil {
		err = r.Delete(w.Context(), name, metav1.DeleteOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		before.SetResourceVersion("")
		before.SetUID("")
		if _, err := r.Create(context.Background(), before, metav1.CreateOptions{}); err != nil {
			w.Error(err)
		}
	})
}

// replace makes an object anew with a change, until the test is over.
func (w *env) replace(c *controlplane.ControlPlane, resource, namespace, name string, change func(object)) {
	w.Helper()
	r := at(c, resource, namespace)
	next, err := r.Get(w.Context(), name, metav1.GetOptions{})
	w.must(err)
	w.remove(c, resource, namespace, name)
	next.SetResourceVersion("")
	next.SetUID("")
	change(next.Object)
	_, err = r.Create(w.Context(), next, metav1.CreateOptions{})
	w.must(err)
	w.Cleanup(func() {
		if err := r.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			w.Error(err)
		}
	})
}

// release lets an import of north go that a finalizer holds.
func (w *env) release(name string) {
	w.Helper()
	r := at(w.north.ControlPlane, "serviceimports", "other")
	held, err := r.Get(w.Context(), name, metav1.GetOptions{})
	if err == nil {
		held.SetFinalizers(nil)
		_, err = r.Update(w.Context(), held, metav1.UpdateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// uninstall deletes a CRD, for the last tests: its objects go with it.
func (w *env) uninstall(c *controlplane.ControlPlane, manifest []byte, resource string) {
	w.Helper()
	if err := c.DeleteCRDs(w.Context(), manifest); err != nil {
		w.Fatal(err)
	}
	until.OK(w, resource+" is not served", func(ctx context.Context) error {
		_, err := at(c, resource, "").List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("want not found"), err)
	})
}

// condition sets Ready of a ServiceExport.
func (w *env) condition(name, status, reason string) {
	w.Helper()
	w.conditionOf(name, "Ready", status, reason)
}

func (w *env) conditionOf(name, of, status, reason string) {
	w.Helper()
	w.patchStatus("serviceexports", name, func(o object) {
		all, _, _ := unstructured.NestedSlice(o, "status", "conditions")
		for _, c := range all {
			if c := c.(map[string]any); c["type"] == of {
				c["status"], c["reason"] = status, reason
			}
		}
		o.set(all, "status", "conditions")
	})
}

// imported returns the names of the slices of a service in west.
func (w *env) imported(name string) (names []string) {
	w.Helper()
	list, err := at(w.west.ControlPlane, "endpointslices", "shop").List(w.Context(),
		metav1.ListOptions{LabelSelector: "multicluster.kubernetes.io/service-name=" + name})
	if err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names
}

func unstructuredImport(namespace, name, kind string, ips []string) *unstructured.Unstructured {
	spec := map[string]any{"type": kind, "ports": []any{map[string]any{"port": int64(5432), "protocol": "TCP"}}}
	var addresses []any
	for _, ip := range ips {
		addresses = append(addresses, ip)
	}
	if addresses != nil {
		spec["ips"] = addresses
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImport",
		"metadata": map[string]any{"namespace": namespace, "name": name}, "spec": spec,
	}}
}

// answering returns the address of a server that gives the same reply to each question, with 10.8.0.1 if it is one with
// success.
func (w *env) answering(networks string, rcode int, extended ...uint16) string {
	w.Helper()
	return w.serving(networks, func(out dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetRcode(q, rcode)
		if rcode == dns.RcodeSuccess {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET,
				Ttl: 5}, A: net.IPv4(10, 8, 0, 1)}}
		}
		m.SetEdns0(1232, false)
		for _, code := range extended {
			m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_EDE{InfoCode: code})
		}
		_ = out.WriteMsg(m)
	})
}

// serving returns the address of a server with a handler.
func (w *env) serving(networks string, handler dns.HandlerFunc) string {
	w.Helper()
	port, err := controlplane.ReservePort()
	if err != nil {
		w.Fatal(err)
	}
	for _, network := range []string{"udp", "tcp"} {
		if networks != network && networks != "udp tcp" {
			continue
		}
		started := make(chan struct{})
		s := &dns.Server{Net: network, Addr: port.String(), Handler: handler, NotifyStartedFunc: func() { close(started) }}
		done := make(chan error, 1)
		go func() { done <- s.ListenAndServe() }()
		select {
		case <-started:
		case err := <-done:
			w.Fatal(err)
		}
		w.Cleanup(func() {
			if err := errors.Join(s.Shutdown(), <-done); err != nil {
				w.Error(err)
			}
		})
	}
	w.Cleanup(func() { _ = port.Close() })
	return port.String()
}
