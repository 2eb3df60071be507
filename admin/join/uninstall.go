package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	"github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/verify"
	"github.com/clusterset-dns/clusterset/admin/wiring"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/deploy"
)

// UninstallOptions are the options of [Uninstall] and [UninstallBroker].
type UninstallOptions struct {
	write.Options
	Namespace     string // of the controller in the member; [UninstallBroker] does not use it
	DeleteExports bool   // also delete the ServiceExports, which users have written
	DNS           dns.Options
}

// UninstallResult is the result of [Uninstall] and [UninstallBroker].
type UninstallResult struct {
	Left     []string `json:"left,omitempty"`     // what is still there, and why
	Warnings []string `json:"warnings,omitempty"` // about the cluster's DNS server, and namespaces that stay
}

// Uninstall removes everything of the project from a cluster that is not a member (docs/spec/operations.md 6). Objects
// that others wrote or may use stay and are listed. After an interruption, a second call does the rest.
func Uninstall(ctx context.Context, onMember *rest.Config, o UninstallOptions) (UninstallResult, error) {
	u, err := newUninstaller(read.RoleMember, onMember, o)
	if err != nil {
		return UninstallResult{}, err
	}
	for _, step := range []func(context.Context) error{
		u.checkLeft, u.undoDNS, u.removeID, u.removeRegion, u.removePolicies, u.removeNamespace, u.removeVerify,
		u.nameCreated, u.removeRights, u.removeExports, u.removeImports, u.removeMemberCRDs,
	} {
		if err := step(ctx); err != nil {
			return u.result, fmt.Errorf("uninstall: %w", err)
		}
	}
	return u.result, nil
}

// UninstallBroker removes everything of the project from a broker without members.
func UninstallBroker(ctx context.Context, onBroker *rest.Config, o UninstallOptions) (UninstallResult, error) {
	u, err := newUninstaller(read.RoleBroker, onBroker, o)
	if err != nil {
		return UninstallResult{}, err
	}
	for _, step := range []func(context.Context) error{u.checkNoMembers, u.removeMarks, u.removeBrokerSet,
		u.removeBrokerCRDs} {
		if err := step(ctx); err != nil {
			return u.result, fmt.Errorf("uninstall: %w", err)
		}
	}
	return u.result, nil
}

// An uninstaller is one call of [Uninstall] or [UninstallBroker]. Its steps run in the order in which those name them.
type uninstaller struct {
	*write.Writer
	config  *rest.Config
	options UninstallOptions
	local   read.Local // by checkLeft
	result  UninstallResult

	// a policy of others, or of a broker, keeps objects of namespaces that do not exist
	denied      bool
	wouldDelete map[schema.GroupKind]int // by a dry run
}

func newUninstaller(role read.Role, config *rest.Config, o UninstallOptions) (*uninstaller, error) {
	c, err := write.Open(role, config, o.Options)
	if err != nil {
		return nil, fmt.Errorf("uninstall: %w", err)
	}
	return &uninstaller{Writer: c, config: config, options: o, wouldDelete: map[schema.GroupKind]int{}}, nil
}

func (u *uninstaller) addLeft(format string, args ...any) {
	u.result.Left = append(u.result.Left, fmt.Sprintf(format, args...))
}

// checkLeft returns an error for a member: [Leave] takes the cluster out of the clusterset, which needs the broker.
func (u *uninstaller) checkLeft(ctx context.Context) (err error) {
	if u.local, err = u.Local(ctx); err != nil {
		return err
	}
	if u.local.Membership != nil {
		return fmt.Errorf("this cluster is a member of clusterset %q: run \"clusterset leave\" first", u.local.ClusterSet())
	}
	credential, err := u.Secret(ctx, u.options.Namespace)
	if credential != nil { // leave deletes it: ClusterProperty clusterset.k8s.io may have been deleted by hand
		return fmt.Errorf("this cluster has not left: Secret %s/%s exists: run \"clusterset leave\" first",
			u.options.Namespace, credential.Name)
	}
	return err
}

