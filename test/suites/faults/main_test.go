// Package faults tests a clusterset while something is broken: the broker is down, restored, emptied or replaced by
// another one, a member is cut off or its heartbeats stop, a controller crashes, is paused or reloaded. No fault may
// remove anything that is in use, and after the fault every object has to be up to date.
package faults

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterset-dns/clusterset/admin/join"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// clusters is the clusterset that all tests share. Its members east and west are joined, with VIP CIDRs.
var (
	clusters   *testclusterset.Clusterset
	east, west *testclusterset.Member
)

// localEnv is an environment variable that makes this program a controller. Its value is the kubeconfig of the cluster;
// the value of brokerEnv is the kubeconfig of the broker.
const (
	localEnv  = "CLUSTERSET_TEST_LOCAL"
	brokerEnv = "CLUSTERSET_TEST_BROKER"
)

func TestMain(m *testing.M) {
	if local := os.Getenv(localEnv); local != "" {
		os.Exit(control(local, os.Getenv(brokerEnv)))
	}
	code, err := withClusterset(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withClusterset(run func() int) (code int, err error) {
	ctx := context.Background()
	if clusters, err = testclusterset.Start(ctx, testclusterset.Options{IDs: []string{"east", "west"}}); err != nil {
		return 1, err
	}
	defer func() {
		if e := clusters.Stop(); err == nil {
			err = e
		}
	}()
	east, west = clusters.Members[0], clusters.Members[1]
	if err := joinMembers(ctx); err != nil {
		return 1, err
	}
	defer func() {
		if e := stopServers(); err == nil {
			err = e
		}
	}()
	if err := startServers(ctx); err != nil {
		return 1, err
	}
	return run(), nil
}

// joinMembers joins both members to the broker, or repairs their membership.
func joinMembers(ctx context.Context) error {
	for _, m := range clusters.Members {
		if _, err := m.Join(ctx, func(o *join.Options) {
			o.VIPCIDR, o.ReplaceBroker = join.VIPAuto,
				true
		}); err != nil {
			return err
		}
	}
	return dropParameters(ctx, clusters.Members...)
}

// dropParameters unbinds the policy whose parameters are Members. An API server finds custom kinds only half a minute
// after its start, and until then denies each request that such a policy decides about; these tests start the broker
// often.
func dropParameters(ctx context.Context, of ...*testclusterset.Member) error {
	var bindings []runtime.Object
	for _, m := range of {
		bindings = append(bindings, &admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: "clusterset-" + m.BrokerNamespace()},
		})
	}
	return clusters.Broker.Delete(ctx, bindings...)
}

// control runs a controller until SIGTERM and returns the exit code.
func control(local, brokerKubeconfig string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config := controller.Defaults()
	var err error
	if config.Local, err = clientcmd.BuildConfigFromFlags("", local); err == nil {
		config.Broker, config.Namespace, config.Log = brokerKubeconfig, wellknown.ControllerNamespace, lines{}
		config.Renew, config.TTL = renew, ttl
		err = controller.Run(ctx, config)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// lines writes the log of a controller to standard output.
type lines struct{}

func (lines) Infof(format string, args ...any)    { fmt.Printf(format+"\n", args...) }
func (lines) Warningf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (lines) Errorf(format string, args ...any)   { fmt.Printf(format+"\n", args...) }

// The heartbeat of members, unless a test needs another one. The TTL is long enough for a member on a busy machine.
const (
	renew = time.Second
	ttl   = 15 * time.Second
)

// via writes a copy of a kubeconfig and its token with another server, and returns its path. ca is the CA certificate
// of that server, nil for the same one.
func via(t testing.TB, kubeconfig, server string, ca []byte) string {
	t.Helper()
	dir := t.TempDir()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Clusters {
		c.Server = server
		if ca != nil {
			c.CertificateAuthority, c.CertificateAuthorityData = "", ca
		}
	}
	for _, user := range config.AuthInfos {
		if user.TokenFile == "" {
			continue
		}
		file := user.TokenFile
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(kubeconfig), file)
		}
		token, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		user.TokenFile = "token"
		if err := os.WriteFile(filepath.Join(dir, "token"), token, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
