package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// StartControllers builds kube-controller-manager if need be, starts it with the controllers of these names and no
// other ("endpointslice-controller", "resourcequota-controller", ...), and returns when it is healthy. It ends with the
// control plane, and goes on while the API server is away. It can be started once.
//
// Controllers that act on every kind (of quotas, namespaces and garbage) learn of a CRD that comes later only after
// half a minute.
func (c *ControlPlane) StartControllers(ctx context.Context, names ...string) error {
	c.spent.Store(true)
	if len(names) == 0 {
		return errors.New("start controllers: want the name of one") // None would mean the usual ones.
	}
	paths, err := FurtherBinaries(ctx, c.opts.Progress)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sweeper == nil || c.controllers != nil {
		return errors.New("start controllers: want a control plane that runs and has none")
	}
	for {
		c.controllers, err = c.startControllers(ctx, paths.ControllerManager, names)
		// Someone who does not reserve ports was faster.
		if err == nil || !strings.Contains(err.Error(), portTaken) || ctx.Err() != nil {
			return err
		}
	}
}

func (c *ControlPlane) startControllers(ctx context.Context, bin string, names []string) (_ *process, err error) {
	if c.healthPort != nil {
		c.healthPort.Close()
	}
	if c.healthPort, err = ReservePort(); err != nil {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(c.dir, name) }
	p, err := c.run(controllerManager, bin, []string{
		"--kubeconfig=" + c.kubeconfig,
		"--controllers=" + strings.Join(names, ","),
		"--leader-elect=false",
		"--service-account-private-key-file=" + file("serviceaccount.key"),
		"--root-ca-file=" + file("ca.crt"),
		"--kube-api-qps=1000", "--kube-api-burst=2000",
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.healthPort.Number),
		// The API server's certificate is good for every server on loopback.
		"--tls-cert-file=" + file("apiserver.crt"), "--tls-private-key-file=" + file("apiserver.key"),
	})
	if err != nil {
		return nil, err
	}
	return awaitReady(ctx, p, c.controllersHealthy)
}

func (c *ControlPlane) controllersHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	roots := x509.NewCertPool()
	roots.AddCert(c.authority.cert)
	// No authentication: this server would not know the token of the API server's clients.
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}
	defer transport.CloseIdleConnections()
	return subprocess.Healthy(ctx, &http.Client{Transport: transport}, "https://"+c.healthPort.String()+"/healthz")
}
