package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// completionTimeout limits how long a shell waits for completions.
const completionTimeout = 2 * time.Second

// completeNamespaces completes namespaces of the member.
func (f *factory) completeNamespaces(c *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	client, _, err := f.namespaced()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return completeNames(c.Context(), client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), "", nil,
		prefix)
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
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		all, err := listServed(ctx, client, gv.WithResource(resource), namespace, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return unnamed(all, args, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// listServed lists objects in a version or, where the cluster lacks that, in v1alpha1.
func listServed(
	ctx context.Context, client dynamic.Interface, of schema.GroupVersionResource, namespace string, o metav1.ListOptions,
) ([]unstructured.Unstructured, error) {
	all, err := client.Resource(of).Namespace(namespace).List(ctx, o)
	if isNoKind(err) {
		all, err = client.Resource(of.GroupResource().WithVersion("v1alpha1")).Namespace(namespace).List(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	return all.Items, nil
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
func completeNames(ctx context.Context, r dynamic.ResourceInterface, selector string, args []string,
	prefix string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	all, err := r.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return unnamed(all.Items, args, prefix), cobra.ShellCompDirectiveNoFileComp
}

// unnamed returns the names of objects that begin with prefix and are not among the arguments yet.
func unnamed(all []unstructured.Unstructured, args []string, prefix string) []string {
	var found []string
	for i := range all {
		if name := all[i].GetName(); !slices.Contains(args, name) {
			found = append(found, name)
		}
	}
	return withPrefix(found, prefix)
}
