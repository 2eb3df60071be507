package join

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/admin/read"
)

// A Component is a part of what runs in a member, which [Join] installs (docs/spec/install.md 2).
type Component string

// The components. [ComponentAllInOne] is controller and DNS server in one process, in place of the two.
const (
	ComponentController Component = "controller"
	ComponentDNS        Component = "dns"
	ComponentAllInOne   Component = "all-in-one"
	ComponentWiring     Component = "wiring" // of the cluster's DNS server, see [dns.Apply]
)

// defaultComponents returns the components that "clusterset join" installs by default.
func defaultComponents() []Component {
	return []Component{ComponentController, ComponentDNS, ComponentWiring}
}

// formatComponents is the reverse of [ParseComponents].
func formatComponents(all []Component) string {
	if len(all) == 0 {
		return "none"
	}
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = string(c)
	}
	return strings.Join(names, ",")
}

// chosenComponents returns those that the last join of the cluster installed, or else the default.
func chosenComponents(ctx context.Context, c *read.Cluster, namespace string) ([]Component, error) {
	secret, err := c.Secret(ctx, namespace)
	if err != nil || secret == nil || secret.Annotations[annotationComponents] == "" {
		return defaultComponents(), err
	}
	all, err := ParseComponents(strings.Split(secret.Annotations[annotationComponents], ","))
	if err != nil {
		return nil, fmt.Errorf("annotation %s of Secret %s/%s: %w; give --components", annotationComponents,
			secret.Namespace, secret.Name, err)
	}
	return all, nil
}

// ParseComponents reads the names of components; "none", alone, is no component.
func ParseComponents(names []string) ([]Component, error) {
	if slices.Equal(names, []string{"none"}) {
		return nil, nil
	}
	var all []Component
	for _, name := range names {
		c := Component(name)
		if !slices.Contains([]Component{ComponentController, ComponentDNS, ComponentAllInOne, ComponentWiring}, c) {
			return nil, fmt.Errorf("component %q: want %s, %s, %s or %s, or only none", name, ComponentController, ComponentDNS,
				ComponentAllInOne, ComponentWiring)
		}
		all = append(all, c)
	}
	if slices.Contains(all, ComponentAllInOne) && (slices.Contains(all, ComponentController) ||
		slices.Contains(all, ComponentDNS)) {
		return nil, fmt.Errorf("component %s: want it without %s and %s, which it has", ComponentAllInOne,
			ComponentController, ComponentDNS)
	}
	return all, nil
}

// StatusPage is the option of the controller that [Values].ControllerOptions may have.
const StatusPage = "status_page"

// Values are what the manifests of components are made with, as in deploy/chart/values.yaml. An empty field of
// [Options].Values keeps what an earlier join was given, or stands for the default.
type Values struct {
	Image         string `json:"image,omitempty"`
	ClusterDomain string `json:"clusterDomain,omitempty"`
	VIP           string `json:"vip,omitempty"`       // "derived", "cidr" or "none"
	Endpoints     string `json:"endpoints,omitempty"` // one of [broker.EndpointKinds]
	// CreateNamespaces is whether the controller creates namespaces that imports lack; nil keeps what there is.
	CreateNamespaces *bool `json:"createNamespaces,omitempty"`
	OpenShift        bool  `json:"openshift,omitempty"` // found out
	// ControllerOptions are options of the controller: the one of [StatusPage], and those that the clusterset sets for all
	// members.
	ControllerOptions map[string]string `json:"controllerOptions,omitempty"`
}

// completedBy completes v with older values.
func (v Values) completedBy(older Values) Values {
	options := map[string]string{}
	if page := cmp.Or(v.ControllerOptions[StatusPage], older.ControllerOptions[StatusPage]); page != "" {
		options[StatusPage] = page
	}
	return Values{
		ControllerOptions: options,
		Image:             cmp.Or(v.Image, older.Image), ClusterDomain: cmp.Or(v.ClusterDomain, older.ClusterDomain),
		VIP:       cmp.Or(v.VIP, older.VIP),
		Endpoints: cmp.Or(v.Endpoints, older.Endpoints), CreateNamespaces: cmp.Or(v.CreateNamespaces,
			older.CreateNamespaces), OpenShift: v.OpenShift,
	}
}

// isImage accepts what the schema of the chart accepts; a registry has further rules.
var isImage = regexp.MustCompile(`^[^\s"]+$`).MatchString
