// Package plan plans what "clusterset verify" checks between the members of a clusterset, and decides from the
// results which layer is at fault: Pods, controllers, DNS or the network (docs/spec/operations.md 7). It is pure.
package plan

import (
	"github.com/clusterset-dns/clusterset/api/reason"
)

// A Step is one step of a service from a cluster that exports it to one that imports it.
type Step string

// The steps, in their order. A step that fails explains those after it.
const (
	Pods       Step = "pods"
	Export     Step = "export"
	Import     Step = "import"
	DNS        Step = "dns"
	TCP        Step = "tcp"
	UDP        Step = "udp"
	Withdrawal Step = "withdrawal"
	NameGone   Step = "name gone"
)

// A Layer is at fault if a step fails and those before it do not.
type Layer string

// The layers; empty without a fault.
const (
	LayerPods       Layer = "pods"
	LayerController Layer = "controller"
	LayerDNS        Layer = "dns"
	LayerNetwork    Layer = "network"
)

var layers = map[Step]Layer{
	Pods: LayerPods, Export: LayerController, Import: LayerController, DNS: LayerDNS, TCP: LayerNetwork, UDP: LayerNetwork,
	Withdrawal: LayerController, NameGone: LayerDNS,
}

// A ServiceKind is a kind of Service.
type ServiceKind string

// The kinds.
const (
	ClusterSetIP ServiceKind = "ClusterSetIP"
	Headless     ServiceKind = "Headless"
)

// Mark is the result of a check.
type Mark string

// The marks.
const (
	OK      Mark = "ok"
	Failed  Mark = "failed"
	Skipped Mark = "skipped" // not checked: why
)

// A Check is a step with its result, for one kind of Service and one IP family where the step has them.
type Check struct {
	From     string      `json:"from"` // the member that exports
	To       string      `json:"to"`   // the member that imports
	Step     Step        `json:"step"`
	Kind     ServiceKind `json:"kind,omitempty"`
	Family   string      `json:"family,omitempty"` // "IPv4" or "IPv6"
	Mark     Mark        `json:"mark"`
	Code     reason.Code `json:"code,omitempty"` // with Failed
	Evidence string      `json:"evidence"`       // one line
}

// Report is the result. The JSON form is stable: fields are only added.
type Report struct {
	Namespace string   `json:"namespace"` // in each member
	Verdict   Verdict  `json:"verdict"`
	Checks    []Check  `json:"checks"`
	Left      []string `json:"left"` // what could not be removed
}

// Verdict is the first fault.
type Verdict struct {
	Code     reason.Code `json:"code"`
	Layer    Layer       `json:"layer,omitempty"`
	From     string      `json:"from,omitempty"` // the only exporting member with the fault
	To       string      `json:"to,omitempty"`   // the only importing member with the fault
	Sentence string      `json:"sentence"`
	Remedy   string      `json:"remedy"`
}
