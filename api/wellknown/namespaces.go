package wellknown

import "strings"

// NeverTakesPart reports whether the name of a namespace keeps it out of the clusterset, whatever the options
// (docs/spec/controller.md 9.2). controller is the namespace of the controller. Namespaces of a broker, which a label marks, are
// kept out as well.
func NeverTakesPart(namespace, controller string) bool {
	return strings.HasPrefix(namespace, "kube-") || strings.HasPrefix(namespace, "openshift-") || namespace == controller
}
