package apiserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/flowcontrol"
)

// timeout bounds every request but lists, watches and checks of a [Set]: a server may accept a connection and never
// answer.
const timeout = 30 * time.Second

// A Client talks to one API server. All requests share connections and, but for lists and watches of a [Set] and its
// server checks, a rate limit. It may be used from several goroutines.
type Client struct {
	config    *rest.Config // with the dialer and the rate limit
	transport *clientTransport
	http      *http.Client // over transport
	dialer    *connrotation.Dialer
	dials     atomic.Uint64 // connections made so far

	rests    map[schema.GroupVersion]rest.Interface // of the kinds that are known
	plain    rest.Interface                         // of paths
	versions *versions
}

// unlimited is for lists, watches and server checks: their callers pause by themselves, as client-go assumes of
// watches.
var unlimited = flowcontrol.NewFakeAlwaysRateLimiter()

// NewClient makes a client. The rate limit is that of cfg, or of its QPS and Burst; a QPS below 0 means no limit.
func NewClient(cfg *rest.Config) (*Client, error) {
	c := &Client{config: rest.CopyConfig(cfg), rests: make(map[schema.GroupVersion]rest.Interface)}
	c.versions = &versions{serves: c.serves, newest: c.newest, last: make(map[schema.GroupResource]*preferred)}
	c.config.WarningHandlerWithContext, c.config.WarningHandler = rest.NoWarnings{}, nil
	c.config.Timeout = 0 // it would end watches
	c.countDials()
	c.limitRate()
	var err error
	if c.transport, err = newClientTransport(c.config); err == nil {
		c.http = &http.Client{Transport: c.transport}
		err = c.connect()
	}
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", cfg.Host, err)
	}
	return c, nil
}

// countDials makes the client count connections, and end them on demand.
func (c *Client) countDials() {
	dial := c.config.Dial
	if dial == nil {
		// The kernel repeats what gets no answer after 1, 3 and 7 s: a dial that began anew after 5 s reaches a server that
		// is back sooner.
		dial = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	c.dialer = connrotation.NewDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			c.dials.Add(1)
		}
		return conn, err
	})
	c.config.Dial = c.dialer.DialContext
}

// limitRate makes one limit for all REST clients: each would make its own.
func (c *Client) limitRate() {
	if c.config.RateLimiter != nil || c.config.QPS < 0 {
		return
	}
	c.config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(
		cmp.Or(c.config.QPS, rest.DefaultQPS), cmp.Or(c.config.Burst, rest.DefaultBurst))
}

// connect makes the REST clients of all kinds that are known.
func (c *Client) connect() error {
	for _, kind := range allKinds().byType {
		for _, version := range kind.Versions {
			gv := schema.GroupVersion{Group: kind.Group, Version: version}
			if c.rests[gv] != nil {
				continue
			}
			r, err := c.restFor(gv, allKinds().codecs.WithoutConversion(), kind.Custom)
			if err != nil {
				return err
			}
			c.rests[gv] = r
		}
	}
	config := rest.CopyConfig(c.config)
	config.NegotiatedSerializer = allKinds().codecs.WithoutConversion()
	var err error
	c.plain, err = rest.UnversionedRESTClientForConfigAndClient(config, c.http)
	return err
}

// restFor makes a REST client: JSON for custom resources, else protobuf.
func (c *Client) restFor(gv schema.GroupVersion, codecs runtime.NegotiatedSerializer, custom bool) (rest.Interface,
	error) {
	config := rest.CopyConfig(c.config)
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = codecs
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if !custom {
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	return rest.RESTClientForConfigAndClient(config, c.http)
}

// A target is what a request is about, and the version that it is sent in.
type target struct {
	verb string // in error messages
	Resource
	namespace, name string
	gv              schema.GroupVersion
}

// target returns the target of a request, and the REST client for it. Its version is the one that the API server has,
// or else had. If it never had one, the version is that of the Go type.
func (c *Client) target(ctx context.Context, verb string, obj runtime.Object, namespace, name string) (target,
	rest.Interface) {
	r := ResourceOf(obj)
	gv, _ := c.versions.best(ctx, r, namespace, requestAge)
	gv = schema.GroupVersion{Group: r.Group, Version: cmp.Or(gv.Version, r.version)}
	return target{verb, r, namespace, name, gv}, c.rests[gv]
}

// targetOf is target for a named object.
func (c *Client) targetOf(ctx context.Context, verb string, obj Object) (target, rest.Interface) {
	return c.target(ctx, verb, obj, obj.GetNamespace(), obj.GetName())
}

// Close ends every connection. The client must not be used any longer.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.dialer.CloseAll()
}

// Drop ends every connection, and with them requests and watches; later requests make new ones.
func (c *Client) Drop() { c.dialer.CloseAll() }

