package wellknown

// HeartbeatLease is the Lease in the controller's namespace whose renewTime is the stamp of the newest heartbeat that this cluster may have sent to the
// broker (docs/spec/controller.md 7.8). It is written before the heartbeat.
const HeartbeatLease = "clusterset-heartbeat"

// AnnotationMarks on [HeartbeatLease] has the broker namespaces of clusters that were removed, and when that was seen, for the next process
// (docs/spec/controller.md 7.4).
const AnnotationMarks = "clusterset-dns.io/removed-members"

// AnnotationCopy on [HeartbeatLease] says that this cluster is a copy of another one, and why, in one phrase. "clusterset join --take-over" removes it.
const AnnotationCopy = "clusterset-dns.io/copy"
