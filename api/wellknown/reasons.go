package wellknown

import "time"

// A condition Ready that is pending for so long has failed. An import waits for its derived Service or a clusterset IP,
// an export perhaps for a load balancer.
const (
	PendingImport = 10 * time.Second
	PendingExport = 5 * time.Minute
)

// ReasonUndeclaredAddresses is the reason of the condition Ready of a ServiceExport, which is then true, while
// endpoints have addresses outside of the networks that the cluster declared (docs/spec/controller.md 3.4).
const ReasonUndeclaredAddresses = "UndeclaredAddresses"

// The reasons of the condition Valid of a ServiceExport with a bad annotation value, which its message names.
const (
	// ReasonInvalidClusterSelector is the reason of Valid=False (KEP-5939).
	ReasonInvalidClusterSelector = "InvalidClusterSelector"
	// ReasonInvalidToClusters is a reason of Valid=False: which clusters the export is to reach cannot be known
	// (docs/spec/controller.md 3.8).
	ReasonInvalidToClusters = "InvalidToClusters"
	// ReasonAnnotationIgnored is a reason of Valid=True: the default counts in place of the value.
	ReasonAnnotationIgnored = "AnnotationIgnored"
)
