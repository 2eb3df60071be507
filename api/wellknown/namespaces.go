package wellknown

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// AnnotationNamespaces on [ControllerLease] has the option import_namespaces of the controller that holds the Lease, if
// the option restricts which namespaces take part (docs/spec/controller.md 9.2). It counts while that controller renews
// the Lease.
const AnnotationNamespaces = "clusterset-dns.io/import-namespaces"

// NamespaceChoice is the value of [AnnotationNamespaces]: one of the two fields is set.
type NamespaceChoice struct {
	Names    []string `json:"names,omitempty"`
	Selector string   `json:"selector,omitempty"` // of labels
}

// maxNamespaceChoice bounds the annotation, as the election writes the Lease every 2 seconds. An option that is longer
// is not saved.
const maxNamespaceChoice = 4096 // octets

// String returns the annotation, "" if nothing is restricted.
func (c NamespaceChoice) String() string {
	if len(c.Names) == 0 && c.Selector == "" {
		return ""
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic("wellknown: a NamespaceChoice that JSON does not take: " + err.Error())
	}
	if len(text) > maxNamespaceChoice {
		return ""
	}
	return string(text)
}

// ParseNamespaceChoice parses an annotation. A malformed text, which somebody else wrote, restricts nothing, like the
// zero value.
func ParseNamespaceChoice(text string) (c NamespaceChoice) {
	if len(text) > maxNamespaceChoice || json.Unmarshal([]byte(text), &c) != nil {
		return NamespaceChoice{}
	}
	if _, err := labels.Parse(c.Selector); err != nil {
		return NamespaceChoice{}
	}
	return c
}

// Restricts reports whether there is a choice at all.
func (c NamespaceChoice) Restricts() bool { return len(c.Names) > 0 || c.Selector != "" }

// Selects reports whether a namespace is chosen. It is not about the namespaces that never take part.
func (c NamespaceChoice) Selects(name string, all map[string]string) bool {
	if len(c.Names) > 0 {
		return slices.Contains(c.Names, name)
	}
	selector, err := labels.Parse(c.Selector)
	return err == nil && selector.Matches(labels.Set(all))
}

// NeverTakesPart reports whether a namespace with these annotations is kept out of the clusterset, with any options
// (docs/spec/controller.md 9.2). controller is the namespace of the controller. Namespaces of a broker, which a label
// marks, are kept out as well.
func NeverTakesPart(namespace string, annotations map[string]string, controller string) bool {
	named := annotations[broker.AnnotationAllowedSources] != "" // "" is for no cluster
	closed := strings.HasPrefix(namespace, "kube-") || strings.HasPrefix(namespace, "openshift-")
	return closed && !named || namespace == controller
}
