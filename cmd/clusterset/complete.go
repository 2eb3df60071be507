package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// completionPatience is how long a shell may hang on a key.
const completionPatience = 2 * time.Second

// A completion offers words for the next argument.
type completion = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// completeResources offers the names of objects in the namespace.
func (s *session) completeResources(version, resource string) completion {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		client, namespace, err := s.namespaced()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names(c.Context(), client.Resource(gv.WithResource(resource)).Namespace(namespace), args, begun)
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
	return names(c.Context(), client.Resource(v1alpha1.Members), args, begun)
}

func names(ctx context.Context, r dynamic.ResourceInterface, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	all, err := r.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	given := make(map[string]bool)
	for _, arg := range args {
		given[arg] = true
	}
	var found []string
	for i := range all.Items {
		if name := all.Items[i].GetName(); strings.HasPrefix(name, begun) && !given[name] {
			found = append(found, name)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
