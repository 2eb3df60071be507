package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// Clean removes the rest of runs of [Run], also of one that may be going on. It returns the objects that it could not
// remove.
func Clean(ctx context.Context, clusters []Member, o Options) (left []string, err error) {
	o.Pods = false // no image is needed
	v := &verifier{options: o}
	for i, c := range clusters {
		m := &verifiedMember{Member: c, index: i + 1}
		if err := m.open(ctx, o); err != nil {
			return nil, fmt.Errorf("verify: %s: %w", c.Name, grantedBy(err))
		}
		v.members = append(v.members, m)
	}
	if left, err = v.removeLeftovers(ctx, true); err != nil {
		err = fmt.Errorf("verify: %w", grantedBy(err))
	}
	return left, err
}

// removeLeftovers removes the namespaces of runs that ended without doing so: expired ones or, with all, every one.
func (v *verifier) removeLeftovers(ctx context.Context, all bool) (left []string, err error) {
	err = v.forEachMember(func(m *verifiedMember) error {
		found, err := m.Core.Namespaces().List(ctx, metav1.ListOptions{LabelSelector: broker.LabelManagedBy + "=" +
			wellknown.ManagerVerify})
		if err != nil {
			return err
		}
		for i := range found.Items {
			n := &found.Items[i]
			until, err := time.Parse(time.RFC3339, n.Annotations[annotationUntil])
			if err == nil && time.Now().Before(until) && !all {
				v.progress(fmt.Sprintf(
					"%s: namespace %s belongs to a run that may go on until %s; \"clusterset verify --cleanup\" removes it nevertheless",
					m.Name, n.Name, until.Local().Format(time.TimeOnly)))
				continue
			}
			v.progress(fmt.Sprintf("%s: removing namespace %s, which an earlier run has left", m.Name, n.Name))
			v.removeOrNote(ctx, m, n, &left)
		}
		return nil
	})
	return left, err
}

// clean removes what this run has created, whether ctx has ended or not.
func (v *verifier) clean(ctx context.Context) (left []string) {
	v.progress("removing namespace " + v.namespace)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*v.options.Timeout)
	defer cancel()
	err := v.forEachMember(func(m *verifiedMember) error {
		if m.created == "" {
			return nil
		}
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v.namespace, UID: m.created}}
		v.removeOrNote(ctx, m, n, &left)
		return nil
	})
	if err != nil {
		left = append(left, fmt.Sprintf("namespace %s: %s", v.namespace, logging.Line(grantedBy(err))))
	}
	return left
}

// removeOrNote removes a namespace. If it cannot, it adds the reason to left, which several members may do at once.
func (v *verifier) removeOrNote(ctx context.Context, m *verifiedMember, n *corev1.Namespace, left *[]string) {
	if err := v.removeNamespace(ctx, m, n); err != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		*left = append(*left, fmt.Sprintf("%s: namespace %s: %s", m.Name, n.Name, logging.Line(grantedBy(err))))
	}
}

// removeNamespace deletes the exports in a namespace first, so that they are withdrawn in order, and then the
// namespace. It returns when that is gone.
func (v *verifier) removeNamespace(ctx context.Context, m *verifiedMember, n *corev1.Namespace) error {
	if err := m.deleteExports(ctx, n.Name); err != nil {
		return err
	}
	err := m.Core.Namespaces().Delete(ctx, n.Name, *metav1.NewPreconditionDeleteOptions(string(n.UID)))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	return v.await(ctx, func(ctx context.Context) error {
		found, err := m.Core.Namespaces().Get(ctx, n.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && found.UID != n.UID:
			return nil
		case err != nil:
			return err
		}
		return errors.New("it is being deleted; kubectl describe namespace shows what holds it")
	})
}

// IsNamespace reports whether a namespace was made by [Run]: a label alone may be a copy.
func IsNamespace(namespace *unstructured.Unstructured) bool {
	_, err := time.Parse(time.RFC3339, namespace.GetAnnotations()[annotationUntil])
	return err == nil && strings.HasPrefix(namespace.GetName(), namePrefix)
}
