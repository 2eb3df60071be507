// Package wellknown holds the names of objects that more than one part of the project reads or writes in a member's own cluster.
// What is on the broker is named by package broker beside it.
package wellknown

// ControllerNamespace is the default namespace of the controller in a member: its Lease and its broker credential are there.
const ControllerNamespace = "clusterset-system"

// ControllerLease is the Lease in the controller's namespace that the leading instance of the controller holds.
const ControllerLease = "clusterset-controller"
