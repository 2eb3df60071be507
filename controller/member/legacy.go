package member

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The names of Valid and Ready in the first version of KEP-1645.
const (
	legacyInitialized = "Initialized"
	legacyExported    = "Exported"
)

// WithLegacy returns Valid and Ready, and both under the names that the first version of KEP-1645 gave them.
func WithLegacy(valid, ready metav1.Condition) []metav1.Condition {
	initialized, exported := valid, ready
	initialized.Type, exported.Type = legacyInitialized, legacyExported
	return []metav1.Condition{valid, ready, initialized, exported}
}
