package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// brokerFlags adds the flags that say where the broker is.
func (s *session) brokerFlags(c *cobra.Command) {
	c.Flags().StringVar(&s.brokerKubeconfig, "broker-kubeconfig", "", "kubeconfig `FILE` of an admin of the broker; that of kubectl if empty")
	c.Flags().StringVar(&s.brokerContext, "broker-context", "", "`CONTEXT` of the broker in it; its current one if empty")
}

// broker returns how its admin reaches the broker, nil if no flag says so.
func (s *session) broker() (*rest.Config, error) {
	if s.brokerKubeconfig == "" && s.brokerContext == "" {
		return nil, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	// Without a file of its own the broker is one more context of where the member is found.
	if rules.ExplicitPath = s.brokerKubeconfig; rules.ExplicitPath == "" && s.kube.KubeConfig != nil {
		rules.ExplicitPath = *s.kube.KubeConfig
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: s.brokerContext}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
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
	if err != nil {
		return nil, fmt.Errorf("member: %w", err)
	}
	return s.swift(rest.CopyConfig(config)), nil
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
