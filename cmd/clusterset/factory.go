package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A factory has the streams and flags that all commands share, and makes API clients from them, like the Factory of
// kubectl.
type factory struct {
	genericiooptions.IOStreams
	kube *genericclioptions.ConfigFlags // flags of kubectl, which select the member

	// Flags that select the broker.
	brokerKubeconfig, brokerContext string
}

// leaseTTLUsage describes --lease-ttl. The larger TTL counts, that of the flag or that of the heartbeat.
const leaseTTLUsage = "`DURATION` after which a heartbeat has expired, unless the heartbeat asks for more: the TTL of the option lease of the controllers"

// brokerFlags adds the flags that select the broker, for commands of its administrator.
func (f *factory) brokerFlags(c *cobra.Command) {
	f.addBrokerFlags(c, "kubeconfig `FILE` of an administrator of the broker, required without --broker-context; default with it: the kubeconfig of kubectl")
}

// brokerReadFlags adds the flags that select the broker, for a command that else reads it with the credential of the
// cluster.
func (f *factory) brokerReadFlags(c *cobra.Command) {
	f.addBrokerFlags(c, "kubeconfig `FILE` of an administrator of the broker; default: with --broker-context the kubeconfig of kubectl, "+
		"else the credential of the cluster")
}

func (f *factory) addBrokerFlags(c *cobra.Command, kubeconfig string) {
	c.Flags().StringVar(&f.brokerKubeconfig, "broker-kubeconfig", "", kubeconfig)
	c.Flags().StringVar(&f.brokerContext, "broker-context", "", "`CONTEXT` of the broker in that kubeconfig; default: its current context")
	completeBy(c, "broker-context", completeContexts(func() (clientcmdapi.Config,
		error) {
		return f.brokerLoader().RawConfig()
	}))
}

func (f *factory) brokerLoader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	// Without a file of its own, the broker is a context in the kubeconfig of the member.
	if rules.ExplicitPath = f.brokerKubeconfig; rules.ExplicitPath == "" && f.kube.KubeConfig != nil {
		rules.ExplicitPath = *f.kube.KubeConfig
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.brokerContext}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// broker returns the configuration for the broker, nil if no flag selects one.
func (f *factory) broker() (*rest.Config, error) {
	if f.brokerKubeconfig == "" && f.brokerContext == "" {
		return nil, nil
	}
	config, err := f.brokerLoader().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	return f.tune(config), nil
}

var errNoBroker = errors.New("no broker: want --broker-kubeconfig, --broker-context or both")

// requireBroker is broker, with an error instead of nil.
func (f *factory) requireBroker() (*rest.Config, error) {
	config, err := f.broker()
	if err == nil && config == nil {
		err = errNoBroker
	}
	return config, err
}

// member returns the configuration for the member.
func (f *factory) member() (*rest.Config, error) {
	config, err := f.kube.ToRESTConfig()
	if err == nil {
		err = f.checkSelected(config)
	}
	if err != nil {
		return nil, fmt.Errorf("member: %w", err)
	}
	return f.tune(rest.CopyConfig(config)), nil
}

// checkSelected returns an error if nothing selects an API server. cli-runtime then falls back to a port of this
// machine.
func (f *factory) checkSelected(config *rest.Config) error {
	if config.Host != "http://localhost:8080" || *f.kube.APIServer != "" || os.Getenv("KUBERNETES_MASTER") != "" {
		return nil
	}
	loader := f.kube.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	files := strings.Join(loader.ConfigAccess().GetLoadingPrecedence(), ", ")
	switch {
	case err != nil || raw.CurrentContext != "" || *f.kube.Context != "":
		return err
	case len(raw.Contexts) == 0:
		return fmt.Errorf("no kubeconfig at %s: want --kubeconfig FILE, or the environment variable KUBECONFIG", files)
	}
	return fmt.Errorf("%s has no current context: want --context, one of %s",
		files, strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", "))
}

// tune raises the default limit of client-go, 5 requests a second, which makes the user wait.
func (f *factory) tune(config *rest.Config) *rest.Config {
	config.QPS, config.Burst = 100, 200
	config.WarningHandler = rest.NewWarningWriter(f.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	return config
}

// namespaced returns a client for the member, and the namespace that the flags select.
func (f *factory) namespaced() (dynamic.Interface, string, error) {
	config, err := f.member()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := f.kube.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("member: %w", err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, "", fmt.Errorf("member: %w", err)
	}
	return client, namespace, nil
}

// isNoKind reports whether something was not found because the API server lacks the kind.
func isNoKind(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
