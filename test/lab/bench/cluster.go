package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	mcsclient "sigs.k8s.io/mcs-api/pkg/client/clientset/versioned"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
)

// writers is how many requests are under way while objects are written.
const writers = 64

// A cluster is a control plane that holds the services.
type cluster struct {
	plane    *controlplane.ControlPlane
	services []service
	spaces   map[string]bool // the namespaces that exist
	source   source
	kube     kubernetes.Interface
	mcs      mcsclient.Interface
}

// startCluster starts a control plane and writes the services' objects. The caller has to stop it.
func (b *bench) startCluster(ctx context.Context, name string, services []service) (_ *cluster, err error) {
	b.progress.say("%s: starting a control plane", name)
	plane, err := controlplane.Start(ctx, controlplane.Options{Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	c := &cluster{plane: plane, spaces: map[string]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	if err := c.connect(); err != nil {
		return nil, err
	}
	c.source = source{kubeconfig: plane.Kubeconfig(), master: filepath.Join(b.dir, name+".zone")}
	if err := c.add(ctx, b.progress, name, services); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *cluster) stop() error { return c.plane.Stop() }

func (c *cluster) connect() error {
	config := c.plane.Config()
	config.QPS = -1
	var err error
	if c.mcs, err = mcsclient.NewForConfig(config); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return nil
}

// writeMaster writes the master file that the baseline reads.
func (c *cluster) writeMaster() (err error) {
	f, err := os.Create(c.source.master)
	if err != nil {
		return fmt.Errorf("master file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return writeMaster(f, c.services)
}

// add writes the objects of services that the cluster does not have yet.
func (c *cluster) add(ctx context.Context, p *progress, name string, services []service) error {
	if err := c.write(ctx, p, name, services); err != nil {
		return fmt.Errorf("load objects: %w", err)
	}
	c.services = append(c.services, services...)
	return nil
}

func (c *cluster) write(ctx context.Context, p *progress, name string, services []service) error {
	if err := c.createNamespaces(ctx, services); err != nil {
		return err
	}
	var objects atomic.Int64
	defer p.every(10*time.Second, func() string {
		return fmt.Sprintf("%s: %d objects written", name, objects.Load())
	})()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	// Go waits for a free writer, so the slices of large services never exist all at once.
	for _, s := range services {
		g.Go(func() error {
			defer objects.Add(1)
			imp := s.serviceImport()
			_, err := c.mcs.MulticlusterV1beta1().ServiceImports(s.namespace).Create(ctx, imp, metav1.CreateOptions{})
			return err
		})
		for slice := range s.slices() {
			g.Go(func() error {
				defer objects.Add(1)
				_, err := c.kube.DiscoveryV1().EndpointSlices(s.namespace).Create(ctx, slice, metav1.CreateOptions{})
				return err
			})
		}
	}
	return g.Wait()
}

func (c *cluster) createNamespaces(ctx context.Context, services []service) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for _, s := range services {
		if c.spaces[s.namespace] {
			continue
		}
		c.spaces[s.namespace] = true
		g.Go(func() error {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
			_, err := c.kube.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
			return err
		})
	}
	return g.Wait()
}