// undoDNS comes first: a DNS server must not forward to one that is gone.
func (u *uninstaller) undoDNS(ctx context.Context) error {
	o := u.options.DNS
	o.Options = u.options.Options
	state, err := dns.Undo(ctx, u.config, o)
	u.result.Left, u.result.Warnings = append(u.result.Left, state.Problems...), state.Warnings
	if err != nil {
		return err
	}
	if o.DryRun == write.DryRunNone {
		if state, err = dns.Diff(ctx, u.config, o); err != nil {
			return err
		}
	}
	for i := range state.Resolvers {
		r := &state.Resolvers[i]
		if r.Undo == nil && !r.Edited && (r.State == wiring.Wired || r.State == wiring.Taken) {
			u.addLeft("%s forwards or serves %s by a configuration that clusterset has not written: %s", r.Name(), state.Zone,
				cmp.Or(r.Reason, strings.Join(r.Evidence, ", ")))
		}
	}
	return nil
}

// removeID deletes the cluster id if a join has written it. The policy that keeps it allows that a moment after a
// leave.
func (u *uninstaller) removeID(ctx context.Context) error {
	if u.local.ID == nil {
		return nil
	}
	if !isAppliedBy(u.local.ID, wellknown.ManagerJoin) {
		u.addLeft("%s was not written by clusterset", read.Describe(u.local.ID))
		return nil
	}
	var denied error
	err := u.options.WaitUntil(ctx, "the API server lets the cluster id go", func(ctx context.Context) (bool, error) {
		if _, denied = u.Remove(ctx, u.local.Property(about.ClusterIDName, "")); apierrors.IsInvalid(denied) {
			return false, nil
		}
		return denied == nil, denied
	})
	if denied != nil {
		return denied
	}
	return err
}

// removeRegion deletes the region if a join has written it.
func (u *uninstaller) removeRegion(ctx context.Context) error {
	region := u.local.Region
	if region == nil || !isAppliedBy(region, wellknown.ManagerJoin) {
		return nil // it describes the cluster for all readers: no need to list it
	}
	_, err := u.Remove(ctx, region)
	return err
}

func (u *uninstaller) removePolicies(ctx context.Context) error {
	return u.removeAll(ctx, read.Parse(deploy.Member))
}

// removeNamespace deletes the namespace of the controller with all that is in it.
func (u *uninstaller) removeNamespace(ctx context.Context) error {
	namespace := read.Object(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "", u.options.Namespace)
	found, err := u.Find(ctx, namespace)
	if err != nil {
		return err
	}
	if found != nil && u.options.Namespace != wellknown.ControllerNamespace && !isAppliedBy(found, wellknown.ManagerJoin) {
		u.addLeft("%s was not written by clusterset", read.Describe(namespace))
		return nil
	}
	return u.removeAndWait(ctx, namespace)
}

// Remove is that of the Writer. It counts what a dry run would delete.
func (u *uninstaller) Remove(ctx context.Context, o *unstructured.Unstructured) (bool, error) {
	removed, err := u.Writer.Remove(ctx, o)
	if removed && err == nil && u.options.DryRun != write.DryRunNone {
		u.wouldDelete[o.GroupVersionKind().GroupKind()]++
	}
	return removed, err
}

// removeAndWait deletes an object and waits until it is gone.
func (u *uninstaller) removeAndWait(ctx context.Context, o *unstructured.Unstructured) error {
	removed, err := u.Remove(ctx, o)
	if err != nil || !removed || u.options.DryRun != write.DryRunNone {
		return err
	}
	return u.options.WaitUntil(ctx, read.Describe(o)+" is gone", func(ctx context.Context) (bool, error) {
		found, err := u.Find(ctx, o)
		return err == nil && found == nil, err
	})
}

