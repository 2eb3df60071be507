package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

func newExport(f *factory) *cobra.Command {
	e := &exportCommand{output: &output{factory: f}}
	c := &cobra.Command{
		Use: "export SERVICE...", Short: "Export services to all members of the clusterset",
		Args: func(c *cobra.Command, args []string) error {
			if e.selector != "" && len(args) == 0 {
				return nil
			}
			return requireServices(c, args)
		},
		Long: `Export services to all members of the clusterset: create a ServiceExport for each, and wait until the controller has
written it to the broker. To change or remove labels and annotations, run the command again.

The command fails if an export has not taken effect after --timeout. The ServiceExports stay, and take effect later.
Without --wait=false the Service must exist.`,
		Example: `  clusterset export db cache -n shop
  clusterset export -l tier=data -n shop
  clusterset export db -n shop --label tier=data --annotation example.com/owner=team-a`,
		ValidArgsFunction: f.completeResources(read.Services, broker.LabelManagedBy+"!="+broker.ManagedBy),
	}
	e.flags(c)
	c.Flags().StringToStringVar(&e.labels, "label", nil, "`KEY=VALUE` of a label of the imports, repeatable")
	c.Flags().StringToStringVar(&e.annotations, "annotation", nil, "`KEY=VALUE` of an annotation of the imports, repeatable")
	c.Flags().StringVar(&e.useVIP, "use-clusterset-ip", "", "whether the service gets a clusterset IP, `true|false`, where controllers have \"vip cidr\"; default: as the controller is configured")
	completeWords(c, "use-clusterset-ip", "true", "false")
	c.Flags().StringVarP(&e.selector, "selector", "l", "", "label `SELECTOR` of the Services that exist now, in place of names")
	c.Flags().StringVar(&e.zone, "zone", "clusterset.local", "`ZONE` of the clusterset, for the names to resolve")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := e.checkFlags(); err != nil {
			return err
		}
		if err := e.open(); err != nil {
			return err
		}
		if e.selector != "" {
			var err error
			if args, err = e.selectServices(c.Context(), args); err != nil {
				return err
			}
		}
		return e.exportAll(c.Context(), args)
	}
	return c
}

