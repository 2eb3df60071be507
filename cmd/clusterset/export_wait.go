package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/reason"
)

// property returns a ClusterProperty, or nil.
func (e *exportCommand) property(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	o, err := e.member.Get(ctx, v1beta1.Resource, "", name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return o, err
}

// isMember reports whether the cluster is a member. It returns an error for a cluster that is leaving: its controller
// no longer exports, although conditions may still say so. For a user who may not read ClusterProperties it returns
// true; the conditions show the rest.
func (e *exportCommand) isMember(ctx context.Context) (bool, error) {
	o, err := e.property(ctx, about.ClusterSetName)
	switch {
	case apierrors.IsForbidden(err):
		return true, nil
	case err != nil || o == nil:
		return false, err
	}
	if _, leaving := o.GetAnnotations()[broker.AnnotationLeaving]; leaving {
		return false, errors.New(
			"this cluster is leaving the clusterset: run \"clusterset join\" to stay and then export again, " +
				"or \"clusterset leave\" to finish")
	}
	return true, nil
}

// waitExported waits until the controller has written the export to the broker, or has rejected it.
func (e *exportCommand) waitExported(ctx context.Context, name string) error {
	var last mcsv1beta1.ServiceExport
	err := e.poll(ctx, "the controller exports "+name, func(ctx context.Context) (bool, error) {
		o, err := e.member.Get(ctx, read.ServiceExports, e.namespace, name)
		if err != nil {
			return false, err
		}
		last = mcsv1beta1.ServiceExport{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &last); err != nil {
			return false, err
		}
		valid, ready := cause.CurrentCondition(&last, mcsv1beta1.ServiceExportConditionValid),
			cause.CurrentCondition(&last, mcsv1beta1.ServiceExportConditionReady)
		if valid != nil && valid.Status == metav1.ConditionFalse {
			return false, errRejected
		}
		return valid != nil && ready != nil && valid.Status == metav1.ConditionTrue &&
			ready.Status == metav1.ConditionTrue, nil
	})
	switch {
	case errors.Is(err, errRejected), errors.Is(err, context.DeadlineExceeded):
		return errors.New(notExported(&last))
	case err != nil:
		return err
	}
	if c := cause.CurrentCondition(&last, mcsv1beta1.ServiceExportConditionConflict); c != nil &&
		c.Status == metav1.ConditionTrue {
		fmt.Fprintf(e.ErrOut, "warning: %s is exported, but conflicts with other exports: %s\n", name, c.Message)
	}
	return nil
}

var errRejected = errors.New("rejected")

// notExported returns in one line why an export has not taken effect, and the remedy.
func notExported(e *mcsv1beta1.ServiceExport) string {
	c := cause.DecidingCondition(e)
	if c == nil || c.Status == metav1.ConditionTrue {
		return "no controller has processed it yet: check that the controller of this cluster runs (clusterset status)"
	}
	text := fmt.Sprintf("%s is %s, %s: %s", c.Type, c.Status, c.Reason, reason.Phrase(c.Message))
	if c.Type == string(mcsv1beta1.ServiceExportConditionReady) {
		text += "; run \"clusterset status\"" // the message of Valid itself has the remedy
	}
	return text
}

// poll calls done until it returns true or an error, or ctx ends.
func (e *exportCommand) poll(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	if err := e.options.WaitFor(ctx, e.timeout, what, done); ctx.Err() == nil {
		return err
	}
	return ctx.Err()
}

// isWithdrawn reports whether the export with this UID no longer exists, and the ServiceImport no longer lists this
// cluster.
func (e *exportCommand) isWithdrawn(ctx context.Context, name, uid string) (bool, error) {
	exp, err := e.member.Get(ctx, read.ServiceExports, e.namespace, name)
	if err == nil {
		return string(exp.GetUID()) != uid, nil
	}
	if !apierrors.IsNotFound(err) {
		return false, err
	}
	id, err := e.property(ctx, about.ClusterIDName)
	if apierrors.IsForbidden(err) {
		return true, nil // the user may not see more
	}
	if err != nil || id == nil {
		return id == nil && err == nil, err // a cluster without an id exports nothing
	}
	o, err := e.member.Get(ctx, read.ServiceImports, e.namespace, name)
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
	return !slices.ContainsFunc(imp.Status.Clusters,
		func(c mcsv1beta1.ClusterStatus) bool { return c.Cluster == clusterID }), nil
}