// removeVerify deletes the namespaces of runs of [verify.Run] that were killed. No run can go on in a cluster that
// is not a member.
func (u *uninstaller) removeVerify(ctx context.Context) error {
	found, err := u.ListObjects(ctx, read.Namespaces, "", broker.LabelManagedBy+"="+wellknown.ManagerVerify)
	for _, o := range found {
		switch {
		case err != nil:
		case verify.IsNamespace(o):
			err = u.removeAndWait(ctx, o)
		default:
			u.addLeft("%s has the label of clusterset verify, which did not make it", read.Describe(o))
		}
	}
	return err
}

// nameCreated warns of namespaces that the controller has created for imports, and that stay: others may use them since
// (docs/spec/controller.md 5.9).
func (u *uninstaller) nameCreated(ctx context.Context) error {
	found, err := u.ListObjects(ctx, read.Namespaces, "", broker.LabelManagedBy+"="+broker.ManagedBy)
	for _, o := range found {
		if o.GetAnnotations()[broker.AnnotationCreatedFor] == "" {
			continue // of a member, where the cluster is the broker, too
		}
		u.result.Warnings = append(u.result.Warnings, fmt.Sprintf(
			"%s was created for imports, and stays: delete it if nothing else is in it, or remove its label %s",
			read.Describe(o), broker.LabelManagedBy))
	}
	return err
}

// removeRights deletes what the manifests have outside of the namespace.
func (u *uninstaller) removeRights(ctx context.Context) error {
	known := map[string]bool{} // two manifests have ClusterRoles in common
	for _, manifest := range [][]byte{deploy.ControllerRBAC, deploy.DNSRBAC, deploy.AllInOneRBAC} {
		objects := slices.DeleteFunc(read.Parse(manifest), func(o *unstructured.Unstructured) bool {
			name := read.Describe(o)
			again := known[name]
			known[name] = true
			return o.GetNamespace() != "" || again
		})
		if err := u.removeAll(ctx, objects); err != nil {
			return err
		}
	}
	return nil
}

