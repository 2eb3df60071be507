package write

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/wiring"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// A Writer writes to one of the API servers of an operation, and reports each step.
type Writer struct {
	*read.Cluster
	Options Options
}

// Open does not contact the API server.
func Open(role read.Role, config *rest.Config, o Options) (*Writer, error) {
	c, err := read.Open(role, config)
	return &Writer{c, o}, err
}

// Report calls the function of the options with a step.
func (c *Writer) Report(o *unstructured.Unstructured, action Action, note string) {
	c.reportDiff(o, action, note, "")
}

func (c *Writer) reportDiff(o *unstructured.Unstructured, action Action, note, diff string) {
	if c.Options.Report == nil {
		return
	}
	kind := o.GroupVersionKind()
	c.Options.Report(Step{
		Cluster: c.Role, Action: action, Group: kind.Group, Kind: kind.Kind,
		Namespace: o.GetNamespace(), Name: cmp.Or(o.GetName(), "*"), Note: note, Diff: diff,
		Content: o,
	})
}

// Apply makes an object equal to desired and returns it. An object that clusterset manages never takes over an existing
// object without the label of managed objects: apply then returns an error.
func (c *Writer) Apply(ctx context.Context, desired *unstructured.Unstructured,
	note string) (*unstructured.Unstructured, error) {
	before, err := c.Find(ctx, desired)
	if err != nil {
		return nil, err
	}
	if before != nil && read.IsManaged(desired) && !read.IsManaged(before) {
		return nil, fmt.Errorf(
			"%s: %s exists and is not managed by clusterset (it lacks the label %s=%s): want it deleted or renamed",
			c.Role, read.Describe(desired), broker.LabelManagedBy, broker.ManagedBy)
	}
	after, err := c.Send(ctx, desired, before)
	if err != nil {
		return nil, fmt.Errorf("%s: apply %s: %w", c.Role, read.Describe(desired), err)
	}
	switch {
	case before == nil:
		c.reportDiff(desired, Created, note, c.diff(nil, after))
	case isEqual(before, after):
		c.Report(desired, Unchanged, note)
	default:
		c.reportDiff(desired, Updated, note, c.diff(before, after))
	}
	return after, nil
}

// Send applies desired and returns the resulting object; in a dry run the object that would result, as far as that is
// known.
func (c *Writer) Send(ctx context.Context, desired, before *unstructured.Unstructured) (*unstructured.Unstructured,
	error) {
	if c.Options.DryRun == DryRunClient {
		if before != nil && read.Covers(before.Object, desired.Object) && keepsMemberSpec(before, desired) {
			return before, nil
		}
		return desired, nil
	}
	options := metav1.ApplyOptions{FieldManager: wellknown.ManagerJoin, Force: true, DryRun: c.Options.DryRun.Field()}
	var after *unstructured.Unstructured
	err := c.retryPolicies(ctx, func() (err error) {
		after, err = c.Resource(desired).Apply(ctx, desired.GetName(), desired, options)
		return err
	})
	if c.Options.DryRun == DryRunServer && before == nil && apierrors.IsNotFound(err) {
		// The namespace or the CRD of the object exists only in this dry run.
		return desired, nil
	}
	return after, err
}

// CreateIfMissing applies an object only if it does not exist.
func (c *Writer) CreateIfMissing(ctx context.Context, o *unstructured.Unstructured) error {
	existing, err := c.Find(ctx, o)
	if err != nil {
		return err
	}
	if existing == nil {
		_, err = c.Apply(ctx, o, "")
		return err
	}
	if existing.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s: %s is being deleted: run this again when it is gone", c.Role, read.Describe(o))
	}
	c.Report(o, Unchanged, "")
	return nil
}

// Remove deletes an object if it exists and, where o is a managed object, is managed too. It reports whether it deleted
// one.
func (c *Writer) Remove(ctx context.Context, o *unstructured.Unstructured) (bool, error) {
	found, err := c.Find(ctx, o)
	if err != nil {
		return false, err
	}
	if found == nil {
		c.Report(o, Unchanged, "not found")
		return false, nil
	}
	if read.IsManaged(o) && !read.IsManaged(found) {
		c.Report(o, Unchanged, "not managed by clusterset")
		return false, nil
	}
	return true, c.Delete(ctx, found)
}

