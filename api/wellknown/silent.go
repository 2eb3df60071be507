package wellknown

// AnnotationSilent on [ControllerLease] has the silent members, by cluster ID: since when, and their newest heartbeat then (docs/spec/controller.md 8.2). A
// controller that starts treats them as silent, too.
const AnnotationSilent = "clusterset-dns.io/silent"
