// Package admin makes a cluster a member of a clusterset and takes it out again, from the outside: with the rights of
// an admin of the broker and of the member (sections 2 and 7 of the controller's rules).
//
// [Init] prepares a broker, [Join] and [Leave] come and go, [Remove] takes out a member that is gone, [Status] looks at all
// of it. What writes can be run again at any time: it does what is left to do. Nothing here is needed while a clusterset
// runs.
package admin

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// FieldManager is the name under which everything here is applied.
const FieldManager = "clusterset-join"

// Defaults of the options.
const (
	DefaultNamespace  = "clusterset-system" // of the controller in a member
	DefaultPrefix     = "clusterset"        // of broker namespaces
	DefaultClusterSet = "clusterset"        // name of the clusterset
	DefaultVIPPool    = "243.0.0.0/8"       // second Lighthouse document, "VIP CIDR and allocation"
)

// ControllerLease is the name of the Lease by which the controllers of one member elect their leader.
const ControllerLease = "clusterset-controller"

// DryRun says what becomes of writes. The zero value does them.
type DryRun string

// The dry runs.
const (
	DryRunNone   DryRun = ""
	DryRunClient DryRun = "client" // nothing is sent; what would be done is guessed from what is there
	DryRunServer DryRun = "server" // the API server checks every write and forgets it
)

// Side is one of the two API servers.
type Side string

// The sides.
const (
	OnBroker Side = "broker"
	OnMember Side = "member"
)

// Action is what was done to an object, or would be.
type Action string

// The actions. Deleting what is not there is [Unchanged].
const (
	Created   Action = "created"
	Updated   Action = "updated"
	Unchanged Action = "unchanged"
	Deleted   Action = "deleted"
)

// A Step is one object that was looked after.
type Step struct {
	Side      Side   `json:"side"`
	Action    Action `json:"action"`
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`           // "*" for all in the namespace
	Note      string `json:"note,omitempty"` // what there is to know besides
}

// Object names the object as kubectl does: "role.rbac.authorization.k8s.io/member".
func (s Step) Object() string {
	kind := strings.ToLower(s.Kind)
	if s.Group != "" {
		kind += "." + s.Group
	}
	return kind + "/" + s.Name
}

// String is one line without an end: "broker: role.rbac.authorization.k8s.io/member -n clusterset-0f created".
func (s Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s ", s.Side, s.Object())
	if s.Namespace != "" {
		fmt.Fprintf(&b, "-n %s ", s.Namespace)
	}
	b.WriteString(string(s.Action))
	if s.Note != "" {
		fmt.Fprintf(&b, " (%s)", s.Note)
	}
	return b.String()
}

// Writing is how anything here writes.
type Writing struct {
	DryRun DryRun
	Report func(Step) // is called after each step; may be nil
}

// open returns the client of one side.
func (w Writing) open(name Side, config *rest.Config) (*side, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &side{name: name, client: client, writing: w}, nil
}

func (s *side) report(o *unstructured.Unstructured, action Action, note string) {
	if s.writing.Report == nil {
		return
	}
	kind := o.GroupVersionKind()
	s.writing.Report(Step{
		Side: s.name, Action: action, Group: kind.Group, Kind: kind.Kind,
		Namespace: o.GetNamespace(), Name: cmp.Or(o.GetName(), "*"), Note: note,
	})
}
