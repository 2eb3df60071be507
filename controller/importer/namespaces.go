package importer

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// Reasons of the Events about a namespace.
const (
	namespaceCreated  = "NamespaceCreated"
	namespaceRejected = "NamespaceNotCreated"
)

// namespaces creates the namespaces that imports lack (docs/spec/controller.md 5.9). It neither changes nor deletes
// one: once it exists, it is the administrator's. Its watch then leads to the imports.
type namespaces struct {
	member     *member.Cluster
	policy     member.Policy
	limits     *limits
	rejections *Rejections
	events     *member.Events
	log        logging.Logger
	retry      func(types.NamespacedName, time.Duration)

	turn chan struct{} // one creation after the other, so that the limits count all of them; capacity 1
}

// Time limit of a creation; wait before a retry while another creation runs.
const (
	createTimeout = 10 * time.Second
	createRetry   = time.Second
)

// ensure creates the namespace of a service if it is missing and may be created. exporters are the clusters of the
// valid records that reach this cluster; the own one is not among them, as nothing is exported from a namespace that is
// missing.
func (n *namespaces) ensure(ctx context.Context, svc types.NamespacedName, exporters []string) error {
	if len(exporters) == 0 || !n.policy.Creates(svc.Namespace) || n.member.Namespace(svc.Namespace) != nil {
		return nil // if it terminates, its next event leads here again
	}
	// Services of other namespaces do not wait for a webhook that takes its time over this one.
	select {
	case n.turn <- struct{}{}:
	default:
		n.retry(svc, createRetry)
		return nil
	}
	defer func() { <-n.turn }()
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	if n.member.Namespace(svc.Namespace) != nil {
		return nil
	}
	cluster, why := n.admit(exporters)
	if why != "" {
		n.reject(svc, merge.Rejection{Cluster: exporters[0], Reason: merge.BeyondLimit, Detail: why})
		return nil
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:        svc.Namespace,
		Labels:      map[string]string{apibroker.LabelManagedBy: apibroker.ManagedBy},
		Annotations: map[string]string{apibroker.AnnotationCreatedFor: cluster},
	}}
	err := n.member.Client().Create(ctx, ns, wellknown.ManagerImporter)
	switch why := member.Rejection(err); {
	case apierrors.IsAlreadyExists(err):
		return nil // its event follows
	case why != "":
		n.reject(svc, merge.Rejection{Cluster: cluster, Reason: merge.NotTaken, Code: reason.NamespaceMissing,
			Detail: fmt.Sprintf("not created: %s", why)})
		return nil
	case err != nil:
		return fmt.Errorf("namespace %s: create: %w", svc.Namespace, err)
	}
	n.member.Wrote(ns)
	text := fmt.Sprintf("Created, as cluster %q exports services of it.", cluster)
	n.log.Infof("namespace %s: %s", ns.Name, text)
	n.events.Namespace(ns, corev1.EventTypeNormal, namespaceCreated, text)
	return nil
}

// admit returns the first exporter for which another namespace may be created, or the reason why there is no such
// exporter.
func (n *namespaces) admit(exporters []string) (cluster, why string) {
	created, total := n.member.CreatedNamespaces(), 0
	for _, number := range created {
		total += number
	}
	for _, id := range exporters {
		if n.limits.fits(apibroker.MaxCreatedNamespaces, created[id], total, 1) {
			return id, ""
		}
	}
	return "", fmt.Sprintf(
		"not created: %d namespaces were created, %d for this cluster: want at most %d, half of them for one cluster",
		total, created[exporters[0]], apibroker.MaxCreatedNamespaces)
}

// reject reports that the namespace of a service is not created, and tries again later: rights and limits may change.
func (n *namespaces) reject(svc types.NamespacedName, r merge.Rejection) {
	r.Object = "Namespace " + svc.Namespace
	n.rejections.Report(r)
	n.events.Namespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: svc.Namespace}}, corev1.EventTypeWarning,
		namespaceRejected,
		reason.With(fmt.Sprintf("For services of cluster %q: %s", r.Cluster, r.Detail), codeOf(r)))
	n.retry(svc, limitRetry)
}
