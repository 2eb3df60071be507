package reason

import (
	"slices"
	"strings"
)

// A Source has words of its own for the states that codes name: reasons of conditions and of freezes, and labels of
// metrics. KEP-1645 fixes those of conditions, and users have rules and alerts on the others, so the code stands beside
// them (docs/spec/explain.md 4).
type Source string

// The sources.
const (
	Valid          Source = "Valid of a ServiceExport"
	ExportReady    Source = "Ready of a ServiceExport"
	Conflict       Source = "Conflict of a ServiceExport"
	ImportReady    Source = "Ready of a ServiceImport"
	Frozen         Source = "frozen"
	RejectedOthers Source = "rejected by the controller"
	RejectedImport Source = "ServiceImport rejected by DNS"
	RejectedSlice  Source = "EndpointSlice rejected by DNS"
)

// A Word is one of a source.
type Word struct {
	Source Source
	Text   string
	Code   Code // "" where nothing is wrong, or no code names the state
}

// words are all that conditions and freezes have, and those of rejections that have a code.
var words = []Word{
	{Valid, "Valid", ""},
	{Valid, "AnnotationIgnored", ExportAnnotation},
	{Valid, "NoService", ExportNoService},
	{Valid, "InvalidServiceType", ExportInvalidType},
	{Valid, "InvalidClusterSelector", ExportSelectors},
	{Valid, "InvalidToClusters", ExportSelectors},
	{Valid, "NamespaceNotAllowed", ExportNamespace},
	{Valid, "NotMember", ExportNotMember},

	{ExportReady, "Exported", ""},
	{ExportReady, "UndeclaredAddresses", ExportUndeclared},
	{ExportReady, "Pending", ExportPending},
	{ExportReady, "Failed", ExportRejected},

	{Conflict, "NoConflicts", ""},
	{Conflict, "TypeConflict", ConflictType},
	{Conflict, "PortConflict", ConflictPorts},
	{Conflict, "IPFamilyConflict", ConflictFamilies},
	{Conflict, "SessionAffinityConflict", ConflictProperties},
	{Conflict, "SessionAffinityConfigConflict", ConflictProperties},
	{Conflict, "InternalTrafficPolicyConflict", ConflictProperties},
	{Conflict, "TrafficDistributionConflict", ConflictProperties},
	{Conflict, "LabelsConflict", ConflictProperties},
	{Conflict, "AnnotationsConflict", ConflictProperties},
	{Conflict, "ClusterSetIPConflict", ConflictProperties},
	{Conflict, "ClusterSelectorsConflict", ConflictProperties},

	{ImportReady, "Ready", ""},
	{ImportReady, "Pending", ImportPending},
	{ImportReady, "IPFamilyNotSupported", ImportFamilies},

	// Reasons of identity and of the broker have causes with codes of their own (controller/identity).
	{Frozen, "not_synced", ControllerFrozen},
	{Frozen, "broker_identity", ControllerFrozen},
	{Frozen, "broker_empty", BrokerUnprepared},
	{Frozen, "credential", CredentialRejected},
	{Frozen, "lost_members", ControllerFrozen},
	{Frozen, "old_member", ControllerFrozen},
	{Frozen, "blind", ControllerFrozen},
	{Frozen, "export_kind", ControllerFrozen},
	{Frozen, "webhook", ImportWebhook},
	{Frozen, "own_heartbeat", ControllerFrozen},

	{RejectedOthers, "record", RecordInvalid},
	{RejectedOthers, "name", RecordInvalid},
	{RejectedOthers, "duplicate", RecordInvalid},
	{RejectedOthers, "undecodable", RecordInvalid},
	{RejectedOthers, "address", EndpointsRejected},
	{RejectedOthers, "cidr", EndpointsUndeclared},
	{RejectedOthers, "own_cidr", EndpointsOverlap},
	{RejectedOthers, "namespace", SourceNotAllowed},
	{RejectedOthers, "limit", ImportLimit},

	{RejectedImport, "object", ImportInvalid},
	{RejectedImport, "name", ImportInvalid},
	{RejectedImport, "type", ImportInvalid},
	{RejectedImport, "address", ImportAddresses},

	{RejectedSlice, "address", EndpointsRejected},
	{RejectedSlice, "address_type", SliceAddressType},
	{RejectedSlice, "cluster_id", SliceClusterID},
}

// Words returns all words, by source.
func Words() []Word { return words }

// Of returns the code of a word, "" if it has no code.
func Of(from Source, text string) Code {
	for _, w := range words {
		if w.Source == from && w.Text == text {
			return w.Code
		}
	}
	return ""
}

// All returns the codes of words that are separated by commas, each once, in the order of [Words]: the first is that of
// the weightiest.
func All(from Source, texts string) (codes []Code) {
	given := strings.Split(texts, ",")
	for _, w := range words {
		if w.Source == from && w.Code != "" && slices.Contains(given, w.Text) && !slices.Contains(codes, w.Code) {
			codes = append(codes, w.Code)
		}
	}
	return codes
}

// Say returns the message of a condition with the reason text, and its codes at the end: "There is no Service.
// [export-no-service]". A reason may be several, separated by commas.
func Say(from Source, text, message string) string { return With(message, All(from, text)...) }

// With returns a text that ends with codes, those of "" left out.
func With(text string, codes ...Code) string {
	var names []string
	for _, c := range codes {
		if c != "" {
			names = append(names, string(c))
		}
	}
	if len(names) == 0 {
		return text
	}
	return text + " [" + strings.Join(names, ",") + "]"
}

// Split parts a text from the codes at its end. codes begins with the blank before them; it is "" for a text without
// codes.
func Split(text string) (message, codes string) {
	at := strings.LastIndex(text, " [")
	if at < 0 || !strings.HasSuffix(text, "]") {
		return text, ""
	}
	for name := range strings.SplitSeq(text[at+2:len(text)-1], ",") {
		if !Known(Code(name)) {
			return text, ""
		}
	}
	return text[:at], text[at:]
}

// Phrase is the message of a condition as a part of a sentence: without the full stop, and with the codes.
func Phrase(message string) string {
	text, codes := Split(message)
	return strings.TrimSuffix(text, ".") + codes
}

// Known reports whether there is a code; a newer version may have more.
func Known(code Code) bool {
	return slices.ContainsFunc(table, func(e Entry) bool { return e.Code == code })
}
