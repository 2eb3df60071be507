package wellknown

import "time"

// PendingImport is the time after which an import with a pending condition Ready has failed. Until then it waits for
// its derived Service or a clusterset IP.
const PendingImport = 10 * time.Second

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
