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

// completionPatience is how long a shell may hang on a key.
const completionPatience = 2 * time.Second

// A completion offers words for the next argument.
type completion = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// offer completes the values of a flag with these.
func offer(c *cobra.Command, flag string, values ...string) {
	offerBy(c, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func offerBy(c *cobra.Command, flag string, by completion) {
	if err := c.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic("clusterset: every flag that is completed exists, and is once: " + err.Error())
	}
}

// contexts offers those of a kubeconfig.
func contexts(load func() (clientcmdapi.Config, error)) completion {
	return func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		raw, err := load()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return beginning(slices.Sorted(maps.Keys(raw.Contexts)), begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNamespaces offers the namespaces of the member.
func (s *session) completeNamespaces(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	client, _, err := s.namespaced()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names(c.Context(), client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), "", nil, begun)
}

// unquote takes the marks out of what flags say of themselves: pflag finds the name of a value by them, a shell would show them.
func unquote(c *cobra.Command) {
	plain := func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }
	c.PersistentFlags().VisitAll(plain)
	c.Flags().VisitAll(plain)
	for _, below := range c.Commands() {
		unquote(below)
	}
}

// completeResources offers the names of objects in the namespace whose labels are as selected.
func (s *session) completeResources(version, resource, selector string) completion {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		client, namespace, err := s.namespaced()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names(c.Context(), client.Resource(gv.WithResource(resource)).Namespace(namespace), selector, args, begun)
	}
}

// completeMembers offers the ids of all members.
func (s *session) completeMembers(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	config, err := s.mustBroker()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names(c.Context(), client.Resource(v1alpha1.Members), "", args, begun)
}

// names offers those of all objects that are not among the arguments yet.
func names(ctx context.Context, r dynamic.ResourceInterface, selector string, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
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
	return beginning(found, begun), cobra.ShellCompDirectiveNoFileComp
}

func beginning(words []string, begun string) []string {
	return slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, begun) })
}
