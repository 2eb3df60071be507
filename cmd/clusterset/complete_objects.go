package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/clusterset-dns/clusterset/admin/read"
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
	all, err := listServed(c.Context(), client, read.Namespaces, "", "")
	return completeNames(all, err, nil, prefix)
}

// namespaceFlag adds a flag for a namespace of the member. Its default is the value that there is.
func (f *factory) namespaceFlag(c *cobra.Command, flags *pflag.FlagSet, name string, value *string, usage string) {
	flags.StringVar(value, name, *value, usage)
	completeBy(c, name, f.completeNamespaces)
}

// dnsNamespaceFlag adds the flag for the place of the cluster's DNS server.
func (f *factory) dnsNamespaceFlag(c *cobra.Command, value *string) {
	f.namespaceFlag(c, c.Flags(), "dns-namespace", value, "`NAMESPACE` of the cluster's DNS server; not used for OpenShift")
}

// dnsFlags adds the flags of commands that ask both DNS servers.
func (f *factory) dnsFlags(c *cobra.Command, zone, service, namespace *string) {
	c.Flags().StringVar(zone, "zone", *zone, "`ZONE` of the clusterset")
	c.Flags().StringVar(service, "dns-service", *service, "Service of the DNS server of the clusterset, as `NAMESPACE/NAME`")
	f.dnsNamespaceFlag(c, namespace)
}

// completeResources completes names of objects in the selected namespace, filtered by a label selector.
func (f *factory) completeResources(of schema.GroupVersionResource, selector string) completion {
	return func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		client, namespace, err := f.namespaced()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		all, err := listServed(c.Context(), client, of, namespace, selector)
		return completeNames(all, err, args, prefix)
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
	all, err := listServed(c.Context(), client, v1alpha1.Members, "", "")
	return completeNames(all, err, args, prefix)
}

// listServed lists objects within the time for completions.
func listServed(ctx context.Context, client dynamic.Interface, of schema.GroupVersionResource,
	namespace, selector string) ([]unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	all, err := read.Served(of, func(r schema.GroupVersionResource) (*unstructured.UnstructuredList, error) {
		return client.Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// completeNames completes names of objects that begin with prefix and are not among the arguments yet.
func completeNames(all []unstructured.Unstructured, err error, args []string, prefix string) ([]string,
	cobra.ShellCompDirective) {
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var found []string
	for i := range all {
		if name := all[i].GetName(); !slices.Contains(args, name) {
			found = append(found, name)
		}
	}
	return withPrefix(found, prefix), cobra.ShellCompDirectiveNoFileComp
}
