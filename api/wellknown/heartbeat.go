package wellknown

// HeartbeatLease is a Lease in the controller's namespace. Its renewTime is the stamp of the newest heartbeat of this cluster,
// written before the heartbeat is sent (docs/spec/controller.md 7.8).
const HeartbeatLease = "clusterset-heartbeat"

// AnnotationCopy on [HeartbeatLease] marks a copy of another cluster. Its value is the reason, in one phrase.
// "clusterset join --take-over" removes it.
const AnnotationCopy = "clusterset-dns.io/copy"