// Host is the address of the API server.
func (c *Client) Host() string {
	if current := c.transport.current.Load(); current != c.transport.first {
		return current.base.String()
	}
	return c.config.Host
}

// Dials is how many connections were made so far. Only a new one can lead to another API server.
func (c *Client) Dials() uint64 { return c.dials.Load() }

// Reconnect makes later requests go to the address and with the credential of cfg; its dialer and rate limit do not
// count. Watches that are open stay open. The server check comes before anything is read over a new connection, so that
// another cluster at the new address is found.
func (c *Client) Reconnect(cfg *rest.Config) error {
	config := rest.CopyConfig(cfg)
	config.Timeout, config.Dial = 0, c.dialer.DialContext
	next, err := newAccess(config)
	if err != nil {
		return fmt.Errorf("client of %s: %w", cfg.Host, err)
	}
	old := c.transport.current.Swap(next)
	utilnet.CloseIdleConnectionsFor(old.transport)
	return nil
}

// Get reads an object into obj.
func (c *Client) Get(ctx context.Context, obj Object, namespace, name string) error {
	t, api := c.target(ctx, "get", obj, namespace, name)
	return c.do(ctx, t, api.Get().Name(name), obj)
}

// List reads all objects of a kind that match the label selector into list, in a namespace or ("") in all.
func (c *Client) List(ctx context.Context, example Object, list runtime.Object, namespace, labels string) error {
	t, api := c.target(ctx, "list", example, namespace, "")
	options := metav1.ListOptions{LabelSelector: labels}
	return c.do(ctx, t, api.Get().VersionedParams(&options, metav1.ParameterCodec), list)
}

// ListMetadata reads the metadata of all objects of a kind in a namespace that match the label selector. It works for
// objects that do not decode.
func (c *Client) ListMetadata(ctx context.Context, example Object, namespace,
	labels string) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	t, api := c.target(ctx, "list", example, namespace, "")
	options := metav1.ListOptions{LabelSelector: labels}
	raw, err := api.Get().VersionedParams(&options, metav1.ParameterCodec).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").
		Namespace(namespace).Resource(t.Plural).Do(ctx).Raw()
	list := &metav1.PartialObjectMetadataList{}
	if err == nil {
		err = json.Unmarshal(raw, list)
	}
	return list, t.wrap(err)
}

// Create makes obj and fills it with the stored object. An object of that name is an error
// ([apierrors.IsAlreadyExists]). The fields belong to manager if one is given.
func (c *Client) Create(ctx context.Context, obj Object, manager ...string) error {
	t, api := c.targetOf(ctx, "create", obj)
	sent := obj.DeepCopyObject().(Object)
	sent.SetResourceVersion("")
	sent.SetUID("")
	sent.SetManagedFields(nil)
	options := metav1.CreateOptions{FieldManager: cmp.Or(manager...)}
	return c.do(ctx, t, api.Post().VersionedParams(&options, metav1.ParameterCodec).Body(sent), obj)
}

// Update replaces an object by obj and fills obj with the stored object. If obj has a resource version, another one on
// the server is an error ([apierrors.IsConflict]).
func (c *Client) Update(ctx context.Context, obj Object, manager ...string) error {
	t, api := c.targetOf(ctx, "update", obj)
	options := metav1.UpdateOptions{FieldManager: cmp.Or(manager...)}
	return c.do(ctx, t, api.Put().Name(t.name).VersionedParams(&options, metav1.ParameterCodec).Body(obj), obj)
}

// Delete removes the object with the name of obj, and its UID if obj has one. A missing object is no error; another UID
// is ([apierrors.IsConflict]).
func (c *Client) Delete(ctx context.Context, obj Object) error {
	var only *metav1.Preconditions
	if uid := obj.GetUID(); uid != "" {
		only = &metav1.Preconditions{UID: &uid}
	}
	return c.delete(ctx, obj, only)
}

// DeleteVersion is [Client.Delete] for the version of obj: a later one is a conflict, too.
func (c *Client) DeleteVersion(ctx context.Context, obj Object) error {
	return c.delete(ctx, obj, &metav1.Preconditions{UID: new(obj.GetUID()),
		ResourceVersion: new(obj.GetResourceVersion())})
}

func (c *Client) delete(ctx context.Context, obj Object, only *metav1.Preconditions) error {
	t, api := c.targetOf(ctx, "delete", obj)
	options := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: only}
	body, err := json.Marshal(options)
	if err != nil {
		return t.wrap(err)
	}
	err = c.do(ctx, t, api.Delete().Name(t.name).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body), nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Token asks for a token of a service account that is valid for ttl, or as long as the server grants. Without audiences