// selectServices returns the names of the Services that match the selector.
func (e *exportCommand) selectServices(ctx context.Context, args []string) (names []string, err error) {
	if len(args) > 0 {
		return nil, fmt.Errorf("--selector=%s and names of Services: want only one of them", e.selector)
	}
	selector, err := labels.Parse(e.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector=%s: %w", e.selector, err)
	}
	found, err := e.member.Client.Resource(read.Services).Namespace(e.namespace).List(ctx,
		metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	for i := range found.Items {
		if found.Items[i].GetLabels()[broker.LabelManagedBy] != broker.ManagedBy {
			names = append(names, found.Items[i].GetName())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("--selector=%s: no Service in namespace %q matches", e.selector, e.namespace)
	}
	return names, nil
}

func (e *exportCommand) exportAll(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	e.check = e.wait
	isMember, err := e.isMember(ctx)
	if err != nil {
		return err
	}
	resolved := make([]string, len(names))
	for i, name := range names {
		resolved[i] = fmt.Sprintf("%s.%s.svc.%s", name, e.namespace, e.zone)
	}
	var next string
	switch {
	case !isMember:
		e.wait = false // exports take effect when the cluster joins
	case e.wait:
		next = fmt.Sprintf("Each member with a namespace %s now resolves\n  %s", e.namespace, strings.Join(resolved, "\n  "))
	default:
		next = fmt.Sprintf(
			"The ServiceExports are written. When they have taken effect (kubectl get serviceexports), each member with a namespace %s resolves\n  %s",
			e.namespace, strings.Join(resolved, "\n  "))
	}
	var result error
	for _, name := range names {
		if err := e.export(ctx, name); err != nil {
			result = errors.Join(result, fmt.Errorf("export %s: %w", name, err))
		}
	}
	if result != nil {
		next = ""
	} else if !isMember {
		fmt.Fprintln(
			e.ErrOut,
			"warning: this cluster is not a member of a clusterset: exports take effect when it has joined (clusterset join)")
	}
	return errors.Join(result, e.finish(exportResult{Names: resolved}, nil, next))
}

// An exportResult is printed with -o json and yaml.
type exportResult struct {
	Names []string `json:"names"` // in DNS, in the order of the arguments
}

// checkFlags returns an error for labels and annotations that the controller would not export.
func (e *exportCommand) checkFlags() error {
	for _, key := range slices.Sorted(maps.Keys(e.labels)) {
		if !broker.IsLabelKey(key) || broker.IsReservedKey(key) || !broker.IsLabelValue(e.labels[key]) {
			return fmt.Errorf("--label %s=%s: want a valid label without a reserved prefix", key, e.labels[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(e.annotations)) {
		if !broker.IsLabelKey(key) || broker.IsReservedKey(key) || len(e.annotations[key]) > broker.MaxValue {
			return fmt.Errorf("--annotation %s: want a valid key without a reserved prefix, and a value of at most %d octets",
				key, broker.MaxValue)
		}
	}
	if e.useVIP != "" && e.useVIP != "true" && e.useVIP != "false" {
		return fmt.Errorf("--use-clusterset-ip=%s: want true or false", e.useVIP)
	}
	return nil
}

// exported returns the values of the flags by their fields in the spec of a ServiceExport.
func (e *exportCommand) exported() map[string]map[string]string {
	return map[string]map[string]string{"exportedLabels": e.labels, "exportedAnnotations": e.annotations}
}

// isOfRule reports whether the controller has made a ServiceExport by the rule of a Namespace.
func isOfRule(exp *unstructured.Unstructured) bool {
	return exp.GetLabels()[broker.LabelManagedBy] == broker.ManagedBy
}

// takeOver makes the ServiceExport of a rule one of a user, which stays without the rule.
func (e *exportCommand) takeOver(ctx context.Context, r schema.GroupVersionResource, name string) (
	*unstructured.Unstructured, error) {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, broker.LabelManagedBy)
	return e.member.Client.Resource(r).Namespace(e.namespace).Patch(ctx, name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: wellknown.ManagerExport, DryRun: e.options.DryRun.Field()})
}

// desired returns the ServiceExport of a service. It has no spec if the spec would be empty: if an earlier call applied
// fields in the spec, the API server would turn an empty spec into null and reject it.
func (e *exportCommand) desired(gv schema.GroupVersion, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(gv.WithKind("ServiceExport"))
	o.SetNamespace(e.namespace)
	o.SetName(name)
	if e.useVIP != "" {
		o.SetAnnotations(map[string]string{broker.AnnotationUseVIP: e.useVIP})
	}
	for field, values := range e.exported() {
		if len(values) > 0 {
			_ = unstructured.SetNestedStringMap(o.Object, values, "spec", field) // spec is a map or missing
		}
	}
	return o
}

func (e *exportCommand) export(ctx context.Context, name string) error {
	before, err := e.member.Get(ctx, read.ServiceExports, e.namespace, name)
	if apierrors.IsNotFound(err) {
		before, err = nil, e.missingError(ctx, err)
		if err == nil && e.check {
			err = e.checkService(ctx, name)
		}
	}
	if err != nil {
		return err
	}
	same := before != nil && !isOfRule(before) && e.coversFlags(before)
	if e.options.DryRun != write.DryRunClient {
		options := metav1.ApplyOptions{FieldManager: wellknown.ManagerExport, Force: true, DryRun: e.options.DryRun.Field()}
		after, err := read.Served(read.ServiceExports, func(r schema.GroupVersionResource) (*unstructured.Unstructured,
			error) {
			after, err := e.member.Client.Resource(r).Namespace(e.namespace).Apply(ctx, name,
				e.desired(r.GroupVersion(), name), options)
			if err == nil && isOfRule(after) {
				after, err = e.takeOver(ctx, r, name)
			}
			return after, err
		})
		if err != nil {
			return err
		}
		same = before != nil && !isOfRule(before) && sameExport(before, after)
	}
	switch {
	case before == nil:
		e.step(write.Created, name, "")
	case same:
		e.step(write.Unchanged, name, "")
	default:
		e.step(write.Updated, name, "")
	}
	if !e.wait || e.options.DryRun != write.DryRunNone {
		return nil
	}
	return e.waitExported(ctx, name)
}

func sameExport(a, b *unstructured.Unstructured) bool {
	text := func(o *unstructured.Unstructured) string {
		spec, _, _ := unstructured.NestedMap(o.Object, "spec")
		return fmt.Sprint(o.GetAnnotations()[broker.AnnotationUseVIP], spec)
	}
	return text(a) == text(b)
}

// coversFlags predicts, for a client-side dry run, whether an export stays unchanged: it has everything that the flags
// ask for, and nothing that an earlier call asked for and this one does not.
func (e *exportCommand) coversFlags(existing *unstructured.Unstructured) bool {
	ours := appliedFields(existing, wellknown.ManagerExport)
	useVIP := existing.GetAnnotations()[broker.AnnotationUseVIP]
	_, owned, _ := unstructured.NestedFieldNoCopy(ours, "f:metadata", "f:annotations", "f:"+broker.AnnotationUseVIP)
	if e.useVIP != useVIP && (e.useVIP != "" || owned) {
		return false
	}
	for field, want := range e.exported() {
		have, _, _ := unstructured.NestedStringMap(existing.Object, "spec", field)
		for key, value := range want {
			if got, ok := have[key]; !ok || got != value {
				return false
			}
		}
		for key := range have {
			_, owned, _ := unstructured.NestedFieldNoCopy(ours, "f:spec", "f:"+field, "f:"+key)
			if _, wanted := want[key]; owned && !wanted {
				return false
			}
		}
	}
	return true
}

// appliedFields returns the fields that a field manager has applied, as a tree of "f:name" keys (FieldsV1); nil if it
// has applied nothing. structured-merge-diff has a parser for this format, with types that answer the questions of
// coversFlags less directly than a map.
func appliedFields(o *unstructured.Unstructured, manager string) map[string]any {
	for _, m := range o.GetManagedFields() {
		if m.Manager != manager || m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "" ||
			m.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) == nil {
			return fields
		}
	}
	return nil
}