// Delete deletes exactly this object, by its UID. An object in a missing namespace cannot be deleted; it stays, and is
// reported.
func (c *Writer) Delete(ctx context.Context, o *unstructured.Unstructured) error {
	err := c.TryDelete(ctx, o)
	if errors.Is(err, ErrNoNamespace) {
		c.Report(o, Unchanged, ErrNoNamespace.Error())
		return nil
	}
	return err
}

// TryDelete is delete with the error [ErrNoNamespace].
func (c *Writer) TryDelete(ctx context.Context, o *unstructured.Unstructured) error {
	if c.Options.DryRun == DryRunClient {
		c.Report(o, Deleted, "")
		return nil
	}
	uid := o.GetUID()
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, DryRun: c.Options.DryRun.Field()}
	err := c.retryPolicies(ctx, func() error { return c.Resource(o).Delete(ctx, o.GetName(), options) })
	if apierrors.IsNotFound(err) && o.GetNamespace() != "" && c.Options.DryRun == DryRunNone {
		if left, findErr := c.Find(ctx, o); findErr != nil || left != nil && left.GetUID() == uid {
			return cmp.Or(findErr, fmt.Errorf("%s: delete %s: %w", c.Role, read.Describe(o), ErrNoNamespace))
		}
	}
	// A conflict means that the object is gone and another one with its name exists.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("%s: delete %s: %w", c.Role, read.Describe(o), err)
	}
	c.Report(o, Deleted, "")
	return nil
}

// ErrNoNamespace is about an object that is left of an ended namespace. The API server does not delete it while an
// admission policy covers its kind, since it looks for the namespace first.
var ErrNoNamespace = errors.New("its namespace does not exist, and an admission policy is about objects of this kind")

// DeleteAll deletes all objects of a kind in a namespace, with one request.
func (c *Writer) DeleteAll(ctx context.Context, of *unstructured.Unstructured) error {
	plural, _ := meta.UnsafeGuessKindToResource(of.GroupVersionKind())
	all, err := c.ListObjects(ctx, plural, of.GetNamespace(), "")
	if err != nil || len(all) == 0 {
		return err
	}
	if c.Options.DryRun != DryRunClient {
		options := metav1.DeleteOptions{DryRun: c.Options.DryRun.Field()}
		if err := c.Resource(all[0]).DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("%s: delete all %s: %w", c.Role, read.Describe(of), err)
		}
	}
	c.Report(of, Deleted, strconv.Itoa(len(all)))
	return nil
}

// retryPolicies repeats a write that is denied only because the API server cannot read the parameters of an admission
// policy yet. The API server notices a new parameter kind within half a minute; after its own start it has to notice
// all of them.
func (c *Writer) retryPolicies(ctx context.Context, write func() error) error {
	var last error
	err := c.Options.WaitUntil(ctx, "the API server evaluates its admission policies",
		func(context.Context) (bool, error) {
			last = write()
			return last == nil || !strings.Contains(last.Error(), "failed to configure "), nil
		})
	if last != nil {
		return last
	}
	return err
}

// diff returns what changes from one state of an object to the other, without what the server sets, and without the
// content of Secrets.
func (c *Writer) diff(before, after *unstructured.Unstructured) string {
	if !c.Options.Diff {
		return ""
	}
	text := func(o *unstructured.Unstructured) string {
		if o == nil {
			return ""
		}
		content := content(o)
		if o.GetKind() == "Secret" {
			content["data"] = "(hidden)"
		}
		for _, field := range []string{"uid", "creationTimestamp", "generation", "selfLink"} {
			unstructured.RemoveNestedField(content, "metadata", field)
		}
		text, err := yaml.Marshal(content)
		if err != nil {
			return err.Error() + "\n" // what the API server sent can be written
		}
		return string(text)
	}
	e := wiring.Edit{Before: before, After: after, Old: text(before), New: text(after)}
	return e.Diff()
}

// isEqual compares two states of one object without the fields that the server sets on every write.
func isEqual(a, b *unstructured.Unstructured) bool {
	return reflect.DeepEqual(content(a), content(b))
}

// content returns a copy of an object without the fields that the server sets on every write.
func content(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	delete(o.Object, "status")
	return o.Object
}

// keepsMemberSpec reports whether a Member keeps its whole spec. A Member loses fields when its VIP CIDRs or networks
// are taken away, which covers does not see.
func keepsMemberSpec(before, desired *unstructured.Unstructured) bool {
	return before.GetKind() != "Member" || reflect.DeepEqual(before.Object["spec"], desired.Object["spec"])
}
