package protocol

// A Heartbeat is a renewal of a member's Lease. The zero value is no heartbeat.
type Heartbeat struct {
	Stamp    Stamp
	Complete Stamp // taken as the last pass over all exports began
	Blind    bool  // the member does not see its own cluster
}

// EndsSilence reports whether a silent member is back. seen is the highest heartbeat that was seen when it fell silent.
// The member must see its cluster, and must have compared all its exports since: then the importer lists its objects
// together with the heartbeat, and applies them by [Service.Relist].
//
//	           no heartbeat for a TTL
//	current ──────────────────────────► silent
//	   ▲                                  │ a new pass over all exports, and a heartbeat after it
//	   └──────────────────────────────────┘ then a consistent list of its objects
func (h Heartbeat) EndsSilence(seen Stamp) bool {
	return h.Stamp > seen && h.Complete > seen && !h.Blind
}
