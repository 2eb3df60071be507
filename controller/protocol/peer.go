package protocol

// A Heartbeat is a renewal of a member's Lease. The zero value is no heartbeat.
type Heartbeat struct {
	Stamp    Stamp
	Complete Stamp // taken as the last pass over all exports began
	Blind    bool  // the member does not see its own cluster
}

// A Peer is an importer's knowledge of the heartbeats of a member. The zero value is a member without a heartbeat yet.
//
//	           no heartbeat for a TTL
//	current ──────────────────────────► silent
//	   ▲                                  │ a heartbeat whose pass began after the newest one seen when it fell silent
//	   └──────────────────────────────────┘ then a consistent list of its objects
type Peer struct {
	Silent bool
	// Seen is the highest heartbeat seen; while silent, the highest seen when it fell silent.
	Seen Stamp
}

// Counts reports whether h is a renewal. A silent member must see its cluster, and must have compared all its exports
// since: then the importer lists its objects together with the heartbeat, applies them by [Service.Relist], and calls
// Renew.
func (p *Peer) Counts(h Heartbeat) bool { return p.counts(h, 0) }

func (p *Peer) counts(h Heartbeat, without rule) bool {
	return h.Stamp > p.Seen && (!p.Silent || !h.Blind && h.Complete > p.Seen || without&complete != 0)
}