// it is for the API server itself.
func (c *Client) Token(ctx context.Context, namespace, account string, ttl time.Duration, audiences ...string) (string,
	time.Time, error) {
	seconds := int64(ttl.Seconds())
	request := &authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
		Spec:     authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: audiences},
	}
	t, api := c.target(ctx, "token of", &corev1.ServiceAccount{}, namespace, account)
	body, err := json.Marshal(request)
	if err != nil {
		return "", time.Time{}, t.wrap(err)
	}
	granted := &authenticationv1.TokenRequest{}
	post := api.Post().Name(account).SubResource("token").
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body)
	if err := c.do(ctx, t, post, granted); err != nil {
		return "", time.Time{}, err
	}
	return granted.Status.Token, granted.Status.ExpirationTimestamp.Time, nil
}

// do sends a request and reads the answer into obj, if that is not nil. Nothing of what obj held before is left.
func (c *Client) do(ctx context.Context, t target, r *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result := r.NamespaceIfScoped(t.namespace, t.Namespaced && t.namespace != "").Resource(t.Plural).Do(ctx)
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
	return fmt.Errorf("%s %s %s: %w", t.verb, t.Kind, cache.NewObjectName(t.namespace, t.name), err)
}

// Serves reports whether the API server has the kind of example. Without the right to discover it is an error.
func (c *Client) Serves(ctx context.Context, example runtime.Object) (bool, error) {
	r := ResourceOf(example)
	served, err := c.serves(ctx, schema.GroupVersion{Group: r.Group, Version: r.version}, r.Plural)
	if err != nil {
		return false, fmt.Errorf("discover %s: %w", r.Kind, err)
	}
	return served, nil
}

func (c *Client) serves(ctx context.Context, gv schema.GroupVersion, plural string) (bool, error) {
	var list metav1.APIResourceList
	err := c.read(ctx, &list, request{accept: runtime.ContentTypeJSON, path: groupPath(gv)})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == plural }), err
}

// Definition reads the CustomResourceDefinition (apiextensions.k8s.io/v1) of that name, "<plural>.<group>".
func (c *Client) Definition(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	path := []string{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", name}
	if err := c.read(ctx, &u.Object, request{accept: runtime.ContentTypeJSON, path: path}); err != nil {
		return nil, fmt.Errorf("get CustomResourceDefinition %s: %w", name, err)
	}
	return u, nil
}

// Metadata reads the metadata of a cluster-scoped object of the core group, such as a Node: resource is its plural.
func (c *Client) Metadata(ctx context.Context, resource, name string) (*metav1.ObjectMeta, error) {
	var object metav1.PartialObjectMetadata
	path := []string{"/api/v1", resource, name}
	if err := c.read(ctx, &object, request{accept: runtime.ContentTypeJSON, path: path}); err != nil {
		return nil, fmt.Errorf("get %s %s: %w", resource, name, err)
	}
	return &object.ObjectMeta, nil
}

// SystemUID is the UID of the namespace kube-system: it identifies a cluster.
func (c *Client) SystemUID(ctx context.Context) (types.UID, error) {
	var system metadata
	path := []string{"/api/v1/namespaces", metav1.NamespaceSystem}
	if err := c.read(ctx, &system, request{accept: runtime.ContentTypeJSON, path: path, unlimited: true}); err != nil {
		return "", fmt.Errorf("get Namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return system.Metadata.UID, nil
}

const acceptMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// newest is the resource version up to which the API server knows the objects at a path, 0 if it is no number. Without
// a version in the request, the answer is as new as etcd.
func (c *Client) newest(ctx context.Context, path []string) (uint64, error) {
	var list metadata
	err := c.read(ctx, &list, request{params: map[string]string{"limit": "1"}, accept: acceptMetadata, path: path,
		unlimited: true})
	if err != nil {
		return 0, err
	}
	return VersionNumber(list.Metadata.ResourceVersion), nil
}

// A request is what read asks for.
type request struct {
	path      []string
	params    map[string]string
	accept    string
	unlimited bool // the rate limit does not count
}

// read reads a small document.
func (c *Client) read(ctx context.Context, into any, r request) error {
	// All callers ask again by themselves: a server that is busy or starts may ask for a pause of 5 to 30 seconds.
	get := c.plain.Get().AbsPath(r.path...).SetHeader("Accept", r.accept).MaxRetries(0)
	if r.unlimited {
		get = get.Throttle(unlimited)
	}
	if _, limited := ctx.Deadline(); !limited || !r.unlimited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	for key, value := range r.params {
		get.Param(key, value)
	}
	result := get.Do(ctx)
	if err := result.Error(); err != nil { // Raw would drop the causes in the Status
		return err
	}
	raw, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
