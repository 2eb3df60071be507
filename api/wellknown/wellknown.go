// Package wellknown holds the names of objects in a member's own cluster that several parts of the project read or
// write. Package broker has the names on the broker.
package wellknown

// ControllerNamespace is the default namespace of the controller in a member: its Lease and its broker credential are
// there.
const ControllerNamespace = "clusterset-system"

// ControllerLease is the Lease in the controller's namespace that the leading instance of the controller holds.
const ControllerLease = "clusterset-controller"

// HeartbeatLease is a Lease in the controller's namespace. Its renewTime is the stamp of the newest heartbeat of this
// cluster, written before the heartbeat is sent (docs/spec/controller.md 7.8).
const HeartbeatLease = "clusterset-heartbeat"

// AnnotationTaken on [HeartbeatLease] has the stamp of the newest heartbeat that the broker is known to have taken, in
// microseconds.
const AnnotationTaken = "clusterset-dns.io/taken"

// AnnotationCopy on [HeartbeatLease] marks a copy of another cluster. Its value is the reason, in one phrase.
// "clusterset join --take-over" removes it.
const AnnotationCopy = "clusterset-dns.io/copy"

// AnnotationSilent on [ControllerLease] lists the silent members by cluster ID, for the next controller: the time at
// which each fell silent, and its newest heartbeat at that time (docs/spec/controller.md 8.2).
const AnnotationSilent = "clusterset-dns.io/silent"
