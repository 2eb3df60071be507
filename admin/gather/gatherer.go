package gather

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/redact"
	"github.com/clusterset-dns/clusterset/admin/status"
	"github.com/clusterset-dns/clusterset/api/logging"
)

// A gathered file has objects, or a text.
type file struct {
	name    string // below the folder of the cluster
	objects []map[string]any
	text    string
}

// redacted changes the objects.
func (f file) redacted(r redact.Redactor) []byte {
	if f.objects == nil {
		return []byte(r.Text(f.text))
	}
	for _, o := range f.objects {
		r.Object(o)
	}
	var content any = map[string]any{"apiVersion": "v1", "kind": "List", "items": f.objects}
	if len(f.objects) == 1 && f.objects[0]["kind"] == nil {
		content = f.objects[0] // not an object of the API
	}
	text, err := yaml.Marshal(content)
	if err != nil {
		panic("gather: objects of an API server can be written as YAML: " + err.Error())
	}
	return text
}

// A gatherer reads one cluster for [Run]. gather calls the other methods, in this order:
//
//	connect ──► readObjects, for each kind ──┬► readLogs, readMetrics, for each Pod found
//	                                         └► readStatus, in a member
//
// The Pods are read side by side: one that hangs delays no other. Failed reads are noted in state.Missing, and the rest
// is read. If connect fails, nothing else is tried: reader and core are nil until then. files has the contents of the
// archive, and secret the values that it must not have.
type gatherer struct {
	*read.Cluster
	from    Cluster
	options Options

	mu     sync.Mutex // guards state and files while Pods are read
	state  Server
	files  []file
	secret []string // values that must appear nowhere
	pods   []corev1.Pod
	// Exported services, so that their Services and slices are read.
	exported exportedServices
}

func newGatherer(c Cluster, o Options) *gatherer {
	return &gatherer{
		from: c, options: o, state: Server{Name: c.Name, Role: c.Role, Missing: []string{}},
		secret:   []string{c.Config.BearerToken, c.Config.Password, string(c.Config.KeyData)},
		exported: exportedServices{},
	}
}

func (g *gatherer) addFile(f file) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.files = append(g.files, f)
}

// addMissing notes a failed read. gather notes an interruption, once.
func (g *gatherer) addMissing(what string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.from.Limited && apierrors.IsForbidden(err) {
		g.state.LeftOut = append(g.state.LeftOut, what)
		return
	}
	g.state.Missing = append(g.state.Missing, what+": "+logging.Line(err))
}

// readsAtOnce is how many Pods are read side by side.
const readsAtOnce = 16

func (g *gatherer) gather(ctx context.Context) {
	defer func() {
		slices.SortStableFunc(g.files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
		if slices.Sort(g.state.Missing); ctx.Err() != nil {
			g.addMissing("everything else", errors.New("interrupted"))
		}
	}()
	g.options.Progress("reading " + g.from.Name)
	if err := g.connect(ctx); err != nil {
		g.addMissing("everything", err)
		return
	}
	for _, x := range gatherings(g.from.Role, g.options.Namespace, g.options.DNSNamespace) {
		g.readObjects(ctx, x)
	}
	g.options.Progress(fmt.Sprintf("reading logs and metrics of %d Pods of %s", len(g.pods), g.from.Name))
	var reads errgroup.Group
	reads.SetLimit(readsAtOnce)
	if g.from.Role == read.RoleMember {
		reads.Go(func() error { g.readStatus(ctx); return nil })
	}
	for i := range g.pods {
		reads.Go(func() error {
			g.readLogs(ctx, &g.pods[i])
			g.readMetrics(ctx, &g.pods[i])
			return nil
		})
	}
	_ = reads.Wait() // failed reads are noted
}

// connect asks for the version first: a server that does not answer is not asked for everything.
func (g *gatherer) connect(ctx context.Context) (err error) {
	if g.Cluster, err = read.OpenWithin(g.from.Config, g.options.Timeout, ""); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, g.options.Timeout)
	defer cancel()
	text, err := g.Core.RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return err
	}
	var v version.Info
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("version: %w", err)
	}
	g.state.Kubernetes = v.GitVersion
	return nil
}

// readObjects reads one list of objects, in the first version that the API server has.
func (g *gatherer) readObjects(ctx context.Context, x gathering) {
	resource := schema.GroupResource{Group: x.group, Resource: x.resource}
	what := "list " + resource.String()
	if x.namespace != "" {
		what += " in namespace " + x.namespace
	}
	all, err := read.Served(resource.WithVersion(x.version),
		func(r schema.GroupVersionResource) (all []*unstructured.Unstructured, err error) {
			o := metav1.ListOptions{LabelSelector: x.selector}
			err = g.Each(ctx, r, x.namespace, o, func(o *unstructured.Unstructured) {
				if x.keep == nil || x.keep(g.exported, o) {
					all = append(all, o)
				}
			})
			return all, err
		})
	switch {
	case err == nil:
		g.addObjects(resource, x, all)
	case !x.optional || !apierrors.IsNotFound(err):
		g.addMissing(what, err)
	}
}

