package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/write"
)

// An exportCommand is one call of "export" or "unexport".
type exportCommand struct {
	*output
	member    *read.Cluster
	namespace string
	options   write.Options

	labels, annotations map[string]string
	useVIP              string // "true", "false" or empty
	selector            string // of Services, in place of names
	zone                string
	wait                bool
	check               bool // that a Service exists before its export is created
	timeout             time.Duration
}

func (e *exportCommand) flags(c *cobra.Command) {
	e.output = e.outputFlags(c)
	c.Flags().BoolVar(&e.wait, "wait", true, "wait until the command has taken effect")
	e.timeout = 30 * time.Second
	waits.flag(c.Flags(), &e.timeout, "timeout", "maximum `DURATION` to wait, for all services together")
}

// open does not contact the API server.
func (e *exportCommand) open() (err error) {
	e.options = e.writeOptions()
	e.member, e.namespace, err = e.namespaced()
	return err
}

// requireServices accepts names of Services as arguments.
func requireServices(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%s: no arguments: want SERVICE, the name of one or more Services", c.Name())
	}
	return nil
}

func (e *exportCommand) step(action write.Action, name, note string) {
	e.report(write.Step{
		Cluster: read.RoleMember, Action: action, Group: mcsv1beta1.GroupName, Kind: "ServiceExport",
		Namespace: e.namespace, Name: name,
		Note: note,
	})
}

// missingError returns an error if a ServiceExport was not found because its CRD or its namespace does not exist, and
// otherwise nil.
func (e *exportCommand) missingError(ctx context.Context, notFound error) error {
	if status := apierrors.APIStatus(nil); errors.As(notFound, &status) &&
		(status.Status().Details == nil || status.Status().Details.Name == "") {
		return errors.New("this cluster has no CRD ServiceExport: run \"clusterset join\" first, which installs it")
	}
	_, err := e.member.Get(ctx, read.Namespaces, "", e.namespace)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("namespace %q does not exist: want the namespace of the Service (-n)", e.namespace)
	}
	return nil // a user who may export may lack the right to read namespaces
}

// checkService returns an error if a Service does not exist. A user who may export may lack the right to list Services.
func (e *exportCommand) checkService(ctx context.Context, name string) error {
	names, err := listing{of: read.Services, namespace: e.namespace}.names(ctx, e.member)
	if err != nil || slices.Contains(names, name) {
		return nil
	}
	hints := near(name, names)
	others, err := e.member.Client.Resource(read.Services).List(ctx,
		metav1.ListOptions{FieldSelector: "metadata.name=" + name, Limit: 3})
	if err == nil { // a user may lack the right for all namespaces
		for i := range others.Items {
			namespace := others.Items[i].GetNamespace()
			hints = append(hints, fmt.Sprintf("one in namespace %s (-n %s)", namespace, namespace))
		}
	}
	return fmt.Errorf("namespace %s has no such Service%s: want an existing one, or --wait=false to export a later one",
		e.namespace, there(hints))
}
