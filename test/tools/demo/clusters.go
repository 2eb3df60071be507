package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterset-dns/clusterset/admin"
	"github.com/clusterset-dns/clusterset/deploy"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// Far shorter than the default of 10s 60s: nobody wants to wait for a minute to see what becomes of a dead cluster.
const leaseRenew, leaseTTL = "2s", "8s"

func (d *demo) startClusters(ctx context.Context) (err error) {
	d.heading("Four control planes", `hub will be the broker; east, west and south will be its members. Each is an etcd and a kube-apiserver.
No nodes, no Pods; of ours there is nothing but the rights of our programs in the members (deploy/).`)
	done := d.step("start them")
	bare := controlplane.Options{Progress: d.out, CRDs: [][]byte{}}
	d.fleet, err = testclusterset.Start(ctx, testclusterset.Options{
		IDs: []string{"east", "west", "south"}, Broker: bare, Member: bare, Bare: true,
	})
	done()
	if err != nil {
		return err
	}
	d.east, d.west, d.south = d.fleet.Members[0], d.fleet.Members[1], d.fleet.Members[2]
	return d.writeKubeconfig(ctx)
}

// writeKubeconfig makes a file with a context for the admin of each cluster, and for who does our work in it. It lies beside
// another kubeconfig, in a folder that is removed also if this process is killed.
func (d *demo) writeKubeconfig(ctx context.Context) error {
	// It holds the rights of CoreDNS with a controller in it.
	if err := d.south.ApplyYAML(ctx, deploy.AllInOneRBAC); err != nil {
		return err
	}
	all := clientcmdapi.NewConfig()
	if err := add(all, "hub", d.fleet.Broker.Kubeconfig()); err != nil {
		return err
	}
	for _, m := range d.fleet.Members {
		if err := add(all, m.ID, m.Kubeconfig()); err != nil {
			return err
		}
		account := "clusterset-controller"
		if m == d.south {
			account = "clusterset"
		}
		// A certificate with the name of the service account: it has the same rights as a token, which would be over after
		// an hour.
		path, err := m.UserKubeconfig("system:serviceaccount:" + admin.DefaultNamespace + ":" + account)
		if err != nil {
			return err
		}
		if err := add(all, m.ID+"-"+account, path); err != nil {
			return err
		}
	}
	d.kubeconfig = filepath.Join(filepath.Dir(d.fleet.Broker.Kubeconfig()), "kubeconfig")
	if err := clientcmd.WriteToFile(*all, d.kubeconfig); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	d.printf("\n   This file has a context for each; all commands below use it.\n\n   $ export KUBECONFIG=%s\n\n", d.kubeconfig)
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
	d.heading("The broker", `Members meet at the broker: each writes what it exports, and reads what the others do. It needs definitions,
rights and policies, and runs none of our programs.`)
	return d.command(ctx, 0, "The broker is ready.", "broker", "init", "--broker-context", "hub")
}

func (d *demo) join(ctx context.Context) error {
	d.heading("Three members", `Each gets a namespace of its own on the broker, a credential for that and nothing else, and its cluster id.
The networks of its Pods are given, as there are no nodes that tell them; addresses outside are refused by others.
The warnings are true: this broker is for this machine only.`)
	for _, m := range d.fleet.Members {
		args := []string{"join", "--context", m.ID, "--broker-context", "hub", "--cluster-id", m.ID, "--clusterset", "demo"}
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
	d.heading("A controller in east and in west", fmt.Sprintf(`A controller exports services of its cluster and imports those of the others. Usually it is a Deployment
(deploy/controller) that mounts the credential; here it is a process with the same rights. Its heartbeat is renewed
every %s; after %s without one a member counts as dead. By default that is 10 s and a minute.`, leaseRenew, leaseTTL))
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

// startDNS returns when the server answers. Its Corefile lies beside the kubeconfig.
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
	d.heading("CoreDNS with a controller inside in south", `The other way, for small set-ups: the line "broker" makes the DNS server run a controller, too. Answers come from
objects in the API server of south alone: they need neither broker nor controller.`)
	file := filepath.Join(filepath.Dir(d.kubeconfig), "Corefile")
	if err := os.WriteFile(file, []byte(corefile), 0o600); err != nil {
		return err
	}
	d.printf("%s\n   $ bin/coredns -conf %s &\n\n", indent(corefile, "     "), file)
	if d.server, err = server.Start(subprocess.Command{Bin: d.bin("coredns"), Args: []string{"-conf", file}}); err != nil {
		return err
	}
	return d.server.Await(ctx, func(ctx context.Context) error { return server.Serves(ctx, d.port.String(), zone) })
}
