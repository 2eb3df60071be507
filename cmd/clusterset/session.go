package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// brokerFlags adds the flags that say where the broker is.
func (s *session) brokerFlags(c *cobra.Command) {
	c.Flags().StringVar(&s.brokerKubeconfig, "broker-kubeconfig", "", "kubeconfig `FILE` of an admin of the broker; that of kubectl if empty")
	c.Flags().StringVar(&s.brokerContext, "broker-context", "", "`CONTEXT` of the broker in it; its current one if empty")
	offerBy(c, "broker-context", contexts(func() (clientcmdapi.Config, error) { return s.brokerLoader().RawConfig() }))
}

// brokerLoader reads what the flags name.
func (s *session) brokerLoader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	// Without a file of its own the broker is one more context of where the member is found.
	if rules.ExplicitPath = s.brokerKubeconfig; rules.ExplicitPath == "" && s.kube.KubeConfig != nil {
		rules.ExplicitPath = *s.kube.KubeConfig
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: s.brokerContext}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// broker returns how its admin reaches the broker, nil if no flag says so.
func (s *session) broker() (*rest.Config, error) {
	if s.brokerKubeconfig == "" && s.brokerContext == "" {
		return nil, nil
	}
	config, err := s.brokerLoader().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	return s.swift(config), nil
}

var errNoBroker = errors.New("no broker: want --broker-kubeconfig, --broker-context or both")

// mustBroker is like broker where there is no way without one.
func (s *session) mustBroker() (*rest.Config, error) {
	config, err := s.broker()
	if err == nil && config == nil {
		err = errNoBroker
	}
	return config, err
}

// member returns how the member is reached.
func (s *session) member() (*rest.Config, error) {
	config, err := s.kube.ToRESTConfig()
	if err == nil {
		err = s.refuseGuess(config)
	}
	if err != nil {
		return nil, fmt.Errorf("member: %w", err)
	}
	return s.swift(rest.CopyConfig(config)), nil
}

// refuseGuess says what is wanted where nothing names an API server: cli-runtime then takes one of this machine.
func (s *session) refuseGuess(config *rest.Config) error {
	if config.Host != "http://localhost:8080" || *s.kube.APIServer != "" || os.Getenv("KUBERNETES_MASTER") != "" {
		return nil
	}
	loader := s.kube.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	files := strings.Join(loader.ConfigAccess().GetLoadingPrecedence(), ", ")
	switch {
	case err != nil || raw.CurrentContext != "" || *s.kube.Context != "":
		return err
	case len(raw.Contexts) == 0:
		return fmt.Errorf("no kubeconfig, looked for %s: want --kubeconfig FILE, or KUBECONFIG set to one", files)
	}
	return fmt.Errorf("no context is the current one of %s: want --context, one of %s",
		files, strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", "))
}

// swift lifts client-go's bound of 5 requests a second, which makes a person wait.
func (s *session) swift(config *rest.Config) *rest.Config {
	config.QPS, config.Burst = 100, 200
	config.WarningHandler = rest.NewWarningWriter(s.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	return config
}

// namespaced returns a client of the member and the namespace that was asked for.
func (s *session) namespaced() (dynamic.Interface, string, error) {
	config, err := s.member()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := s.kube.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("member: %w", err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, "", fmt.Errorf("member: %w", err)
	}
	return client, namespace, nil
}
