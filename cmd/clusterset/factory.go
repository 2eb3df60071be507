package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterset-dns/clusterset/admin/read"
)

// A factory has the streams and flags that all commands share, and makes API clients from them, like the Factory of
// kubectl.
type factory struct {
	genericiooptions.IOStreams
	kube *genericclioptions.ConfigFlags // flags of kubectl, which select the member

	// Flags that select the broker.
	brokerKubeconfig, brokerContext string
}

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
	completeBy(c, "broker-context", completeContexts(f.brokerLoader))
}

// brokerLoader loads the broker. Without a file of its own, it is a context in the kubeconfig of the member.
func (f *factory) brokerLoader() clientcmd.ClientConfig {
	return loader(cmp.Or(f.brokerKubeconfig, *f.kube.KubeConfig), f.brokerContext)
}

// loader loads a context of a kubeconfig, by default that of kubectl.
func loader(kubeconfig, context string) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: context})
}

// broker returns the configuration for the broker, nil if no flag selects one.
func (f *factory) broker() (*rest.Config, error) {
	if f.brokerKubeconfig == "" && f.brokerContext == "" {
		return nil, nil
	}
	config, err := f.brokerLoader().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("broker: %w", orContexts(err, f.brokerLoader(), f.brokerContext))
	}
	return f.tune(config), nil
}

var errNoBroker = errors.New("no broker: want --broker-kubeconfig, --broker-context or both")

// requireBroker is broker, with an error instead of nil, for commands that do not use the member.
func (f *factory) requireBroker() (*rest.Config, error) {
	config, err := f.broker()
	if err == nil && config == nil {
		err = errNoBroker
		if context := *f.kube.Context; context != "" {
			err = fmt.Errorf("%w; did you mean --broker-context %s?", err, context)
		}
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
		return nil, fmt.Errorf("member: %w", orContexts(err, f.kube.ToRawKubeConfigLoader(), *f.kube.Context))
	}
	return f.tune(rest.CopyConfig(config)), nil
}

// both returns the configurations for the broker and for the member. Without a broker it returns the error missing or,
// if that is nil, only the other one.
func (f *factory) both(missing error) (onBroker, onMember *rest.Config, err error) {
	if onBroker, err = f.broker(); err == nil && onBroker == nil {
		err = missing
	}
	if err == nil {
		onMember, err = f.member()
	}
	return onBroker, onMember, err
}

// orContexts completes the error about a context that does not exist with those that do.
func orContexts(err error, from clientcmd.ClientConfig, context string) error {
	raw, rawErr := from.RawConfig()
	if rawErr != nil || context == "" || raw.Contexts[context] != nil || len(raw.Contexts) == 0 {
		return err
	}
	return fmt.Errorf("%w: want one of %s", err, contextsOf(&raw))
}

func contextsOf(c *api.Config) string {
	return strings.Join(slices.Sorted(maps.Keys(c.Contexts)), ", ")
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
	return fmt.Errorf("%s has no current context: want --context, one of %s", files, contextsOf(&raw))
}

// eachMember calls add for the selected cluster and for further contexts in the kubeconfig of kubectl.
func (f *factory) eachMember(contexts []string, add func(name string, config *rest.Config)) error {
	config, err := f.member()
	if err != nil {
		return err
	}
	add(f.contextName(), config)
	for _, name := range contexts {
		from := loader(*f.kube.KubeConfig, name)
		config, err := from.ClientConfig()
		if err != nil {
			return fmt.Errorf("--contexts: %w", orContexts(err, from, name))
		}
		add(name, f.tune(config))
	}
	return nil
}

// contextName returns the name of the selected context, or "cluster" without one.
func (f *factory) contextName() string {
	raw, _ := f.kube.ToRawKubeConfigLoader().RawConfig() // without a kubeconfig there is no context
	return cmp.Or(*f.kube.Context, raw.CurrentContext, "cluster")
}

// tune raises the default limit of client-go, 5 requests a second, which makes the user wait.
func (f *factory) tune(config *rest.Config) *rest.Config {
	config.QPS, config.Burst = 100, 200
	config.WarningHandler = rest.NewWarningWriter(f.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	return config
}

// namespaced returns the member, and the namespace that the flags select.
func (f *factory) namespaced() (*read.Cluster, string, error) {
	config, err := f.member()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := f.kube.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("member: %w", err)
	}
	c, err := read.Open(read.RoleMember, config)
	return c, namespace, err
}
