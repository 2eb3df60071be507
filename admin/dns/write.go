package dns

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/wiring"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// changedMeanwhile reports whether a write failed because the object is not the one that was read.
func changedMeanwhile(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// write makes an edit. It fails if the object is not the one that the edit was made from.
func (w *wirer) write(ctx context.Context, e *wiring.Edit) error {
	o, dry := e.Object(), w.Options.DryRun.Field()
	r := w.Resource(o)
	action, send := write.Updated, func() error {
		_, err := r.Update(ctx, e.After, metav1.UpdateOptions{FieldManager: wellknown.ManagerDNS, DryRun: dry})
		return err
	}
	switch {
	case e.Before == nil:
		action, send = write.Created, func() error {
			_, err := r.Create(ctx, e.After, metav1.CreateOptions{FieldManager: wellknown.ManagerDNS, DryRun: dry})
			return err
		}
	case e.After == nil:
		uid, version := o.GetUID(), o.GetResourceVersion()
		action, send = write.Deleted, func() error {
			return r.Delete(ctx, o.GetName(), metav1.DeleteOptions{DryRun: dry,
				Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
		}
	}
	if w.Options.DryRun != write.DryRunClient {
		if err := send(); err != nil {
			return fmt.Errorf("%s: write %s: %w", w.Role, read.Describe(o), err)
		}
	}
	w.Report(o, action, e.Field)
	return nil
}

// restartedAt is the annotation that "kubectl rollout restart" sets.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

// restart starts the Pods of a workload anew, "deployment/coredns", if the options allow it. If not it returns what to
// do.
func (w *wirer) restart(ctx context.Context, workload string) (left []string, err error) {
	if !w.o.Restart {
		return []string{fmt.Sprintf(
			"%s reads the change only when its Pods are started anew: want --restart, or kubectl rollout restart -n %s %s",
			workload, w.o.Namespace, workload)}, nil
	}
	kind, name, _ := strings.Cut(workload, "/")
	o := read.Object(appsv1.SchemeGroupVersion.WithKind(map[string]string{"deployment": "Deployment",
		"daemonset": "DaemonSet"}[kind]), w.o.Namespace, name)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{restartedAt: time.Now().UTC().Format(time.RFC3339)},
	}}}})
	if err != nil {
		return nil, err
	}
	if w.Options.DryRun != write.DryRunClient {
		_, err = w.Resource(o).Patch(ctx, name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: wellknown.ManagerDNS, DryRun: w.Options.DryRun.Field()})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: restart %s: %w", w.Role, read.Describe(o), err)
	}
	w.Report(o, write.Updated, "its Pods are started anew")
	return nil, nil
}
