package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/flowcontrol"
)

// An Object is a pointer to a type that a [Client] knows: Namespace, Service, ServiceAccount, Secret, Node, EndpointSlice,
// Lease, ServiceCIDR, Event (events.k8s.io), ServiceExport and ServiceImport (v1beta1), ClusterProperty (both versions),
// ExportedService, Member. Any other is a panic.
type Object interface {
	metav1.Object
	runtime.Object
}

// timeout bounds every request but watches, so that a server that has stopped answering holds up nobody for ever.
const timeout = 30 * time.Second

// A Client talks to one API server. It may be used from several goroutines.
type Client struct {
	host   string
	http   *http.Client
	dialer *connrotation.Dialer
	dials  atomic.Uint64

	scheme *runtime.Scheme
	kinds  map[reflect.Type]kind
	rests  map[schema.GroupVersion]rest.Interface
	plain  rest.Interface
}

// NewClient makes a client. The rate limit is that of cfg, or of its QPS and Burst; a QPS below 0 means none.
func NewClient(cfg *rest.Config) (*Client, error) {
	c := &Client{host: cfg.Host, kinds: kinds(), rests: make(map[schema.GroupVersion]rest.Interface)}
	config := rest.CopyConfig(cfg)
	config.WarningHandlerWithContext, config.WarningHandler = rest.NoWarnings{}, nil
	config.Timeout = 0 // it would end watches
	c.countDials(config)
	if config.RateLimiter == nil && config.QPS >= 0 {
		qps, burst := config.QPS, config.Burst
		if qps == 0 {
			qps = rest.DefaultQPS
		}
		if burst == 0 {
			burst = rest.DefaultBurst
		}
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	}
	var err error
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return nil, fmt.Errorf("client of %s: %w", c.host, err)
	}
	scheme, codecs := newCodecs()
	c.scheme = scheme
	if err := c.connect(config, codecs); err != nil {
		return nil, fmt.Errorf("client of %s: %w", c.host, err)
	}
	return c, nil
}

// countDials makes config count connections, and end them on demand.
func (c *Client) countDials(config *rest.Config) {
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	c.dialer = connrotation.NewDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			c.dials.Add(1)
		}
		return conn, err
	})
	config.Dial = c.dialer.DialContext
}

// connect makes a REST client for each group and version.
func (c *Client) connect(base *rest.Config, codecs serializer.CodecFactory) error {
	for _, k := range c.kinds {
		gv := k.GroupVersion()
		if c.rests[gv] != nil {
			continue
		}
		config := rest.CopyConfig(base)
		config.GroupVersion, config.APIPath = &gv, "/apis"
		if gv.Group == "" {
			config.APIPath = "/api"
		}
		config.NegotiatedSerializer = codecs.WithoutConversion()
		config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
		if !k.custom {
			config.ContentType = runtime.ContentTypeProtobuf
			config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		}
		r, err := rest.RESTClientForConfigAndClient(config, c.http)
		if err != nil {
			return err
		}
		c.rests[gv] = r
	}
	config := rest.CopyConfig(base)
	config.NegotiatedSerializer = codecs.WithoutConversion()
	var err error
	c.plain, err = rest.UnversionedRESTClientForConfigAndClient(config, c.http)
	return err
}

// Close ends every connection; nobody may use the client any longer.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.dialer.CloseAll()
}

// Drop ends every connection, and with them requests and watches; later requests make new ones.
func (c *Client) Drop() { c.dialer.CloseAll() }

// Host is the address of the API server.
func (c *Client) Host() string { return c.host }

// Dials is how many connections were made so far. Only a new one can lead to another API server.
func (c *Client) Dials() uint64 { return c.dials.Load() }

// Get reads an object into obj.
func (c *Client) Get(ctx context.Context, obj Object, namespace, name string) error {
	k := c.kind(obj)
	return c.do(ctx, target{"get", k, namespace, name}, c.rests[k.GroupVersion()].Get(), obj)
}

