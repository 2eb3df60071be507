package join

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/deploy"
)

// An installer installs components in a member (docs/spec/install.md 2): [installer.prepareObjects] decides, the other
// methods write and wait.
type installer struct {
	member  *write.Writer
	config  *rest.Config // of the member
	options Options
	mode    deploy.Mode // empty: nothing
	service string      // of the DNS server

	values  Values                       // of flags and of an earlier join by readDeployed, all by prepare
	foreign bool                         // by readDeployed: every Deployment exists and was installed otherwise
	objects []*unstructured.Unstructured // by prepare
}

func newInstaller(member *write.Writer, config *rest.Config, o Options) *installer {
	i := &installer{member: member, config: config, options: o, service: "clusterset-dns"}
	has := func(c Component) bool { return slices.Contains(o.Components, c) }
	switch {
	case has(ComponentAllInOne):
		i.mode, i.service = deploy.AllInOne, "clusterset"
	case has(ComponentController) && has(ComponentDNS):
		i.mode = deploy.Separate
	case has(ComponentController):
		i.mode = deploy.OnlyController
	case has(ComponentDNS):
		i.mode = deploy.OnlyDNS
	}
	return i
}

func (i *installer) hasDNS() bool        { return i.mode != "" && i.mode != deploy.OnlyController }
func (i *installer) hasController() bool { return i.mode != "" && i.mode != deploy.OnlyDNS }

// annotationValues holds, on each Deployment of a join, the values that it was made with: a join without a flag keeps
// them.
const annotationValues = "clusterset-dns.io/values"

// errNoImage has the lines that make an image.
var errNoImage = errors.New(`no image: want --image, or --components=none. To make one, in the source of clusterset:
  docker build --build-arg VERSION=$(git describe --tags --always --dirty) -t REGISTRY/clusterset:TAG .
  docker push REGISTRY/clusterset:TAG   # or: kind load docker-image REGISTRY/clusterset:TAG --name CLUSTER`)

// prepareObjects decides the installation, with these values, and writes nothing.
func (i *installer) prepareObjects(ctx context.Context, values Values) error {
	if slices.Contains(i.options.Components, ComponentWiring) {
		if err := i.options.DNS.Check(); err != nil {
			return err
		}
	}
	if i.mode == "" {
		return nil
	}
	i.values = values
	switch {
	case i.values.Image == "" && i.foreign:
		i.values.Image = "none" // no object of it is written
	case i.values.Image == "":
		return errNoImage
	case !isImage(i.values.Image):
		return fmt.Errorf("image %q: want REPOSITORY:TAG, without blanks and quotes", i.values.Image)
	}
	openShift, err := i.member.Find(ctx, read.Object(read.OpenShiftDNS, "", "default"))
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	i.values.OpenShift = openShift != nil
	i.objects, err = i.renderObjects()
	return err
}

// readDeployed reads the values of an earlier join.
func (i *installer) readDeployed(ctx context.Context) error {
	i.values, i.foreign = i.options.Values, true
	if i.mode == "" {
		return nil
	}
	text, err := deploy.Render(deploy.Options{Mode: i.mode, Namespace: i.options.Namespace})
	if err != nil {
		return err
	}
	for _, d := range deployments(read.Parse(text)) {
		existing, err := i.member.Find(ctx, d)
		if err != nil {
			return err
		}
		if existing == nil || isInstalled(existing) {
			i.foreign = false
		}
		if existing == nil || !isInstalled(existing) {
			continue
		}
		var older Values
		if err := json.Unmarshal([]byte(existing.GetAnnotations()[annotationValues]), &older); err == nil {
			i.values = i.values.completedBy(older)
		}
	}
	return nil
}

// renderObjects returns the objects of the installation.
func (i *installer) renderObjects() ([]*unstructured.Unstructured, error) {
	written, err := json.Marshal(i.values)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	if err := json.Unmarshal(written, &values); err != nil {
		return nil, err
	}
	text, err := deploy.Render(deploy.Options{Mode: i.mode, Namespace: i.options.Namespace,
		ManagedBy: wellknown.ManagerJoin, Values: values})
	if err != nil {
		return nil, err
	}
	objects := read.Stamped(read.Parse(text))
	for _, d := range deployments(objects) {
		annotations := maps.Clone(d.GetAnnotations())
		annotations[annotationValues] = string(written)
		d.SetAnnotations(annotations)
	}
	return objects, nil
}

func deployments(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects),
		func(o *unstructured.Unstructured) bool { return o.GetKind() != "Deployment" })
}

// isInstalled reports whether a join has written an object of an installation.
func isInstalled(o metav1.Object) bool {
	return o.GetLabels()[broker.LabelManagedBy] == wellknown.ManagerJoin
}

// writeObjects applies the objects, rights first. Objects of another installation, such as by Helm, stay unchanged.
func (i *installer) writeObjects(ctx context.Context) error {
	for _, o := range i.objects {
		existing, err := i.member.Find(ctx, o)
		if err != nil {
			return err
		}
		if existing != nil && !isInstalled(existing) {
			i.member.Report(o, write.Unchanged, "installed by "+cmp.Or(existing.GetLabels()[broker.LabelManagedBy],
				"others")+", not by join")
			continue
		}
		if err := i.member.ApplyNewer(ctx, []*unstructured.Unstructured{o}); err != nil {
			return err
		}
	}
	return nil
}

