package apiserver

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// A scope has the selection of a watch, and makes its requests. Its reflector, which makes one request at a time,
// changes gv and rest.
type scope struct {
	client   *Client
	resource Resource
	options  WatchOptions

	gv   schema.GroupVersion // the version that is followed
	rest rest.Interface      // of gv
}

// chooseVersion follows the best version that is served.
func (s *scope) chooseVersion(ctx context.Context) error {
	gv, err := s.client.versions.best(ctx, s.resource, s.options.Namespace, answerAge)
	if err != nil {
		return err
	}
	client, err := s.client.restFor(gv, objectCodecs{s.resource.Codecs.WithoutConversion()}, s.resource.Custom)
	if err != nil {
		return err
	}
	s.gv, s.rest = gv, client
	return nil
}

// checkVersion fails if the best version has changed since the list.
func (s *scope) checkVersion(ctx context.Context) error {
	gv, err := s.client.versions.best(ctx, s.resource, s.options.Namespace, answerAge)
	if err == nil && gv != s.gv {
		return fmt.Errorf("%w: %s", errMoved, gv)
	}
	return err
}

// request is a request for objects of the version that is followed. client-go does not repeat it: an API server that
// starts asks for pauses of up to 5 s, in which it has long begun to answer.
func (s *scope) request(options *metav1.ListOptions) *rest.Request {
	options.LabelSelector, options.FieldSelector = s.options.Labels, s.options.Fields
	namespace := s.options.Namespace
	return s.rest.Get().NamespaceIfScoped(namespace, s.resource.Namespaced && namespace != "").Resource(s.resource.Plural).
		SpecificallyVersionedParams(options, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).MaxRetries(0)
}

// newest asks for the newest version of the objects, as new as etcd.
func (s *scope) newest(ctx context.Context) (uint64, error) {
	return s.client.newest(ctx, s.resource.path(s.gv, s.options.Namespace))
}

// read returns the object of a landmark, or nil, and the newest version of the resource: at a version, or for version 0
// as new as etcd. It lists, since watches need that right, too.
func (s *scope) read(ctx context.Context, l *landmark, version uint64) (*foundObject, uint64, error) {
	namespace := s.options.Namespace
	params := map[string]string{"labelSelector": s.options.Labels, "fieldSelector": s.options.Fields, "limit": "1"}
	if l != nil {
		namespace = l.namespace
		params["fieldSelector"] = strings.Trim(s.options.Fields+",metadata.name="+l.name, ",")
	}
	if version > 0 {
		params["resourceVersion"] = strconv.FormatUint(version, 10)
		params["resourceVersionMatch"] = string(metav1.ResourceVersionMatchExact)
	}
	gv, err := s.client.versions.best(ctx, s.resource, namespace, answerAge)
	if err != nil {
		return nil, 0, err
	}
	var list struct {
		metadata
		Items []metadata `json:"items"`
	}
	err = s.client.read(ctx, &list, request{params: params, accept: acceptMetadata, path: s.resource.path(gv, namespace),
		unlimited: true})
	if err != nil || l == nil || len(list.Items) == 0 {
		return nil, VersionNumber(list.Metadata.ResourceVersion), err
	}
	return &list.Items[0].Metadata, VersionNumber(list.Metadata.ResourceVersion), nil
}
