package wellknown

// ReasonUndeclaredAddresses is the reason of the condition Ready of a ServiceExport, which is then true, while endpoints have
// addresses outside of the networks that the cluster declared (docs/spec/controller.md 3.4).
const ReasonUndeclaredAddresses = "UndeclaredAddresses"
