package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/flowcontrol"
)

// errAbsent says that no version of a kind is served.
var errAbsent = errors.New("not served")

// A client talks to one API server. All requests share connections and, but for lists and watches, a rate limit.
type client struct {
	config *rest.Config
	http   *http.Client
	dialer *connrotation.Dialer
	dials  atomic.Uint64 // connections made so far
	plain  rest.Interface

	served [kinds]discovered
}

// discovered is the last answer to which version of a kind is served.
type discovered struct {
	mu      sync.Mutex
	version schema.GroupVersion
	err     error
	at      time.Time
}

// unlimited is for what belongs to a list or watch. Client-go does not limit watches either: whoever asks pauses by itself.
var unlimited = flowcontrol.NewFakeAlwaysRateLimiter()

// answerAge is how old an answer may be that feeds share, so that they do not ask each by itself.
const answerAge = time.Second

func newClient(given *rest.Config) (*client, error) {
	c := &client{config: rest.CopyConfig(given)}
	dial := given.Dial
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
	c.config.Dial = c.dialer.DialContext
	c.config.WarningHandlerWithContext = rest.NoWarnings{}
	if c.config.RateLimiter == nil && c.config.QPS >= 0 {
		qps, burst := c.config.QPS, c.config.Burst
		if qps == 0 {
			qps = rest.DefaultQPS
		}
		if burst == 0 {
			burst = rest.DefaultBurst
		}
		c.config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	}
	var err error
	if c.http, err = rest.HTTPClientFor(c.config); err != nil {
		return nil, fmt.Errorf("cache: client of %s: %w", given.Host, err)
	}
	config := rest.CopyConfig(c.config)
	config.NegotiatedSerializer = codecs.WithoutConversion()
	if c.plain, err = rest.UnversionedRESTClientForConfigAndClient(config, c.http); err != nil {
		return nil, fmt.Errorf("cache: client of %s: %w", given.Host, err)
	}
	return c, nil
}

// close ends every connection.
func (c *client) close() {
	c.http.CloseIdleConnections()
	c.dialer.CloseAll()
}

// of makes the client of one kind.
func (c *client) of(kind Kind, gv schema.GroupVersion) (*rest.RESTClient, error) {
	config := rest.CopyConfig(c.config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = codecs.WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	if !resources[kind].custom {
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	rc, err := rest.RESTClientForConfigAndClient(config, c.http)
	if err != nil {
		return nil, fmt.Errorf("cache: client of %s: %w", gv, err)
	}
	return rc, nil
}

// version returns the version of kind to watch: the first of its list that the server has.
// Where discovery is closed it takes rights in scope to know.
func (c *client) version(ctx context.Context, kind Kind, scope string) (schema.GroupVersion, error) {
	r := resources[kind]
	if !r.custom {
		return schema.GroupVersion{Group: r.group, Version: r.versions[0]}, nil
	}
	d := &c.served[kind]
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.at) < answerAge {
		return d.version, d.err
	}
	version, err := c.discover(ctx, r, scope)
	// Without rights there is no answer, though there may be one in another scope.
	if ctx.Err() == nil && !apierrors.IsForbidden(err) {
		d.version, d.err, d.at = version, err, time.Now()
	}
	return version, err
}

func (c *client) discover(ctx context.Context, r resource, scope string) (schema.GroupVersion, error) {
	for _, version := range r.versions {
		gv := schema.GroupVersion{Group: r.group, Version: version}
		ok, err := c.serves(ctx, gv, r, scope)
		if ok || err != nil {
			return gv, err
		}
	}
	return schema.GroupVersion{}, errAbsent
}

func (c *client) serves(ctx context.Context, gv schema.GroupVersion, r resource, scope string) (bool, error) {
	var list struct {
		Resources []struct {
			Name string `json:"name"`
		} `json:"resources"`
	}
	err := c.get(ctx, &list, "/apis", gv.Group, gv.Version)
	if apierrors.IsForbidden(err) {
		// Discovery is closed, which says nothing about the objects: asked for some, the server tells.
		_, err = c.newest(ctx, gv, r, scope)
		if !apierrors.IsNotFound(err) {
			return err == nil, err
		}
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	for _, served := range list.Resources {
		if served.Name == r.plural {
			return true, err
		}
	}
	return false, err
}

// get reads a small document.
func (c *client) get(ctx context.Context, into any, path ...string) error {
	raw, err := c.plain.Get().AbsPath(path...).SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// newest asks for the resource version of all objects of a kind in scope. Without a version in the question, the answer
// is as new as etcd.
func (c *client) newest(ctx context.Context, gv schema.GroupVersion, r resource, scope string) (uint64, error) {
	path := []string{"/apis", gv.Group, gv.Version}
	if gv.Group == "" {
		path = []string{"/api", gv.Version}
	}
	if scope != "" {
		path = append(path, "namespaces", scope)
	}
	raw, err := c.plain.Get().AbsPath(append(path, r.plural)...).Param("limit", "1").Throttle(unlimited).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json").Do(ctx).Raw()
	if err != nil {
		return 0, err
	}
	var list struct {
		metav1.ListMeta `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return 0, err
	}
	v, _ := parseVersion(list.ResourceVersion)
	return v, nil
}

func parseVersion(s string) (uint64, bool) {
	v, err := strconv.ParseUint(s, 10, 64)
	return v, err == nil
}
