package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin"
	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/about/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset/api/broker"
)

// property returns a ClusterProperty in the newest version that the cluster serves, or nil.
func (e *exporting) property(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	for _, version := range []schema.GroupVersionResource{v1beta1.Resource, v1alpha1.Resource} {
		o, err := e.client.Resource(version).Get(ctx, name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return o, err
		}
	}
	return nil, nil
}

// isMember reports whether the cluster is a member, and refuses one that is leaving: its controller exports nothing any more, while
// conditions may still say that it does. Who may not read it is told by the conditions alone.
func (e *exporting) isMember(ctx context.Context) (bool, error) {
	o, err := e.property(ctx, about.ClusterSetName)
	switch {
	case apierrors.IsForbidden(err):
		return true, nil
	case err != nil || o == nil:
		return false, err
	}
	if _, leaving := o.GetAnnotations()[broker.AnnotationLeaving]; leaving {
		return false, errors.New("this cluster is leaving the clusterset: run \"clusterset join\" to stay, and then export, " +
			"or \"clusterset leave\" to finish")
	}
	return true, nil
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
		valid, ready := admin.Current(&last, mcsv1beta1.ServiceExportConditionValid), admin.Current(&last, mcsv1beta1.ServiceExportConditionReady)
		if valid != nil && valid.Status == metav1.ConditionFalse {
			return false, errRefused
		}
		return valid != nil && ready != nil && valid.Status == metav1.ConditionTrue && ready.Status == metav1.ConditionTrue, nil
	})
	switch {
	case errors.Is(err, errRefused), errors.Is(err, context.DeadlineExceeded):
		return errors.New(whyNot(&last))
	case err != nil:
		return err
	}
	if c := admin.Current(&last, mcsv1beta1.ServiceExportConditionConflict); c != nil && c.Status == metav1.ConditionTrue {
		fmt.Fprintf(e.ErrOut, "warning: %s is exported, but its exports disagree: %s\n", name, c.Message)
	}
	return nil
}

var errRefused = errors.New("refused")

// whyNot says in one line why an export has not taken effect, and what to do.
func whyNot(e *mcsv1beta1.ServiceExport) string {
	for _, of := range []mcsv1beta1.ServiceExportConditionType{
		mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionReady,
	} {
		c := admin.Current(e, of)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		text := fmt.Sprintf("%s is %s, %s: %s", c.Type, c.Status, c.Reason, strings.TrimSuffix(c.Message, "."))
		if of == mcsv1beta1.ServiceExportConditionReady {
			text += "; see clusterset status" // of Valid the message itself says what to do
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

// withdrawn reports whether this cluster serves the import no more.
func (e *exporting) withdrawn(ctx context.Context, name, uid string) (bool, error) {
	exp, err := e.client.Resource(serviceExports).Namespace(e.namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return string(exp.GetUID()) != uid, nil
	}
	if !apierrors.IsNotFound(err) {
		return false, err
	}
	id, err := e.property(ctx, about.ClusterIDName)
	if apierrors.IsForbidden(err) {
		return true, nil // more is not to be seen
	}
	if err != nil || id == nil {
		return id == nil && err == nil, err // no member exports nothing
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
