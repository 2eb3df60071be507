package protocol

// An Owner is the state of a member's process toward the broker. It decides whether the process may renew its
// heartbeat, which confirms to others that the member's objects are current. The zero value is a process that has just
// started.
type Owner struct {
	listed   bool // since the last connection
	knows    bool // what the broker had, from a list or by writing it
	gap      bool // a connection was lost: the broker may have been rolled back
	passDue  bool
	passing  bool
	complete Stamp // of the beginning of the last pass
}

// Disconnected notes that a connection to the broker was lost, or that a request got a 5xx or no response.
func (o *Owner) Disconnected() { o.gap = true }

// Reconnected notes that the member reaches the broker again.
func (o *Owner) Reconnected() { o.listed = false }

// Late notes that more than a TTL lies between the sending of one heartbeat and the answer to the next, also over a
// restart.
func (o *Owner) Late() { o.passDue, o.passing = true, false }

// list notes a consistent list of the member's own objects at the broker. changed means that one of them is missing, or
// has another stamp than the process knows. behind means that the heartbeat there is older than the one that the member
// noted, or that it noted that a rollback is being mended. It returns whether a rollback is to be mended.
func (o *Owner) list(changed, behind bool, without rule) (anew bool) {
	if o.knows {
		anew = changed && without&rollback == 0
	} else {
		anew = behind && without&note == 0
	}
	if anew && without&repass == 0 {
		o.passDue, o.passing = true, false
	}
	o.listed, o.knows, o.gap = true, true, false
	return anew
}

// MayWrite reports whether the process knows what the broker has.
func (o *Owner) MayWrite() bool { return o.listed }

// Pass begins a pass over all exports, if one is due, at a stamp that is higher than all before.
func (o *Owner) Pass(at Stamp) (began bool) {
	if !o.passDue || o.passing || !o.listed || o.gap {
		return false
	}
	o.passing, o.complete = true, at
	return true
}

// PassEnds notes that each export was compared and written since the pass began. It returns false without a pass.
func (o *Owner) PassEnds() bool {
	if !o.passing || !o.listed {
		return false
	}
	o.passDue, o.passing = false, false
	return true
}

// heartbeat returns the contents of the next heartbeat, or false if it must wait for a list or a pass.
func (o *Owner) heartbeat(at Stamp, without rule) (Heartbeat, bool) {
	if o.passDue || !o.listed || o.gap && without&lost == 0 {
		return Heartbeat{}, false
	}
	return Heartbeat{Stamp: at, Complete: o.complete}, true
}

// A Peer is an importer's knowledge of the heartbeats of a member. The zero value is a member without a heartbeat yet.
type Peer struct {
	Silent bool
	Seen   Stamp // the highest heartbeat seen; while silent, the highest seen when it fell silent
}

// counts reports whether h is a renewal.
func (p *Peer) counts(h Heartbeat, without rule) bool {
	return h.Stamp > p.Seen && (!p.Silent || h.EndsSilence(p.Seen) || without&complete != 0)
}

// Expire makes the member silent. stored is the heartbeat that the broker has, read once more.
func (p *Peer) Expire(stored Heartbeat) { p.Silent, p.Seen = true, max(p.Seen, stored.Stamp) }

// Renew notes a heartbeat that counts.
func (p *Peer) Renew(h Heartbeat) { p.Silent, p.Seen = false, h.Stamp }
