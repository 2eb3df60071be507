package read

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// PodReady reports whether a Pod has the condition Ready.
func PodReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// PodState returns in one line why a Pod does not run.
func PodState(p *corev1.Pod) string {
	state := fmt.Sprintf("Pod %s is %s", p.Name, p.Status.Phase)
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			return fmt.Sprintf("%s, %s: %s", state, w.Reason, w.Message)
		}
		if t := c.State.Terminated; t != nil {
			return fmt.Sprintf("%s, its program ended with %d: %s", state, t.ExitCode, cmp.Or(t.Message, t.Reason))
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("%s, %s: %s", state, c.Reason, c.Message)
		}
	}
	if p.Spec.NodeName == "" {
		return state + " and on no Node"
	}
	return state + " on Node " + p.Spec.NodeName
}