// List reads all objects of a kind that match the label selector into list, in a namespace or ("") in all.
func (c *Client) List(ctx context.Context, example Object, list runtime.Object, namespace, labels string) error {
	k := c.kind(example)
	options := metav1.ListOptions{LabelSelector: labels}
	request := c.rests[k.GroupVersion()].Get().VersionedParams(&options, metav1.ParameterCodec)
	return c.do(ctx, target{"list", k, namespace, ""}, request, list)
}

// Create makes obj and fills it with what was stored. An object of that name is an error ([apierrors.IsAlreadyExists]). The
// fields belong to manager if one is given.
func (c *Client) Create(ctx context.Context, obj Object, manager ...string) error {
	k := c.kind(obj)
	sent := obj.DeepCopyObject().(Object)
	sent.SetResourceVersion("")
	sent.SetUID("")
	sent.SetManagedFields(nil)
	options := metav1.CreateOptions{FieldManager: first(manager)}
	request := c.rests[k.GroupVersion()].Post().VersionedParams(&options, metav1.ParameterCodec).Body(sent)
	return c.do(ctx, target{"create", k, obj.GetNamespace(), obj.GetName()}, request, obj)
}

// Update replaces an object by obj and fills obj with what was stored. If obj has a resource version, another one on the
// server is an error ([apierrors.IsConflict]).
func (c *Client) Update(ctx context.Context, obj Object, manager ...string) error {
	k := c.kind(obj)
	options := metav1.UpdateOptions{FieldManager: first(manager)}
	request := c.rests[k.GroupVersion()].Put().Name(obj.GetName()).VersionedParams(&options, metav1.ParameterCodec).Body(obj)
	return c.do(ctx, target{"update", k, obj.GetNamespace(), obj.GetName()}, request, obj)
}

// Apply makes the fields of obj, and no others, those that manager owns, by force, and fills obj with what was stored. What
// manager owned and obj leaves out goes away. Empty fields without omitempty are sent as they are; nulls are left out.
//
// A UID or a resource version that obj has makes another one on the server an error ([apierrors.IsConflict]): an object that
// was compared is not applied over one that changed, nor over one that was made anew, nor is it made. Other
// metadata of the server is not sent. With a subresource, such as "status", only that field is sent; without, never a status.
func (c *Client) Apply(ctx context.Context, obj Object, manager string, subresource ...string) error {
	k := c.kind(obj)
	body, err := k.owned(obj, first(subresource))
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", k.Kind, place(obj.GetNamespace(), obj.GetName()), err)
	}
	force := true
	options := metav1.PatchOptions{FieldManager: manager, Force: &force}
	request := c.rests[k.GroupVersion()].Patch(types.ApplyPatchType).Name(obj.GetName()).SubResource(subresource...).
		VersionedParams(&options, metav1.ParameterCodec).Body(body)
	return c.do(ctx, target{"apply", k, obj.GetNamespace(), obj.GetName()}, request, obj)
}

// Delete removes the object with the name of obj, and its UID if obj has one. One that does not exist is no error; one that
// has another UID is ([apierrors.IsConflict]).
func (c *Client) Delete(ctx context.Context, obj Object) error {
	k := c.kind(obj)
	options := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}}
	if uid := obj.GetUID(); uid != "" {
		options.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	body, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", k.Kind, place(obj.GetNamespace(), obj.GetName()), err)
	}
	request := c.rests[k.GroupVersion()].Delete().Name(obj.GetName()).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body)
	err = c.do(ctx, target{"delete", k, obj.GetNamespace(), obj.GetName()}, request, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Token asks for a token of a service account that is valid for ttl, or as long as the server grants.
func (c *Client) Token(ctx context.Context, namespace, account string, ttl time.Duration) (string, time.Time, error) {
	seconds := int64(ttl.Seconds())
	request := &authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
		Spec:     authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}
	body, err := json.Marshal(request)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("token of %s: %w", place(namespace, account), err)
	}
	k := c.kind(&corev1.ServiceAccount{})
	granted := &authenticationv1.TokenRequest{}
	post := c.rests[k.GroupVersion()].Post().Name(account).SubResource("token").
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body)
	if err := c.do(ctx, target{"token of", k, namespace, account}, post, granted); err != nil {
		return "", time.Time{}, err
	}
	return granted.Status.Token, granted.Status.ExpirationTimestamp.Time, nil
}

