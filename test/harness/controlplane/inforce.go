package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An API server decides about rights, policies and quotas by what its own watches have delivered: an object that can be
// read may not count yet. A watch delivers in the order of the writes. So these functions write an object of each kind
// of which the effect can be seen, and wait for that effect: by then all that was written before is in force, and what
// was deleted is not.

var (
	subjectAccessReviews = authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews")
	configMapsResource   = corev1.SchemeGroupVersion.WithResource("configmaps")
	resourceQuotas       = corev1.SchemeGroupVersion.WithResource("resourcequotas")
)

// probeNamespace is where the objects go. Every API server has it.
const probeNamespace = metav1.NamespaceSystem

// inForce returns when what was written, or deleted, of rights and policies among the objects is in force.
func (c *ControlPlane) inForce(ctx context.Context, objects []runtime.Object) error {
	groups := make(map[string]bool)
	for _, o := range objects {
		u, err := toUnstructured(o)
		if err != nil {
			return err
		}
		groups[u.GroupVersionKind().Group] = true
	}
	if groups[rbacv1.GroupName] {
		if err := c.AwaitRights(ctx); err != nil {
			return err
		}
	}
	if groups[admissionv1.GroupName] {
		return c.AwaitPolicies(ctx)
	}
	return nil
}

// AwaitRights returns when the API server decides by the roles and bindings that there are now.
func (c *ControlPlane) AwaitRights(ctx context.Context) error {
	name := probeName()
	global, local := metav1.ObjectMeta{Name: name}, metav1.ObjectMeta{Namespace: probeNamespace, Name: name}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Name: name}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	clusterRef, ref := ref, ref
	clusterRef.Kind, ref.Kind = "ClusterRole", "Role"
	return c.withProbe(ctx, "rights", func() error {
		return errors.Join(
			c.allowed(ctx, authorizationv1.SubjectAccessReviewSpec{User: name,
				NonResourceAttributes: &authorizationv1.NonResourceAttributes{
					Path: "/" + name, Verb: "get",
				}}),
			c.allowed(ctx, authorizationv1.SubjectAccessReviewSpec{User: name,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: probeNamespace, Resource: "configmaps", Verb: "get",
				}}))
	},
		&rbacv1.ClusterRole{ObjectMeta: global, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/" + name},
			Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: global, RoleRef: clusterRef, Subjects: subjects},
		&rbacv1.Role{ObjectMeta: local, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""},
			Resources: []string{"configmaps"}, Verbs: []string{"get"}}}},
		&rbacv1.RoleBinding{ObjectMeta: local, RoleRef: ref, Subjects: subjects},
	)
}

// AwaitPolicies returns when the API server decides by the ValidatingAdmissionPolicies and the bindings that there are
// now. Objects that are parameters of a policy may still be unknown to it.
func (c *ControlPlane) AwaitPolicies(ctx context.Context) error {
	name := probeName()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				ResourceNames: []string{name},
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"configmaps"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	return c.withProbe(ctx, "policies", func() error { return c.denied(ctx, probeNamespace, name, "'"+name+"'") }, policy,
		binding)
}

// AwaitQuotas returns when the API server decides by the quotas that a namespace has now. The resourcequota-controller
// has to run.
func (c *ControlPlane) AwaitQuotas(ctx context.Context, namespace string) error {
	if err := eventually(ctx, func() error { return c.quotasCounted(ctx, namespace) }); err != nil {
		return err
	}
	name := probeName()
	none := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": resource.Quantity{}}},
	}
	return c.withProbe(ctx, "quotas", func() error { return c.denied(ctx, namespace, name, "exceeded quota: "+name) }, none)
}

// quotasCounted fails unless each quota of a namespace has counted what it limits.
func (c *ControlPlane) quotasCounted(ctx context.Context, namespace string) error {
	list, err := c.dynamic.Resource(resourceQuotas).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("namespace %s has no quota", namespace)
	}
	for i := range list.Items {
		var q corev1.ResourceQuota
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &q); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(q.Spec.Hard)) {
			want, hard := q.Spec.Hard[name], q.Status.Hard[name]
			if _, counted := q.Status.Used[name]; !counted || hard.Cmp(want) != 0 {
				return fmt.Errorf("quota %s/%s: %s is not counted, or limited to %s instead of %s", namespace, q.Name, name, &hard,
					&want)
			}
		}
	}
	return nil
}

// withProbe creates the objects, waits until seen returns nil, and deletes them.
func (c *ControlPlane) withProbe(ctx context.Context, what string, seen func() error, objects ...runtime.Object) error {
	for _, o := range objects {
		u, r, err := c.resource(o)
		if err == nil {
			err = applyOne(ctx, r, u)
		}
		if err != nil {
			return fmt.Errorf("%s: apply %s: %w", what, describe(o), err)
		}
	}
	err := eventually(ctx, seen)
	for _, o := range slices.Backward(objects) {
		u, r, e := c.resource(o)
		if e == nil {
			e = r.Delete(ctx, u.GetName(), metav1.DeleteOptions{})
		}
		err = errors.Join(err, e)
	}
	if err != nil {
		return fmt.Errorf("%s that are in force: %w", what, err)
	}
	return nil
}

// allowed fails unless the API server would allow a request.
func (c *ControlPlane) allowed(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec:     spec,
	})
	if err != nil {
		return err
	}
	answer, err := c.dynamic.Resource(subjectAccessReviews).Create(ctx, &unstructured.Unstructured{Object: content},
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if ok, _, _ := unstructured.NestedBool(answer.Object, "status", "allowed"); !ok {
		return fmt.Errorf("not allowed: %s", spec.String())
	}
	return nil
}

// denied fails unless the API server denies, with reason, the ConfigMap name.
func (c *ControlPlane) denied(ctx context.Context, namespace, name, reason string) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	u.SetName(name)
	_, err := c.dynamic.Resource(configMapsResource).Namespace(namespace).Create(ctx, u,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		return fmt.Errorf("a ConfigMap is accepted, want an error with %q", reason)
	}
	if !strings.Contains(err.Error(), reason) {
		return fmt.Errorf("a ConfigMap: %w, want an error with %q", err, reason)
	}
	return nil
}

func probeName() string { return "probe-" + strings.ToLower(rand.Text()) }