// awaitRollout waits until the written Deployments run only new Pods: old Pods must not answer later steps.
func (i *installer) awaitRollout(ctx context.Context) error {
	o := i.options
	if !o.Wait || o.DryRun != write.DryRunNone {
		return nil
	}
	for _, d := range deployments(i.objects) {
		err := o.WaitFor(ctx, o.Timeout, read.Describe(d)+" runs new Pods only", func(ctx context.Context) (bool, error) {
			existing, err := i.member.Find(ctx, d)
			return existing != nil && (!isInstalled(existing) || hasRolledOut(existing)), err
		})
		if err != nil {
			return i.withFaults(ctx, err)
		}
	}
	return nil
}

// hasRolledOut reports what "kubectl rollout status" waits for: all Pods of a Deployment are of its template, and
// available.
func hasRolledOut(deployment *unstructured.Unstructured) bool {
	number := func(fields ...string) int64 {
		n, _, _ := unstructured.NestedInt64(deployment.Object, fields...) // absent is 0
		return n
	}
	want := number("spec", "replicas")
	return number("status", "observedGeneration") >= deployment.GetGeneration() &&
		number("status", "updatedReplicas") >= want &&
		number("status", "replicas") == number("status", "updatedReplicas") && number("status", "availableReplicas") >= want
}

// awaitController waits until a controller renews the heartbeat of the member. Clocks of two machines may differ, so it
// waits for a change.
func (i *installer) awaitController(ctx context.Context, hub *read.Cluster, namespace string) error {
	o := i.options
	if !i.hasController() || !o.Wait || o.DryRun != write.DryRunNone {
		return nil
	}
	first, err := hub.Heartbeat(ctx, namespace)
	if err != nil {
		return err
	}
	if renewsSeldom(first, o.Now()) {
		return nil
	}
	err = o.WaitFor(ctx, o.Timeout, "the controller of the cluster renews its heartbeat",
		func(ctx context.Context) (bool, error) {
			now, err := hub.Heartbeat(ctx, namespace)
			return now != nil && (first == nil || !now.RenewTime.Equal(first.RenewTime)), err
		})
	return i.withFaults(ctx, err)
}

// renewsSeldom reports whether a heartbeat is current and that of a controller with "lease 0": the next one may be
// minutes away.
func renewsSeldom(heartbeat *coordinationv1.LeaseSpec, now time.Time) bool {
	return heartbeat != nil && broker.HeartbeatTTL(heartbeat, 0) == broker.MaxHeartbeatTTL &&
		now.Sub(heartbeat.RenewTime.Time) < broker.MaxHeartbeatTTL
}

// withFaults completes the error of a wait: with the faults of Deployments and Pods that do not run, and where to look.
func (i *installer) withFaults(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	for _, d := range deployments(i.objects) {
		for _, fault := range i.faults(ctx, d) {
			err = fmt.Errorf("%w; %s", err, fault)
		}
	}
	see := "see: kubectl get pods -n " + i.options.Namespace
	if !i.foreign {
		see = fmt.Sprintf("is the image %s right? %s", i.values.Image, see)
	}
	return fmt.Errorf("%w; %s", err, see)
}

// faults returns why a Deployment lacks Pods, and why the first Pod that is not ready is not. It leaves out failed
// reads: the wait has an error already.
func (i *installer) faults(ctx context.Context, d *unstructured.Unstructured) (all []string) {
	kind := d.GroupVersionKind()
	deployment, err := read.As[appsv1.Deployment](ctx, i.member.Cluster, kind, d.GetNamespace(), d.GetName())
	if err != nil || deployment == nil {
		return nil
	}
	for _, c := range deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue ||
			c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			all = append(all, fmt.Sprintf("%s, %s: %s", read.Describe(d), c.Reason, c.Message))
		}
	}
	selector := metav1.FormatLabelSelector(deployment.Spec.Selector)
	found, err := read.List[corev1.Pod](ctx, i.member.Cluster, read.Pods, d.GetNamespace(), selector)
	if err != nil {
		return all
	}
	for _, p := range found {
		if !read.PodReady(&p) {
			return append(all, read.PodState(&p))
		}
	}
	return all
}

// wireDNS has the cluster's DNS server forward the zone, and waits until the DNS server of the clusterset is ready.
func (i *installer) wireDNS(ctx context.Context) (state *dns.State, warning string, err error) {
	o := i.options
	d := o.DNS
	d.Options, d.Wait, d.Timeout = o.Options, o.Wait, o.Timeout
	d.Service = types.NamespacedName{Namespace: o.Namespace, Name: i.service}
	wired := slices.Contains(o.Components, ComponentWiring)
	if !wired && !i.hasDNS() {
		return nil, "", nil
	}
	server, err := dns.ReadServer(ctx, i.member.Cluster, d.Service)
	if err != nil {
		return nil, "", err
	}
	if o.DryRun != write.DryRunNone {
		if wired && len(server.Addresses) == 0 {
			return nil, "what is to be written for the cluster's DNS server is not known yet: Service " + server.Service +
				" does not exist", nil
		}
	} else if o.Wait && i.hasDNS() {
		err := o.WaitFor(ctx, o.Timeout, "Service "+server.Service+" has a ready endpoint",
			func(ctx context.Context) (bool, error) {
				server, err := dns.ReadServer(ctx, i.member.Cluster, d.Service)
				return server.Ready, err
			})
		if err != nil {
			return nil, "", i.withFaults(ctx, err)
		}
	}
	if !wired {
		return nil, "", nil
	}
	applied, err := dns.Apply(ctx, i.config, d)
	return &applied, "", err
}
