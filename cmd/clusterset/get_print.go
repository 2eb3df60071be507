package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin"
)

// A getCommand is one of "get exports", "get imports" and "get members" (docs/spec/operations.md 1).
type getCommand struct {
	*factory
	printed   *genericclioptions.PrintFlags
	format    string
	noHeaders bool
	zone      string // of the column with DNS names

	allNamespaces bool
	selector      string
}

// A table has the columns of a list and the cells of an object. Columns whose name begins with a "+" are for -o wide.
type table struct {
	columns []string
	cells   func(*unstructured.Unstructured) []any
}

func (g *getCommand) flags(c *cobra.Command) {
	g.printed = genericclioptions.NewPrintFlags("")
	g.printed.OutputFormat = nil // the flag is added here, since -o wide is not one of its formats
	g.printed.AddFlags(c)
	g.printed.OutputFormat = &g.format
	c.Flags().StringVarP(&g.format, "output", "o", "", "`FORMAT` of the output: "+strings.Join(g.formats(), ", ")+"; default: a table")
	g.printed.OutputFlagSpecified = func() bool { return c.Flag("output").Changed }
	completeWords(c, "output", g.formats()...)
	c.Flags().BoolVar(&g.noHeaders, "no-headers", false, "print tables without a line of headers")
}

func (g *getCommand) formats() []string {
	return append([]string{"wide"}, g.printed.AllowedFormats()...)
}

// printer returns the printer of a format, nil for tables.
func (g *getCommand) printer() (printers.ResourcePrinter, error) {
	if g.format == "wide" || g.format == "" && *g.printed.TemplatePrinterFlags.TemplateArgument == "" {
		return nil, nil
	}
	p, err := g.printed.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, fmt.Errorf("--output=%s: want one of %s", g.format, strings.Join(g.formats(), ", "))
	}
	return p, err
}

// print prints objects as a table if p is nil, else by p. single prints the object itself and not a list of it, as kubectl does.
func (g *getCommand) print(p printers.ResourcePrinter, t table, objects []unstructured.Unstructured, single bool) error {
	switch {
	case p == nil && len(objects) == 0:
		return nil
	case p == nil:
		o := printers.PrintOptions{Wide: g.format == "wide", NoHeaders: g.noHeaders, WithNamespace: g.allNamespaces}
		return printers.NewTablePrinter(o).PrintObj(t.of(objects), g.Out)
	case single && len(objects) == 0:
		return nil // the error that names it is enough
	case single:
		return p.PrintObj(&objects[0], g.Out)
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}}}
	list.Items = objects
	return p.PrintObj(list, g.Out)
}

func (t table) of(objects []unstructured.Unstructured) *metav1.Table {
	all := &metav1.Table{}
	for _, name := range t.columns {
		column := metav1.TableColumnDefinition{Type: "string"}
		if wide, ok := strings.CutPrefix(name, "+"); ok {
			name, column.Priority = wide, 1
		}
		column.Name = name
		all.ColumnDefinitions = append(all.ColumnDefinitions, column)
	}
	for i := range objects {
		all.Rows = append(all.Rows, metav1.TableRow{Cells: t.cells(&objects[i]), Object: runtime.RawExtension{Object: &objects[i]}})
	}
	return all
}

func age(o metav1.Object) string {
	created := o.GetCreationTimestamp()
	if created.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(created.Time))
}

// some joins the first words of a list that may be long.
func some(words []string) string {
	const shown = 3
	switch n := len(words); {
	case n == 0:
		return "<none>"
	case n > shown:
		return fmt.Sprintf("%s + %d more...", strings.Join(words[:shown], ","), n-shown)
	}
	return strings.Join(words, ",")
}

func dnsName(o metav1.Object, zone string) string {
	return serviceName(o.GetNamespace(), o.GetName(), zone)
}

// serviceName is the whole name of a service.
func serviceName(namespace, name, zone string) string {
	return fmt.Sprintf("%s.%s.svc.%s", name, namespace, zone)
}

func exportTable(zone string) table {
	status := func(e *mcsv1beta1.ServiceExport, of mcsv1beta1.ServiceExportConditionType) string {
		if c := admin.CurrentCondition(e, of); c != nil {
			return string(c.Status)
		}
		return string(metav1.ConditionUnknown)
	}
	return table{
		columns: []string{"Name", "Valid", "Ready", "Conflict", "Reason", "Age", "+DNS Name", "+Message"},
		cells: func(o *unstructured.Unstructured) []any {
			var e mcsv1beta1.ServiceExport
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &e); err != nil {
				return []any{o.GetName(), "-", "-", "-", "Undecodable", age(o), dnsName(o, zone), err.Error()}
			}
			reason, message := admin.ExportReason(&e)
			return []any{
				o.GetName(), status(&e, mcsv1beta1.ServiceExportConditionValid), status(&e, mcsv1beta1.ServiceExportConditionReady),
				status(&e, mcsv1beta1.ServiceExportConditionConflict), reason, age(o), dnsName(o, zone), message,
			}
		},
	}
}

func importTable(zone string) table {
	return table{
		columns: []string{"Name", "Type", "IP", "Ports", "Clusters", "Age", "+DNS Name"},
		cells: func(o *unstructured.Unstructured) []any {
			var i mcsv1beta1.ServiceImport
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &i); err != nil {
				return []any{o.GetName(), "Undecodable", "-", "-", "-", age(o), dnsName(o, zone)}
			}
			var ports, clusters []string
			for _, p := range i.Spec.Ports {
				protocol := p.Protocol
				if protocol == "" {
					protocol = "TCP"
				}
				ports = append(ports, fmt.Sprintf("%d/%s", p.Port, protocol))
			}
			for _, c := range i.Status.Clusters {
				clusters = append(clusters, c.Cluster)
			}
			return []any{o.GetName(), string(i.Spec.Type), some(i.Spec.IPs), some(ports), some(clusters), age(o), dnsName(o, zone)}
		},
	}
}

func memberTable(states []admin.MemberState) table {
	byID := make(map[string]admin.MemberState, len(states))
	for _, s := range states {
		byID[s.ClusterID] = s
	}
	return table{
		columns: []string{"Name", "Status", "Heartbeat", "Services", "Version", "Age", "+Pod CIDRs", "+Service CIDRs", "+VIP CIDR", "+Broker Namespace"},
		cells: func(o *unstructured.Unstructured) []any {
			s, decoded := byID[o.GetName()]
			if !decoded {
				return []any{o.GetName(), "Undecodable", "-", "-", "-", age(o), "-", "-", "-", "-"}
			}
			status, heartbeat := "Active", s.HeartbeatAge
			switch {
			case s.Heartbeat == nil:
				status, heartbeat = "NoHeartbeat", "<none>"
			case s.Expired:
				status = "Expired"
			}
			return []any{
				s.ClusterID, status, heartbeat, fmt.Sprint(s.Services), orNone(s.Version), age(o),
				some(s.PodCIDRs), some(s.ServiceCIDRs), orNone(s.VIPCIDRs()), s.Namespace,
			}
		},
	}
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}
