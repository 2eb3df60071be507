package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin"
	"github.com/clusterset-dns/clusterset/api/broker"
)

// exportManager is the field manager of "clusterset export".
const exportManager = "clusterset-export"

var (
	serviceExports = mcsv1beta1.SchemeGroupVersion.WithResource("serviceexports")
	serviceImports = mcsv1beta1.SchemeGroupVersion.WithResource("serviceimports")
)

// exporting is one call of "export" or "unexport".
type exporting struct {
	*output
	client    dynamic.Interface
	namespace string
	dry       admin.DryRun

	labels, annotations map[string]string
	useVIP              string // "true", "false" or empty
	wait                bool
	timeout             time.Duration
}

func (e *exporting) flags(c *cobra.Command) {
	e.output = e.outputFlags(c)
	c.Flags().BoolVar(&e.wait, "wait", true, "until it has taken effect")
	c.Flags().DurationVar(&e.timeout, "timeout", 30*time.Second, "`DURATION` to wait at most, for all of them")
}

// open reads the flags that both verbs have.
func (e *exporting) open() error {
	w, err := e.writing()
	if err != nil {
		return err
	}
	if e.timeout <= 0 {
		return fmt.Errorf("--timeout=%s: want a duration above 0s", e.timeout)
	}
	e.dry = w.DryRun
	e.client, e.namespace, err = e.namespaced()
	return err
}

func newExport(s *session) *cobra.Command {
	e := &exporting{output: &output{session: s}}
	c := &cobra.Command{
		Use: "export SERVICE...", Short: "Export services to all clusters of the clusterset", Args: services,
		Long: `Export services: make a ServiceExport for each, and wait until its controller has taken it to the broker. Labels and
annotations are all that travels; run it again with others to change them.`,
		Example: `  clusterset export db cache -n shop
  clusterset export db -n shop --label tier=data --annotation example.com/owner=team-a`,
		ValidArgsFunction: s.completeResources("v1", "services", broker.LabelManagedBy+"!="+broker.ManagedBy),
	}
	e.flags(c)
	c.Flags().StringToStringVar(&e.labels, "label", nil, "`KEY=VALUE` of an exported label, repeatable")
	c.Flags().StringToStringVar(&e.annotations, "annotation", nil, "`KEY=VALUE` of an exported annotation, repeatable")
	c.Flags().StringVar(&e.useVIP, "use-clusterset-ip", "", "`true|false`: with a clusterset IP or without, where the controller has \"vip cidr\"; its default if empty")
	offer(c, "use-clusterset-ip", "true", "false")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := e.check(); err != nil {
			return err
		}
		if err := e.open(); err != nil {
			return err
		}
		return e.exportAll(c.Context(), args)
	}
	return c
}

// services wants the names of Services as arguments.
func services(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%s: want SERVICE, the name of a Service, once or more often", c.Name())
	}
	return nil
}

func (e *exporting) exportAll(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	isMember, err := e.isMember(ctx)
	if err != nil {
		return err
	}
	var next string
	switch {
	case !isMember:
		e.wait = false // for what takes effect later
	case e.wait:
		next = fmt.Sprintf("Every cluster with a namespace %[1]s resolves SERVICE.%[1]s.svc.clusterset.local.", e.namespace)
	default:
		next = "This was asked for. Whether it has taken effect: clusterset status, or the conditions of the ServiceExports."
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
		fmt.Fprintln(e.ErrOut, "warning: this cluster is no member of a clusterset: exports take effect when it has joined (clusterset join)")
	}
	return errors.Join(result, e.done(nil, nil, next))
}

