package cause

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/reason"
)

func agoText(age time.Duration) string { return ageText(age) + " ago" }

func ageText(age time.Duration) string { return max(age, 0).Round(time.Second).String() }

func conditionText(c *metav1.Condition) string {
	return fmt.Sprintf("%s=%s/%s: %s", c.Type, c.Status, c.Reason, messageOf(c))
}

// messageOf is the message of a condition without the codes at its end: the step has one.
func messageOf(c *metav1.Condition) string {
	message, _ := reason.Split(oneLine(c.Message))
	return message
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func isOurs(imp Import) bool {
	return imp.Object != nil && imp.Object.Labels[broker.LabelManagedBy] == broker.ManagedBy
}
