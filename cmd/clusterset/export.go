package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutapi "github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/membership"
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
	dry       membership.DryRun

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
	e.dry = w.DryRun
	e.client, e.namespace, err = e.namespaced()
	return err
}

func newExport(s *session) *cobra.Command {
	e := &exporting{output: &output{session: s}}
	c := &cobra.Command{
		Use: "export SERVICE...", Short: "Export services to all clusters of the clusterset", Args: cobra.MinimumNArgs(1),
		Long: `Export services: make a ServiceExport for each, and wait until its controller has taken it to the broker. Labels and
annotations are all that travels; run it again with others to change them.`,
		Example: `  clusterset export db cache -n shop
  clusterset export db -n shop --label tier=data --annotation example.com/owner=team-a`,
		ValidArgsFunction: s.completeResources("v1", "services"),
	}
	e.flags(c)
	c.Flags().StringToStringVar(&e.labels, "label", nil, "`KEY=VALUE` of an exported label, repeatable")
	c.Flags().StringToStringVar(&e.annotations, "annotation", nil, "`KEY=VALUE` of an exported annotation, repeatable")
	c.Flags().StringVar(&e.useVIP, "use-clusterset-ip", "", "`true|false`: with a clusterset IP or without, where the controller has \"vip cidr\"; its default if empty")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := errors.Join(e.check(), e.open()); err != nil {
			return err
		}
		var result error
		ctx, cancel := context.WithTimeout(c.Context(), e.timeout)
		defer cancel()
		for _, name := range args {
			result = errors.Join(result, e.export(ctx, name))
		}
		next := fmt.Sprintf("Every cluster with a namespace %[1]s resolves SERVICE.%[1]s.svc.clusterset.local.", e.namespace)
		if result != nil {
			next = ""
		}
		return errors.Join(result, e.done(nil, nil, next))
	}
	return c
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

// desired is the ServiceExport of a service.
func (e *exporting) desired(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	o.SetGroupVersionKind(mcsv1beta1.SchemeGroupVersion.WithKind("ServiceExport"))
	o.SetNamespace(e.namespace)
	o.SetName(name)
	if e.useVIP != "" {
		o.SetAnnotations(map[string]string{broker.AnnotationUseVIP: e.useVIP})
	}
	for field, values := range map[string]map[string]string{"exportedLabels": e.labels, "exportedAnnotations": e.annotations} {
		if len(values) > 0 {
			_ = unstructured.SetNestedStringMap(o.Object, values, "spec", field) // spec is a map, as made above
		}
	}
	return o
}

func (e *exporting) step(action membership.Action, name string) {
	e.report(membership.Step{
		Side: membership.OnMember, Action: action, Group: mcsv1beta1.GroupName, Kind: "ServiceExport", Namespace: e.namespace, Name: name,
	})
}

func (e *exporting) dryRun() []string {
	if e.dry == membership.DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

func (e *exporting) export(ctx context.Context, name string) error {
	r := e.client.Resource(serviceExports).Namespace(e.namespace)
	before, err := r.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("export %s: %w", name, err)
	}
	after, action := e.desired(name), membership.Created
	if e.dry != membership.DryRunClient {
		options := metav1.ApplyOptions{FieldManager: exportManager, Force: true, DryRun: e.dryRun()}
		if after, err = r.Apply(ctx, name, e.desired(name), options); err != nil {
			return fmt.Errorf("export %s: %w", name, err)
		}
	}
	if before != nil && before.GetUID() != "" {
		if action = membership.Updated; sameExport(before, after) {
			action = membership.Unchanged
		}
	}
	e.step(action, name)
	if !e.wait || e.dry != membership.DryRunNone {
		return nil
	}
	return e.awaitExported(ctx, name)
}

func sameExport(a, b *unstructured.Unstructured) bool {
	text := func(o *unstructured.Unstructured) string {
		return fmt.Sprint(o.GetAnnotations()[broker.AnnotationUseVIP], o.Object["spec"])
	}
	return text(a) == text(b)
}