// removeAll deletes objects, the last one first: a binding before its policy or role.
func (u *uninstaller) removeAll(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range slices.Backward(objects) {
		if _, err := u.Remove(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (u *uninstaller) removeExports(ctx context.Context) error {
	if !u.options.DeleteExports {
		return nil
	}
	exports, err := u.ListObjects(ctx, read.ServiceExports, "", "")
	for _, o := range exports {
		if err == nil {
			err = u.deleteLast(ctx, o)
		}
	}
	return err
}

// removeImports deletes what the controller has imported since "leave" looked, while that ended, and what "leave" could
// not delete.
func (u *uninstaller) removeImports(ctx context.Context) error {
	_, err := removeImports(ctx, u.Cluster, u.deleteLast) // what others have written with our label, "leave" has named
	return err
}

// deleteLast deletes an object after all of our policies. The API server follows their removal a moment later; where
// policies of others, or those of a broker, keep the object, it is left, and no later one waits.
func (u *uninstaller) deleteLast(ctx context.Context, o *unstructured.Unstructured) error {
	var err error
	what := "the API server lets " + read.Describe(o) + " go"
	waited := u.options.WaitUntil(ctx, what, func(ctx context.Context) (bool, error) {
		err = u.TryDelete(ctx, o)
		return !errors.Is(err, write.ErrNoNamespace) || u.denied, nil
	})
	if ctx.Err() != nil {
		return waited
	}
	if errors.Is(err, write.ErrNoNamespace) {
		u.denied = true
		u.addLeft("%s: %v", read.Describe(o), write.ErrNoNamespace)
		return nil
	}
	if err == nil && u.options.DryRun != write.DryRunNone {
		u.wouldDelete[o.GroupVersionKind().GroupKind()]++
	}
	return err
}

// removeMemberCRDs leaves the CRD ServiceImport in a cluster that is also a broker, where it has the imports of all
// members.
func (u *uninstaller) removeMemberCRDs(ctx context.Context) error {
	crds := read.MemberCRDs()
	hub, err := u.Find(ctx, read.BrokerCRDs()[0]) // that of Member
	if err != nil {
		return err
	}
	if hub != nil {
		imports := read.ServiceImports.GroupResource().String()
		crds = slices.DeleteFunc(crds, func(d *unstructured.Unstructured) bool { return d.GetName() == imports })
		u.addLeft("CustomResourceDefinition %s is that of a broker, too", imports)
	}
	return u.removeCRDs(ctx, crds)
}

// removeCRDs deletes the CRDs that the project has installed and that have no objects: others may use the rest.
func (u *uninstaller) removeCRDs(ctx context.Context, crds []*unstructured.Unstructured) error {
	for _, d := range slices.Backward(crds) {
		existing, err := u.Find(ctx, d)
		if err != nil {
			return err
		}
		if existing == nil {
			u.Report(d, write.Unchanged, "not found")
			continue
		}
		if !isAppliedBy(existing, wellknown.ManagerJoin) {
			u.addLeft("%s was not installed by clusterset", read.Describe(d))
			continue
		}
		n, err := u.count(ctx, existing)
		if err != nil {
			return err
		}
		if n > 0 {
			hint := ""
			if d.GetName() == read.ServiceExports.GroupResource().String() && !u.options.DeleteExports {
				hint = "; --delete-exports deletes them"
			}
			u.addLeft("%s has objects, %d of them%s", read.Describe(d), n, hint)
			continue
		}
		if err := u.removeAndWait(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// count returns how many objects of a CRD exist.
func (u *uninstaller) count(ctx context.Context, definition *unstructured.Unstructured) (int, error) {
	resource := schema.GroupResource{Group: read.StringAt(definition, "spec", "group"),
		Resource: read.StringAt(definition, "spec", "names", "plural")}
	served := read.ServedVersions(definition) // each has all objects
	if len(served) == 0 {
		return 0, nil
	}
	objects, err := u.ListObjects(ctx, resource.WithVersion(served[0]), "", "")
	kind := schema.GroupKind{Group: resource.Group, Kind: read.StringAt(definition, "spec", "names", "kind")}
	return len(objects) - u.wouldDelete[kind], err
}

// isAppliedBy reports whether a field manager has applied the object.
func isAppliedBy(o *unstructured.Unstructured, manager string) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == manager && m.Operation == metav1.ManagedFieldsOperationApply
	})
}

func (u *uninstaller) checkNoMembers(ctx context.Context) error {
	members, err := u.ListObjects(ctx, v1alpha1.Members, "", "")
	if err == nil && len(members) > 0 {
		err = fmt.Errorf(
			"the broker has members (%d, such as %s): run \"clusterset leave\" in each of them, or \"clusterset broker remove\"",
			len(members), members[0].GetName())
	}
	return err
}

// removeMarks deletes the namespaces that say of members that they were removed.
func (u *uninstaller) removeMarks(ctx context.Context) error {
	all, err := u.ListObjects(ctx, read.Namespaces, "", broker.LabelClusterID)
	if err != nil {
		return err
	}
	for _, o := range all {
		if !read.IsManaged(o) {
			continue
		}
		if err := u.removeAndWait(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (u *uninstaller) removeBrokerSet(ctx context.Context) error {
	return u.removeAll(ctx, read.Parse(deploy.Broker))
}

// removeBrokerCRDs leaves the CRD ServiceImport where other programs use it.
func (u *uninstaller) removeBrokerCRDs(ctx context.Context) error {
	crds := read.BrokerCRDs()
	imports := read.Parse(mcscrd.ServiceImportCRD)[0]
	existing, err := u.Find(ctx, imports)
	if err != nil {
		return err
	}
	if existing != nil && isAppliedBy(existing, wellknown.ManagerJoin) {
		crds = append(crds, imports)
	}
	return u.removeCRDs(ctx, crds)
}
