package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

func newGet(f *factory) *cobra.Command {
	c := &cobra.Command{
		Use: "get", Short: "List exports, imports or members", Args: cobra.NoArgs, RunE: help,
		Long: `List exports and imports of a cluster, or the members of its clusterset, as kubectl lists objects. The tables have what a user asks
for first; -o wide adds what the cell has no room for, and the other formats print the objects themselves.`,
		Example: `  clusterset get exports -A
  clusterset get imports -n shop -o wide
  clusterset get members -o jsonpath='{.items[*].metadata.name}'`,
	}
	c.AddCommand(newGetServices(f, serviceExports, "exports", exportTable), newGetServices(f, serviceImports, "imports", importTable), newGetMembers(f))
	return c
}

func newGetServices(f *factory, of schema.GroupVersionResource, name string, table func(string) table) *cobra.Command {
	g := &getCommand{factory: f}
	c := &cobra.Command{
		Use: name + " [NAME...]", Aliases: []string{of.Resource}, Short: "List the " + name + " of a cluster",
		Long: fmt.Sprintf(`List the %s of the cluster that the flags of kubectl select, in a namespace or, with -A, in all. With names, only these are read,
and a name that does not exist is an error.`, name),
		Example:           fmt.Sprintf("  clusterset get %s -A\n  clusterset get %s db -n shop -o yaml", name, name),
		ValidArgsFunction: f.completeResources(of.GroupVersion().String(), of.Resource, ""),
	}
	g.flags(c)
	c.Flags().BoolVarP(&g.allNamespaces, "all-namespaces", "A", false, "list in all namespaces")
	c.Flags().StringVarP(&g.selector, "selector", "l", "", "list only objects whose labels match `SELECTOR`")
	c.Flags().StringVar(&g.zone, "zone", "clusterset.local", "`ZONE` of the clusterset, for the column DNS NAME")
	c.RunE = func(c *cobra.Command, names []string) error {
		switch {
		case len(names) > 0 && g.allNamespaces:
			return errors.New("names and --all-namespaces: want only one of them")
		case len(names) > 0 && g.selector != "":
			return errors.New("names and --selector: want only one of them")
		}
		p, err := g.printer()
		if err != nil {
			return err
		}
		objects, missing, err := g.services(c.Context(), of, names)
		if err != nil {
			return err
		}
		return errors.Join(g.print(p, table(g.zone), objects, len(names) == 1), missing)
	}
	return c
}

func newGetMembers(f *factory) *cobra.Command {
	g := &getCommand{factory: f}
	o := admin.StatusDefaults()
	c := &cobra.Command{
		Use: "members [ID...]", Aliases: []string{"member"}, Short: "List the members of a clusterset",
		Long: `List the members of a clusterset, which are objects on the broker. The broker is read with the credential of the cluster that the flags
of kubectl select, unless --broker-kubeconfig or --broker-context is given.`,
		Example: "  clusterset get members\n  clusterset get members -o wide --broker-context hub",
	}
	g.flags(c)
	f.brokerReadFlags(c)
	c.Flags().StringVar(&o.Namespace, "controller-namespace", wellknown.ControllerNamespace, "`NAMESPACE` of the controller in the cluster")
	c.Flags().DurationVar(&o.TTL, "lease-ttl", o.TTL, leaseTTLUsage)
	completeBy(c, "controller-namespace", f.completeNamespaces)
	read := func(ctx context.Context) (admin.MemberList, error) {
		onBroker, onMember, err := f.brokerOrMember()
		if err != nil {
			return admin.MemberList{}, err
		}
		return admin.Members(ctx, onBroker, onMember, o)
	}
	c.ValidArgsFunction = func(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		all, err := read(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return unnamed(all.Objects, args, prefix), cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(c *cobra.Command, names []string) error {
		p, err := g.printer()
		if err != nil {
			return err
		}
		all, err := read(c.Context())
		if err != nil {
			return err
		}
		objects, missing := choose(all.Objects, names)
		return errors.Join(g.print(p, memberTable(all.States), objects, len(names) == 1), missing)
	}
	return c
}

// brokerOrMember returns the configuration that the flags give for the broker or, without such flags, that of the member.
func (f *factory) brokerOrMember() (onBroker, onMember *rest.Config, err error) {
	if onBroker, err = f.broker(); err != nil || onBroker != nil {
		return onBroker, nil, err
	}
	onMember, err = f.member()
	return nil, onMember, err
}

// services reads ServiceExports or ServiceImports in the newest version that the cluster serves. missing names those that do not exist.
func (g *getCommand) services(ctx context.Context, of schema.GroupVersionResource, names []string) (objects []unstructured.Unstructured, missing, err error) {
	client, namespace, err := g.namespaced()
	if err != nil {
		return nil, nil, err
	}
	if g.allNamespaces {
		namespace = metav1.NamespaceAll
	}
	for _, version := range []string{of.Version, "v1alpha1"} {
		r := client.Resource(of.GroupResource().WithVersion(version)).Namespace(namespace)
		if len(names) > 0 {
			objects, missing, err = getNamed(ctx, r, names)
		} else {
			objects, err = g.listed(ctx, r)
		}
		if isNoKind(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", of.GroupResource(), err)
		}
		if len(names) == 0 && len(objects) == 0 {
			fmt.Fprintf(g.ErrOut, "No %s found%s.\n", of.Resource, in(namespace))
		}
		return objects, missing, nil
	}
	return nil, nil, fmt.Errorf("this cluster has no CRD %s: run \"clusterset join\" first, which installs it", of.GroupResource())
}

func (g *getCommand) listed(ctx context.Context, r dynamic.ResourceInterface) ([]unstructured.Unstructured, error) {
	all, err := r.List(ctx, metav1.ListOptions{LabelSelector: g.selector})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// getNamed reads objects by their names. missing names those that do not exist.
func getNamed(ctx context.Context, r dynamic.ResourceInterface, names []string) (objects []unstructured.Unstructured, missing, err error) {
	for _, name := range names {
		o, err := r.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && !isNoKind(err):
			missing = errors.Join(missing, notExisting(name))
		case err != nil:
			return nil, nil, err
		default:
			objects = append(objects, *o)
		}
	}
	return objects, missing, nil
}

func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

func notExisting(name string) error { return fmt.Errorf("%s does not exist", name) }

// choose returns the objects with the names, or all objects without names. missing names those that do not exist.
func choose(all []unstructured.Unstructured, names []string) (objects []unstructured.Unstructured, missing error) {
	if len(names) == 0 {
		return all, nil
	}
	byName := make(map[string]unstructured.Unstructured, len(all))
	for _, o := range all {
		byName[o.GetName()] = o
	}
	for _, name := range names {
		if o, exists := byName[name]; exists {
			objects = append(objects, o)
		} else {
			missing = errors.Join(missing, notExisting(name))
		}
	}
	return objects, missing
}
