package memberenv

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Policy makes the API server deny requests.
type Policy struct {
	Name       string
	Resources  []string                    // "<group>/<version>/<plural>", or with "/status" behind
	Operations []admissionv1.OperationType // creations and updates if there are none
	Where      string                      // expression: of which requests; of all if it is ""
	Want       []string                    // expressions: a request for which one does not hold is denied
}

// Deny applies policies, and returns when they are in force.
func (e *Env) Deny(policies ...Policy) {
	e.Helper()
	for _, p := range policies {
		if len(p.Operations) == 0 {
			p.Operations = []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
		}
		meta := metav1.ObjectMeta{Name: p.Name}
		policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta}
		policy.Spec.MatchConstraints = &admissionv1.MatchResources{}
		for _, r := range p.Resources {
			parts := strings.SplitN(r, "/", 3)
			policy.Spec.MatchConstraints.ResourceRules = append(policy.Spec.MatchConstraints.ResourceRules,
				admissionv1.NamedRuleWithOperations{
					RuleWithOperations: admissionv1.RuleWithOperations{Operations: p.Operations, Rule: admissionv1.Rule{
						APIGroups: parts[:1], APIVersions: parts[1:2], Resources: parts[2:],
					}},
				})
		}
		if p.Where != "" {
			policy.Spec.MatchConditions = []admissionv1.MatchCondition{{Name: "where", Expression: p.Where}}
		}
		for _, want := range p.Want {
			policy.Spec.Validations = append(policy.Spec.Validations, admissionv1.Validation{Expression: want})
		}
		binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta,
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: p.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			}}
		if err := e.Server.Apply(e.Context(), policy, binding); err != nil {
			e.Fatal(err)
		}
	}
}
