package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// Shorter than the default of 10s 60s, so that the demo need not wait a minute for the heartbeat of a dead cluster to
// expire; long enough that a busy machine renews those of the others in time.
const leaseRenew, leaseTTL = "3s", "20s"

func (d *demo) startClusters(ctx context.Context) (err error) {
	d.heading("Four control planes", `The cluster hub will be the broker; east, west and south will be its members. Each is an etcd and a kube-apiserver,
without nodes and Pods. The members hold the RBAC objects of our programs (folder deploy) and nothing else of ours.`)
	done := d.step("starting four times etcd and kube-apiserver")
	bare := controlplane.Options{Progress: d.out, CRDs: [][]byte{}}
	d.clusterset, err = testclusterset.Start(ctx, testclusterset.Options{
		IDs: []string{"east", "west", "south"}, Broker: bare, Member: bare, Bare: true,
	})
	done()
	if err != nil {
		return err
	}
	d.east, d.west, d.south = d.clusterset.Members[0], d.clusterset.Members[1], d.clusterset.Members[2]
	return d.writeKubeconfig(ctx)
}

// writeKubeconfig writes a file with two contexts for each cluster: the administrator's, and that of our program in it.
// The file is in the folder of another kubeconfig, which is removed even if this process is killed.
func (d *demo) writeKubeconfig(ctx context.Context) error {
	// These are the rights of CoreDNS with a controller in it.
	if err := d.south.ApplyYAML(ctx, deploy.AllInOneRBAC); err != nil {
		return err
	}
	all := clientcmdapi.NewConfig()
	if err := add(all, "hub", d.clusterset.Broker.Kubeconfig()); err != nil {
		return err
	}
	for _, m := range d.clusterset.Members {
		if err := add(all, m.ID, m.Kubeconfig()); err != nil {
			return err
		}
		account := "clusterset-controller"
		if m == d.south {
			account = "clusterset"
		}
		// A certificate in the name of the ServiceAccount has the same rights as a token, and a token expires after an hour.
		path, err := m.UserKubeconfig("system:serviceaccount:" + wellknown.ControllerNamespace + ":" + account)
		if err != nil {
			return err
		}
		if err := add(all, m.ID+"-"+account, path); err != nil {
			return err
		}
	}
	d.kubeconfig = filepath.Join(filepath.Dir(d.clusterset.Broker.Kubeconfig()), "kubeconfig")
	if err := clientcmd.WriteToFile(*all, d.kubeconfig); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	d.printf("\n   One kubeconfig has a context for each cluster; all commands below use it.\n\n   $ export KUBECONFIG=%s\n\n", d.kubeconfig)
	return nil
}

// add adds the only context of the file at path under a name.
func add(all *clientcmdapi.Config, name, path string) error {
	one, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", name, err)
	}
	from := one.Contexts[one.CurrentContext]
	all.Clusters[name], all.AuthInfos[name] = one.Clusters[from.Cluster], one.AuthInfos[from.AuthInfo]
	all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	return nil
}

func (d *demo) initBroker(ctx context.Context) error {
	d.heading("The broker", `The broker is an API server where members exchange their exports: each member writes its own and reads those of the
others. It needs our CRDs, RBAC and admission policies. None of our programs runs there.`)
	return d.command(ctx, 0, "The broker is ready.", "broker", "init", "--broker-context", "hub")
}

func (d *demo) join(ctx context.Context) error {
	d.heading("Three members", `Each member gets a cluster ID, a namespace on the broker and a credential for that namespace alone. The command names
the Pod networks of the member, because there are no nodes to read them from; other members reject endpoints outside of
these networks. The warnings are right: this broker is reachable from this machine only.`)
	for _, m := range d.clusterset.Members {
		args := []string{"join", "--context", m.ID, "--broker-context", "hub", "--cluster-id", m.ID, "--clusterset", "demo",
			"--components", "none"}
		for _, cidr := range m.PodCIDRs() {
			args = append(args, "--pod-cidr", cidr)
		}
		if err := d.command(ctx, 0, m.ID+" is a member of clusterset demo", args...); err != nil {
			return err
		}
		if err := m.MountSecret(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) startControllers(ctx context.Context) (err error) {
	d.heading("A controller in east and in west", fmt.Sprintf(`A controller exports the Services of its cluster and imports those of the others. Usually it is a Deployment
(deploy/controller) that mounts the credential; here it is a process with the same rights. It renews its heartbeat on
the broker every %s, and the other members expire a member after %s without a heartbeat. The defaults are 10 s and 60 s.`, leaseRenew, leaseTTL))
	if d.eastControl, err = d.startController(d.east); err != nil {
		return err
	}
	d.westControl, err = d.startController(d.west)
	return err
}

func (d *demo) startController(m *testclusterset.Member) (*subprocess.Process, error) {
	args := []string{
		"controller", "--context", m.ID + "-clusterset-controller", "--broker", m.BrokerKubeconfig(),
		"--lease", leaseRenew + " " + leaseTTL, "--metrics-address=", "--health-address=",
	}
	d.printf("   $ %s &\n\n", shown(args))
	return subprocess.Start(subprocess.Command{Bin: d.bin("clusterset"), Args: args, Env: d.environment()})
}

// startDNS returns when the server answers. Its Corefile is in the folder of the kubeconfig.
func (d *demo) startDNS(ctx context.Context) (err error) {
	if d.port, err = controlplane.ReservePort(); err != nil {
		return err
	}
	corefile := strings.NewReplacer("ZONE", zone, "PORT", fmt.Sprint(d.port.Number), "KUBECONFIG", d.kubeconfig,
		"BROKER", d.south.BrokerKubeconfig(), "LEASE", leaseRenew+" "+leaseTTL).Replace(`ZONE:PORT {
    bind 127.0.0.1
    errors
    clusterset {
        kubeconfig KUBECONFIG south-clusterset
        broker BROKER
        lease LEASE
    }
}
`)
	d.heading("CoreDNS with a controller inside in south", `The line "broker" makes CoreDNS run a controller in the same process, which is enough for small clusters. The answers
come from objects in the API server of south alone: DNS keeps working without the broker and without the controller.`)
	file := filepath.Join(filepath.Dir(d.kubeconfig), "Corefile")
	if err := os.WriteFile(file, []byte(corefile), 0o600); err != nil {
		return err
	}
	d.printf("%s\n   $ bin/demo-coredns -conf %s &\n\n", indent(corefile, "     "), file)
	if d.server, err = server.Start(subprocess.Command{Bin: d.bin("demo-coredns"),
		Args: []string{"-conf", file}}); err != nil {
		return err
	}
	return d.server.Await(ctx, func(ctx context.Context) error { return server.Serves(ctx, d.port.String(), zone) })
}