// awaitExported waits until the export is on the broker, or until it is clear that it cannot be.
func (e *exporting) awaitExported(ctx context.Context, name string) error {
	var last mcsv1beta1.ServiceExport
	err := poll(ctx, func() (bool, error) {
		o, err := e.client.Resource(serviceExports).Namespace(e.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		last = mcsv1beta1.ServiceExport{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &last); err != nil {
			return false, err
		}
		valid, ready := current(&last, mcsv1beta1.ServiceExportConditionValid), current(&last, mcsv1beta1.ServiceExportConditionReady)
		if valid != nil && valid.Status == metav1.ConditionFalse {
			return false, errRefused
		}
		return valid != nil && ready != nil && valid.Status == metav1.ConditionTrue && ready.Status == metav1.ConditionTrue, nil
	})
	switch {
	case errors.Is(err, errRefused), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("export %s: %s", name, whyNot(&last))
	case err != nil:
		return fmt.Errorf("export %s: %w", name, err)
	}
	if c := current(&last, mcsv1beta1.ServiceExportConditionConflict); c != nil && c.Status == metav1.ConditionTrue {
		fmt.Fprintf(e.ErrOut, "warning: %s is exported, but its exports disagree: %s\n", name, c.Message)
	}
	return nil
}

var errRefused = errors.New("refused")

// current returns a condition that is about what the export says now, or nil.
func current(e *mcsv1beta1.ServiceExport, of mcsv1beta1.ServiceExportConditionType) *metav1.Condition {
	c := meta.FindStatusCondition(e.Status.Conditions, string(of))
	if c == nil || c.ObservedGeneration != 0 && c.ObservedGeneration < e.Generation {
		return nil
	}
	return c
}

// advice says what to do about a condition, by its reason.
var advice = map[string]string{
	"NoService":           "create the Service of that name, or check name and namespace",
	"InvalidServiceType":  "export a Service of type ClusterIP, NodePort or LoadBalancer that is no import itself",
	"NamespaceNotAllowed": "let import_namespaces of the controller name this namespace",
	"NotMember":           "run \"clusterset join\"",
	"Failed":              "run \"clusterset status\"",
	"Pending":             "see that the link to the broker is up: clusterset status",
}

// whyNot says in one line why an export has not taken effect, and what to do.
func whyNot(e *mcsv1beta1.ServiceExport) string {
	for _, of := range []mcsv1beta1.ServiceExportConditionType{
		mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionReady,
	} {
		c := current(e, of)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		text := fmt.Sprintf("%s is %s, %s: %s", c.Type, c.Status, c.Reason, strings.TrimSuffix(c.Message, "."))
		if what := advice[c.Reason]; what != "" {
			text += "; " + what
		}
		return text
	}
	return "nobody has looked at it yet: want a controller that runs (clusterset status)"
}

// poll calls done until it is, fails or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case ok, err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func newUnexport(s *session) *cobra.Command {
	e := &exporting{output: &output{session: s}}
	c := &cobra.Command{
		Use: "unexport SERVICE...", Short: "Withdraw services from the clusterset", Args: cobra.MinimumNArgs(1),
		Example:           "  clusterset unexport db -n shop",
		ValidArgsFunction: s.completeResources(mcsv1beta1.SchemeGroupVersion.String(), "serviceexports"),
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
		e.step(membership.Unchanged, name)
		return nil
	}
	if err != nil {
		return err
	}
	uid := there.GetUID()
	if e.dry != membership.DryRunClient {
		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, DryRun: e.dryRun()}
		if err := r.Delete(ctx, name, options); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	e.step(membership.Deleted, name)
	if !e.wait || e.dry != membership.DryRunNone {
		return nil
	}
	err = poll(ctx, func() (bool, error) { return e.withdrawn(ctx, name, string(uid)) })
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("this cluster still counts as exporting it after %s: want a controller that runs (clusterset status)", e.timeout)
	}
	return err
}

// withdrawn reports whether this cluster serves the import no more.
func (e *exporting) withdrawn(ctx context.Context, name, uid string) (bool, error) {
	exp, err := e.client.Resource(serviceExports).Namespace(e.namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return string(exp.GetUID()) != uid, nil
	}
	if !apierrors.IsNotFound(err) {
		return false, err
	}
	id, err := e.client.Resource(v1beta1.Resource).Get(ctx, aboutapi.ClusterIDName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil // no member exports nothing
	}
	if err != nil {
		return false, err
	}
	o, err := e.client.Resource(serviceImports).Namespace(e.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	var imp mcsv1beta1.ServiceImport
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &imp); err != nil {
		return false, err
	}
	clusterID, _, _ := unstructured.NestedString(id.Object, "spec", "value")
	return !slices.ContainsFunc(imp.Status.Clusters, func(c mcsv1beta1.ClusterStatus) bool { return c.Cluster == clusterID }), nil
}
