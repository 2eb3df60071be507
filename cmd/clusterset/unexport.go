package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/broker"
)

func newUnexport(f *factory) *cobra.Command {
	e := &exportCommand{output: &output{factory: f}}
	c := &cobra.Command{
		Use: "unexport SERVICE...", Short: "Stop exporting services", Args: requireServices,
		Long: `Stop exporting services: delete their ServiceExports, and wait until this cluster is no longer listed as an exporting
cluster.`,
		Example:           `  clusterset unexport db -n shop --context east`,
		ValidArgsFunction: f.completeResources(read.ServiceExports, ""),
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
		return errors.Join(result, e.finish(nil, nil, ""))
	}
	return c
}

func (e *exportCommand) unexport(ctx context.Context, name string) error {
	existing, err := e.member.Get(ctx, read.ServiceExports, e.namespace, name)
	if apierrors.IsNotFound(err) {
		if err := e.missingError(ctx, err); err != nil {
			return err
		}
		// A hint is not worth an error.
		others, _ := listing{of: read.ServiceExports, namespace: e.namespace}.hints(ctx, e.member)
		e.step(write.Unchanged, name, "not found"+there(near(name, others)))
		return nil
	}
	if err != nil {
		return err
	}
	if isOfRule(existing) {
		return fmt.Errorf("the rule of namespace %s (annotation %s) exports it: give the Service the annotation %s=false",
			e.namespace, broker.AnnotationExportSelector, broker.AnnotationExport)
	}
	uid, served := existing.GetUID(), existing.GroupVersionKind().GroupVersion()
	if e.options.DryRun != write.DryRunClient {
		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, DryRun: e.options.DryRun.Field()}
		r := e.member.Client.Resource(served.WithResource(read.ServiceExports.Resource)).Namespace(e.namespace)
		if err := r.Delete(ctx, name, options); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	e.step(write.Deleted, name, "")
	if !e.wait || e.options.DryRun != write.DryRunNone {
		return nil
	}
	err = e.poll(ctx, "the controller withdraws "+name, func(ctx context.Context) (bool, error) {
		return e.isWithdrawn(ctx, name, string(uid))
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf(
			"this cluster is still listed as exporting it after %s: check that the controller of this cluster runs (clusterset status)", e.timeout)
	}
	return err
}
