package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// completionTimeout limits how long a shell waits for completions, and a command for a hint.
const completionTimeout = 2 * time.Second

// completeNamespaces completes namespaces of the member.
func (f *factory) completeNamespaces(c *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	member, _, err := f.namespaced()
	return completeListed(c, member, err, listing{of: read.Namespaces}, prefix)
}

// namespaceFlag adds a flag for a namespace of the member. Its default is the value that there is.
func (f *factory) namespaceFlag(c *cobra.Command, name string, value *string, usage string) {
	c.Flags().StringVar(value, name, *value, usage)
	completeBy(c, name, f.completeNamespaces)
}

// dnsNamespaceFlag adds the flag for the place of the cluster's DNS server.
func (f *factory) dnsNamespaceFlag(c *cobra.Command, value *string) {
	f.namespaceFlag(c, "dns-namespace", value, "`NAMESPACE` of the cluster's DNS server; not used for OpenShift")
}

// dnsFlags adds the flags of commands that ask both DNS servers.
func (f *factory) dnsFlags(c *cobra.Command, o *dns.Options, service *string) {
	c.Flags().StringVar(&o.Zone, "zone", o.Zone, "`ZONE` of the clusterset")
	c.Flags().StringVar(
		service, "dns-service", o.Service.String(), "Service of the DNS server of the clusterset, as `NAMESPACE/NAME`")
	f.dnsNamespaceFlag(c, &o.Namespace)
}

// completeResources completes names of objects in the selected namespace, filtered by a label selector.
func (f *factory) completeResources(of schema.GroupVersionResource, selector string) completion {
	return func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		member, namespace, err := f.namespaced()
		l := listing{of: of, namespace: namespace, selector: selector, without: args}
		return completeListed(c, member, err, l, prefix)
	}
}

// completeMembers completes cluster ids of members.
func (f *factory) completeMembers(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	config, err := f.requireBroker()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	hub, err := read.Open(read.RoleBroker, config)
	return completeListed(c, hub, err, listing{of: v1alpha1.Members}, prefix)
}

// A listing selects names for a shell or a hint.
type listing struct {
	of                  schema.GroupVersionResource
	namespace, selector string
	without             []string                                // names that are given already
	word                func(*unstructured.Unstructured) string // the name, if nil
}

// hints is names within [completionTimeout].
func (l listing) hints(ctx context.Context, from *read.Cluster) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	return l.names(ctx, from)
}

func (l listing) names(ctx context.Context, from *read.Cluster) (names []string, err error) {
	all, err := from.ListObjects(ctx, l.of, l.namespace, l.selector)
	for _, o := range all {
		name := o.GetName()
		if l.word != nil {
			name = l.word(o)
		}
		if !slices.Contains(l.without, name) {
			names = append(names, name)
		}
	}
	return names, err
}

// completeListed completes names of objects. err is the error of opening their API server.
func completeListed(c *cobra.Command, from *read.Cluster, err error, l listing, prefix string) ([]string,
	cobra.ShellCompDirective) {
	var names []string
	if err == nil {
		names, err = l.hints(c.Context(), from)
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return withPrefix(names, prefix), cobra.ShellCompDirectiveNoFileComp
}
