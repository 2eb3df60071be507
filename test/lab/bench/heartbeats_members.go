package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// A beatMember simulates the controller of an idle member at the broker, with its own account and connection: it
// renews its heartbeat, holds the watches, whose events it does not decode, and checks the server.
type beatMember struct {
	host, token string
	http        *http.Client
	lease       *coordinationv1.Lease
	watches     []io.ReadCloser // by kind
	ended, sent atomic.Int64    // count watches that the server has ended, and heartbeats
}

// A beatKind is a kind that a controller watches at the broker.
type beatKind struct{ path, accept, labels, fields string }

func beatKinds() []beatKind {
	own := "/apis/" + v1alpha1.GroupVersion.String()
	return []beatKind{
		{"/api/v1/namespaces", runtime.ContentTypeProtobuf, broker.LabelClusterID, ""},
		{own + "/members", runtime.ContentTypeJSON, "", ""},
		{own + "/exportedservices", runtime.ContentTypeJSON, mcsv1beta1.LabelSourceCluster, ""},
		{own + "/inventories", runtime.ContentTypeJSON, "", ""},
		{"/apis/discovery.k8s.io/v1/endpointslices", runtime.ContentTypeProtobuf, mcsv1beta1.LabelSourceCluster, ""},
		{
			"/apis/coordination.k8s.io/v1/leases", runtime.ContentTypeProtobuf, broker.LabelManagedBy + "=" + broker.ManagedBy,
			"metadata.name=" + broker.HeartbeatName,
		},
	}
}

// beatCheck is the period in which a controller asks which cluster the server is, while heartbeats of others come.
const beatCheck = time.Minute

// newBeatMember makes a member whose watches are open.
func newBeatMember(ctx context.Context, b *controlplane.ControlPlane, kube kubernetes.Interface, m int) (*beatMember,
	error) {
	life := int64((24 * time.Hour).Seconds())
	granted, err := kube.CoreV1().ServiceAccounts(brokerNamespace(m)).CreateToken(ctx, broker.ServiceAccount,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &life}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config := b.Config()
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	made := &beatMember{
		host: config.Host, token: granted.Status.Token, lease: heartbeatOf(m),
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true}},
	}
	for _, kind := range beatKinds() {
		events, err := made.watch(ctx, kind)
		if err != nil {
			return nil, err
		}
		made.watches = append(made.watches, events)
	}
	return made, nil
}

// run reads the watches, renews the heartbeat and checks the server until ctx ends; both for the first time after a
// part of their intervals.
func (m *beatMember) run(ctx context.Context, pace time.Duration, phase float64) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, kind := range beatKinds() {
		g.Go(func() error { return m.follow(ctx, kind, m.watches[i]) })
	}
	g.Go(func() error {
		return every(ctx, pace, phase, func() error {
			err := m.renew(ctx)
			m.sent.Add(1)
			return err
		})
	})
	g.Go(func() error { return every(ctx, beatCheck, phase, func() error { return m.system(ctx) }) })
	return g.Wait()
}

// every calls do once in each period, the first time after a part of it, until ctx ends.
func every(ctx context.Context, period time.Duration, phase float64, do func() error) error {
	if pause(ctx, time.Duration(phase*float64(period))) != nil {
		return nil
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		if err := do(); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// follow reads a watch until ctx ends, and opens it again when the server ends it.
func (m *beatMember) follow(ctx context.Context, k beatKind, events io.ReadCloser) error {
	for {
		_, err := io.Copy(io.Discard, events)
		events.Close()
		if ctx.Err() == nil {
			m.ended.Add(1)
			events, err = m.watch(ctx, k)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// watch opens a watch of a kind from now on. It lasts as long as ctx.
func (m *beatMember) watch(ctx context.Context, k beatKind) (io.ReadCloser, error) {
	version, err := m.newest(ctx, k)
	if err != nil {
		return nil, err
	}
	query := url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version}, "timeoutSeconds": {"3600"},
		"labelSelector": {k.labels}, "fieldSelector": {k.fields},
	}
	return m.send(ctx, http.MethodGet, k.path, query, k.accept, nil)
}

// system asks which cluster the server is.
func (m *beatMember) system(ctx context.Context) error {
	return m.do(ctx, http.MethodGet, "/api/v1/namespaces/"+metav1.NamespaceSystem, nil, runtime.ContentTypeJSON, nil)
}

// newest returns the newest version of a kind.
func (m *beatMember) newest(ctx context.Context, k beatKind) (string, error) {
	const accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	content, err := m.send(ctx, http.MethodGet, k.path, url.Values{"limit": {"1"}}, accept, nil)
	if err != nil {
		return "", err
	}
	defer content.Close()
	var list metav1.PartialObjectMetadataList
	err = json.NewDecoder(content).Decode(&list)
	return list.ResourceVersion, err
}

func (m *beatMember) renew(ctx context.Context) error {
	m.lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	body, err := json.Marshal(m.lease)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/apis/coordination.k8s.io/v1/namespaces/%s/leases/%s", m.lease.Namespace, m.lease.Name)
	return m.do(ctx, http.MethodPatch, path, url.Values{"fieldManager": {wellknown.ManagerExporter}, "force": {"true"}},
		runtime.ContentTypeJSON, body)
}

// do sends a request, and reads the response to its end.
func (m *beatMember) do(ctx context.Context, method, path string, query url.Values, accept string, body []byte) error {
	content, err := m.send(ctx, method, path, query, accept, body)
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(io.Discard, content)
	return err
}

// send sends a request, again while the server is too busy, and returns the content of the response.
func (m *beatMember) send(ctx context.Context, method, path string, query url.Values, accept string,
	body []byte) (io.ReadCloser, error) {
	for {
		request, err := http.NewRequestWithContext(ctx, method, m.host+path+"?"+query.Encode(), bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+m.token)
		request.Header.Set("Accept", accept)
		if body != nil {
			request.Header.Set("Content-Type", string(types.ApplyPatchType))
		}
		response, err := m.http.Do(request)
		if err != nil {
			return nil, err
		}
		if response.StatusCode/100 == 2 {
			return response.Body, nil
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusTooManyRequests {
			return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
		}
		if err := pause(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// heartbeatOf is the Lease of a member without its times.
func heartbeatOf(m int) *coordinationv1.Lease {
	id := memberID(m)
	return &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: brokerNamespace(m), Name: broker.HeartbeatName,
			Labels:      map[string]string{broker.LabelManagedBy: broker.ManagedBy},
			Annotations: map[string]string{broker.AnnotationComplete: "1"},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &id},
	}
}