// check refuses what would not travel, rather than leaving it behind in silence.
func (e *exporting) check() error {
	for _, key := range slices.Sorted(maps.Keys(e.labels)) {
		if !broker.IsLabelKey(key) || broker.IsReservedKey(key) || !broker.IsLabelValue(e.labels[key]) {
			return fmt.Errorf("--label %s=%s: want key and value of a label, without a reserved prefix", key, e.labels[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(e.annotations)) {
		if !broker.IsLabelKey(key) || broker.IsReservedKey(key) || len(e.annotations[key]) > broker.MaxValue {
			return fmt.Errorf("--annotation %s: want the key of an annotation without a reserved prefix, and at most %d octets", key, broker.MaxValue)
		}
	}
	if e.useVIP != "" && e.useVIP != "true" && e.useVIP != "false" {
		return fmt.Errorf("--use-clusterset-ip=%s: want true or false", e.useVIP)
	}
	return nil
}

// exported returns what can be given of an export, by its field in spec.
func (e *exporting) exported() map[string]map[string]string {
	return map[string]map[string]string{"exportedLabels": e.labels, "exportedAnnotations": e.annotations}
}

// desired is the ServiceExport of a service. It has no spec if there is nothing to say in it: where an earlier one of ours had
// something, the API server makes null of an empty spec, and refuses it.
func (e *exporting) desired(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(mcsv1beta1.SchemeGroupVersion.WithKind("ServiceExport"))
	o.SetNamespace(e.namespace)
	o.SetName(name)
	if e.useVIP != "" {
		o.SetAnnotations(map[string]string{broker.AnnotationUseVIP: e.useVIP})
	}
	for field, values := range e.exported() {
		if len(values) > 0 {
			_ = unstructured.SetNestedStringMap(o.Object, values, "spec", field) // spec is a map, or not there
		}
	}
	return o
}

func (e *exporting) step(action admin.Action, name, note string) {
	e.report(admin.Step{
		Side: admin.OnMember, Action: action, Group: mcsv1beta1.GroupName, Kind: "ServiceExport", Namespace: e.namespace, Name: name,
		Note: note,
	})
}

func (e *exporting) dryRun() []string {
	if e.dry == admin.DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

func (e *exporting) export(ctx context.Context, name string) error {
	r := e.client.Resource(serviceExports).Namespace(e.namespace)
	before, err := r.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		before, err = nil, e.lacking(ctx, err)
	}
	if err != nil {
		return err
	}
	same := before != nil && e.covered(before)
	if e.dry != admin.DryRunClient {
		options := metav1.ApplyOptions{FieldManager: exportManager, Force: true, DryRun: e.dryRun()}
		after, err := r.Apply(ctx, name, e.desired(name), options)
		if err != nil {
			return err
		}
		same = before != nil && sameExport(before, after)
	}
	switch {
	case before == nil:
		e.step(admin.Created, name, "")
	case same:
		e.step(admin.Unchanged, name, "")
	default:
		e.step(admin.Updated, name, "")
	}
	if !e.wait || e.dry != admin.DryRunNone {
		return nil
	}
	return e.awaitExported(ctx, name)
}

// lacking says what the cluster has not that a ServiceExport needs, where one was not found; nil if it lacks nothing else.
func (e *exporting) lacking(ctx context.Context, notFound error) error {
	if status := apierrors.APIStatus(nil); errors.As(notFound, &status) && (status.Status().Details == nil || status.Status().Details.Name == "") {
		return errors.New("this cluster has no CRD of ServiceExport: run \"clusterset join\" first, which installs it")
	}
	_, err := e.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, e.namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no namespace %q: want that of the Service (-n)", e.namespace)
	}
	return nil // who may export need not be allowed to read namespaces
}

func sameExport(a, b *unstructured.Unstructured) bool {
	text := func(o *unstructured.Unstructured) string {
		spec, _, _ := unstructured.NestedMap(o.Object, "spec")
		return fmt.Sprint(o.GetAnnotations()[broker.AnnotationUseVIP], spec)
	}
	return text(a) == text(b)
}

// covered guesses whether an export would stay as it is: it says all that is asked for, and nothing that was asked for earlier
// and is not now.
func (e *exporting) covered(there *unstructured.Unstructured) bool {
	ours := fieldsOf(there, exportManager)
	useVIP := there.GetAnnotations()[broker.AnnotationUseVIP]
	_, owned, _ := unstructured.NestedFieldNoCopy(ours, "f:metadata", "f:annotations", "f:"+broker.AnnotationUseVIP)
	if e.useVIP != useVIP && (e.useVIP != "" || owned) {
		return false
	}
	for field, want := range e.exported() {
		have, _, _ := unstructured.NestedStringMap(there.Object, "spec", field)
		for key, value := range want {
			if got, ok := have[key]; !ok || got != value {
				return false
			}
		}
		for key := range have {
			_, owned, _ := unstructured.NestedFieldNoCopy(ours, "f:spec", "f:"+field, "f:"+key)
			if _, asked := want[key]; owned && !asked {
				return false
			}
		}
	}
	return true
}

// fieldsOf returns the fields that a manager has applied, as a tree of "f:name"; nil if there are none.
func fieldsOf(o *unstructured.Unstructured, manager string) map[string]any {
	for _, m := range o.GetManagedFields() {
		if m.Manager != manager || m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "" || m.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) == nil {
			return fields
		}
	}
	return nil
}

func newUnexport(s *session) *cobra.Command {
	e := &exporting{output: &output{session: s}}
	c := &cobra.Command{
		Use: "unexport SERVICE...", Short: "Withdraw services from the clusterset", Args: services,
		Example:           "  clusterset unexport db -n shop",
		ValidArgsFunction: s.completeResources(mcsv1beta1.SchemeGroupVersion.String(), "serviceexports", ""),
	}
	e.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := e.open(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), e.timeout)
		defer cancel()
		var result error
		for _, name := range args {
			if err := e.unexport(ctx, name); err != nil {
				result = errors.Join(result, fmt.Errorf("unexport %s: %w", name, err))
			}
		}
		return errors.Join(result, e.done(nil, nil, ""))
	}
	return c
}

func (e *exporting) unexport(ctx context.Context, name string) error {
	r := e.client.Resource(serviceExports).Namespace(e.namespace)
	there, err := r.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if err := e.lacking(ctx, err); err != nil {
			return err
		}
		e.step(admin.Unchanged, name, "not there")
		return nil
	}
	if err != nil {
		return err
	}
	uid := there.GetUID()
	if e.dry != admin.DryRunClient {
		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, DryRun: e.dryRun()}
		if err := r.Delete(ctx, name, options); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	e.step(admin.Deleted, name, "")
	if !e.wait || e.dry != admin.DryRunNone {
		return nil
	}
	err = poll(ctx, func() (bool, error) { return e.withdrawn(ctx, name, string(uid)) })
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("this cluster still counts as exporting it after %s: want a controller that runs (clusterset status)", e.timeout)
	}
	return err
}
