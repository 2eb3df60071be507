package wellknown

// AnnotationSilent on [ControllerLease] lists the silent members by cluster ID, for the next controller: the time at which each fell silent, and its
// newest heartbeat at that time (docs/spec/controller.md 8.2).
const AnnotationSilent = "clusterset-dns.io/silent"
