package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// completionTimeout limits how long a shell waits for completions.
const completionTimeout = 2 * time.Second

// A completion returns the words that can complete prefix, the word at the cursor; args are the arguments before it.
type completion = func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective)

// completeWords completes the value of a flag with fixed words.
func completeWords(c *cobra.Command, flag string, values ...string) {
	completeBy(c, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func completeBy(c *cobra.Command, flag string, by completion) {
	if err := c.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic("clusterset: each completed flag exists and is registered once: " + err.Error())
	}
}

// completeContexts completes the names of contexts in a kubeconfig.
func completeContexts(load func() (clientcmdapi.Config, error)) completion {
	return func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		raw, err := load()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return withPrefix(slices.Sorted(maps.Keys(raw.Contexts)), prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNamespaces completes namespaces of the member.
func (f *factory) completeNamespaces(c *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	client, _, err := f.namespaced()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return completeNames(c.Context(), client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), "", nil, prefix)
}

// unquoteUsage removes the backquotes from the usage of all flags. pflag finds the name of the value by them; a shell would show them.
func unquoteUsage(c *cobra.Command) {
	plain := func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }
	c.PersistentFlags().VisitAll(plain)
	c.Flags().VisitAll(plain)
	for _, sub := range c.Commands() {
		unquoteUsage(sub)
	}
}

// completeResources completes names of objects in the selected namespace, filtered by a label selector.
func (f *factory) completeResources(version, resource, selector string) completion {
	return func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		client, namespace, err := f.namespaced()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return completeNames(c.Context(), client.Resource(gv.WithResource(resource)).Namespace(namespace), selector, args, prefix)
	}
}

// completeMembers completes cluster ids of members.
func (f *factory) completeMembers(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	config, err := f.requireBroker()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return completeNames(c.Context(), client.Resource(v1alpha1.Members), "", args, prefix)
}

// completeNames completes names of objects that are not among the arguments yet.
func completeNames(ctx context.Context, r dynamic.ResourceInterface, selector string, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	all, err := r.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var found []string
	for i := range all.Items {
		if name := all.Items[i].GetName(); !slices.Contains(args, name) {
			found = append(found, name)
		}
	}
	return withPrefix(found, prefix), cobra.ShellCompDirectiveNoFileComp
}

func withPrefix(words []string, prefix string) []string {
	return slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, prefix) })
}