// A target is what is done to what.
type target struct {
	verb string
	kind
	namespace, name string
}

// do sends a request and reads the answer into obj, if that is not nil. Nothing of what obj held before is left.
func (c *Client) do(ctx context.Context, t target, r *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if t.verb == "get" {
		r = r.Name(t.name)
	}
	result := r.NamespaceIfScoped(t.namespace, t.namespaced && t.namespace != "").Resource(t.plural).Do(ctx)
	if into == nil {
		return t.wrap(result.Error())
	}
	fresh := reflect.New(reflect.TypeOf(into).Elem())
	if err := result.Into(fresh.Interface().(runtime.Object)); err != nil {
		return t.wrap(err)
	}
	reflect.ValueOf(into).Elem().Set(fresh.Elem())
	return nil
}

func (t target) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %s: %w", t.verb, t.Kind, place(t.namespace, t.name), err)
}

func place(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// ListWatch lists and watches the kind of example in a namespace or ("") in all, as far as the selectors match; "" matches
// everything.
func (c *Client) ListWatch(example runtime.Object, namespace, labelSelector, fieldSelector string) cache.ListerWatcherWithContext {
	k := c.kind(example)
	request := func(options *metav1.ListOptions) *rest.Request {
		options.LabelSelector, options.FieldSelector = labelSelector, fieldSelector
		return c.rests[k.GroupVersion()].Get().NamespaceIfScoped(namespace, k.namespaced && namespace != "").
			Resource(k.plural).VersionedParams(options, metav1.ParameterCodec)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return request(&options).Do(ctx).Get()
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return request(&options).Watch(ctx)
		},
	}
}

// Serves reports whether the API server has the kind of example. Without the right to discover it is an error.
func (c *Client) Serves(ctx context.Context, example runtime.Object) (bool, error) {
	k := c.kind(example)
	var list struct {
		Resources []struct {
			Name string `json:"name"`
		} `json:"resources"`
	}
	path := []string{"/apis", k.Group, k.Version}
	if k.Group == "" {
		path = []string{"/api", k.Version}
	}
	switch err := c.read(ctx, &list, nil, runtime.ContentTypeJSON, path...); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("discover %s: %w", k.Kind, err)
	}
	for _, r := range list.Resources {
		if r.Name == k.plural {
			return true, nil
		}
	}
	return false, nil
}

// Definition reads the CustomResourceDefinition (apiextensions.k8s.io/v1) of that name, "<plural>.<group>".
func (c *Client) Definition(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	path := []string{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", name}
	if err := c.read(ctx, &u.Object, nil, runtime.ContentTypeJSON, path...); err != nil {
		return nil, fmt.Errorf("get CustomResourceDefinition %s: %w", name, err)
	}
	return u, nil
}

// SystemUID is the UID of the namespace kube-system: it tells one cluster from another.
func (c *Client) SystemUID(ctx context.Context) (types.UID, error) {
	var system metav1.PartialObjectMetadata
	if err := c.read(ctx, &system, nil, runtime.ContentTypeJSON, "/api/v1/namespaces", metav1.NamespaceSystem); err != nil {
		return "", fmt.Errorf("get Namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return system.UID, nil
}

// Newest is the resource version up to which the API server knows the kind of example, as new as its etcd; 0 means that it
// is no number.
func (c *Client) Newest(ctx context.Context, example runtime.Object, namespace string) (uint64, error) {
	k := c.kind(example)
	var list metav1.PartialObjectMetadataList
	const accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	if err := c.read(ctx, &list, map[string]string{"limit": "1"}, accept, k.path(namespace)...); err != nil {
		return 0, fmt.Errorf("list %s: %w", k.Kind, err)
	}
	v, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil {
		return 0, nil
	}
	return v, nil
}

// read reads a document.
func (c *Client) read(ctx context.Context, into any, params map[string]string, accept string, path ...string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request := c.plain.Get().AbsPath(path...).SetHeader("Accept", accept)
	for key, value := range params {
		request.Param(key, value)
	}
	raw, err := request.Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
