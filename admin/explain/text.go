package explain

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

func first(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

func ago(age time.Duration) string { return max(age, 0).Round(time.Second).String() + " ago" }

func describe(c *metav1.Condition) string {
	return fmt.Sprintf("%s=%s/%s: %s", c.Type, c.Status, c.Reason, oneLine(c.Message))
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func isOurs(imp Import) bool {
	return imp.Object != nil && imp.Object.Labels[broker.LabelManagedBy] == broker.ManagedBy
}
