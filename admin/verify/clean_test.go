package verify

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestIsOfVerify: uninstall deletes a whole namespace only if verify made it, not because of a label that was copied.
func TestIsOfVerify(t *testing.T) {
	const until = "2026-03-01T09:00:00Z"
	for _, tt := range []struct {
		name, until string
		want        bool
	}{
		{"clusterset-verify-abcdefgh", until, true}, {"clusterset-verify-abcdefgh", "", false},
		{"clusterset-verify-abcdefgh", "later", false}, {"shop", until, false},
	} {
		o := &unstructured.Unstructured{}
		o.SetName(tt.name)
		o.SetAnnotations(map[string]string{annotationUntil: tt.until})
		if got := IsNamespace(o); got != tt.want {
			t.Errorf("namespace %s until %q: isOfVerify = %t, want %t", tt.name, tt.until, got, tt.want)
		}
	}
}