func (g *gatherer) addObjects(resource schema.GroupResource, x gathering, all []*unstructured.Unstructured) {
	if len(all) == 0 {
		return
	}
	f := file{name: "objects/" + resource.String() + ".yaml"}
	if x.namespace != "" {
		f.name = "objects/" + x.namespace + "/" + resource.String() + ".yaml"
	}
	for _, o := range all {
		f.objects = append(f.objects, o.Object)
		g.noteObject(o)
	}
	g.addFile(f)
}

// noteObject keeps what further reads need of an object.
func (g *gatherer) noteObject(o *unstructured.Unstructured) {
	var err error
	switch o.GetKind() {
	case "ServiceExport":
		g.exported[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}] = true
	case "Pod":
		var pod corev1.Pod
		if err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &pod); err == nil {
			g.pods = append(g.pods, pod)
		}
	case "Secret":
		var secret corev1.Secret
		if err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &secret); err == nil {
			g.secret = append(g.secret, secretValues(&secret)...)
		}
	}
	if err != nil {
		g.addMissing(read.Describe(o), err)
	}
}

// secretValues returns the values of a Secret, and the credentials in those that are texts, such as kubeconfigs. Names
// and the certificates of servers are no secrets, and appear in many places.
func secretValues(s *corev1.Secret) (all []string) {
	for key, value := range s.Data {
		if key == corev1.ServiceAccountNamespaceKey || key == corev1.ServiceAccountRootCAKey {
			continue
		}
		all = append(all, string(value))
		all = append(all, redact.Values(string(value))...)
	}
	return all
}

// readLogs reads the logs of each container, and of its last run if it has restarted.
func (g *gatherer) readLogs(ctx context.Context, pod *corev1.Pod) {
	restarts := map[string]bool{}
	for _, s := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		restarts[s.Name] = s.RestartCount > 0
	}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		g.readLog(ctx, pod, c.Name, false)
		if restarts[c.Name] {
			g.readLog(ctx, pod, c.Name, true)
		}
	}
}

func (g *gatherer) readLog(ctx context.Context, pod *corev1.Pod, container string, previous bool) {
	ctx, cancel := context.WithTimeout(ctx, g.options.Timeout)
	defer cancel()
	name := fmt.Sprintf("logs/%s/%s/%s", pod.Namespace, pod.Name, container)
	if previous {
		name += ".previous"
	}
	// The newest lines: LimitBytes would keep the oldest ones.
	text, err := g.Core.Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, Previous: previous, Timestamps: true, TailLines: ptr.To(g.options.LogLines),
		SinceSeconds: ptr.To(int64(g.options.Since.Seconds())),
	}).DoRaw(ctx)
	if err != nil {
		g.addMissing(name, err)
		return
	}
	g.addFile(file{name: name + ".log", text: string(text)})
}

// readMetrics reads the metrics of each port that is named after them, through the API server.
func (g *gatherer) readMetrics(ctx context.Context, pod *corev1.Pod) {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if !strings.HasSuffix(p.Name, "metrics") {
				continue
			}
			ctx, cancel := context.WithTimeout(ctx, g.options.Timeout)
			name := fmt.Sprintf("metrics/%s/%s/%s", pod.Namespace, pod.Name, c.Name)
			text, err := g.Core.Pods(pod.Namespace).ProxyGet("http", pod.Name, fmt.Sprint(p.ContainerPort), "/metrics",
				nil).DoRaw(ctx)
			cancel()
			if err != nil {
				g.addMissing(name, err)
				continue
			}
			g.addFile(file{name: name + ".txt", text: string(text)})
		}
	}
}

// readStatus adds the output of "clusterset status".
func (g *gatherer) readStatus(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, g.options.Timeout)
	defer cancel()
	o := status.Defaults()
	o.Namespace, o.DNS.Namespace = g.options.Namespace, g.options.DNSNamespace
	state, err := status.Read(within, nil, g.from.Config, o)
	if err != nil {
		g.addMissing("status", err)
	}
	for _, line := range state.Unread {
		g.addMissing("status", cmp.Or(ctx.Err(), errors.New(line)))
	}
	g.addFile(statusFile(&state))
}

// statusFile has a state as "clusterset status -o yaml" prints it. The converter of apimachinery takes no [netip.Addr].
func statusFile(state *status.State) file {
	text, err := json.Marshal(state)
	var content map[string]any
	if err == nil {
		err = json.Unmarshal(text, &content)
	}
	if err != nil {
		panic("gather: a state can be written as JSON: " + err.Error())
	}
	return file{name: "status.yaml", objects: []map[string]any{content}}
}
