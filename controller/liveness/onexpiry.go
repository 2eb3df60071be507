package liveness

import "time"

// A Part tells which endpoints of a cluster count.
type Part uint8

// The parts.
const (
	All        Part = iota
	LastResort      // ready ones, for the ports and families that no other cluster serves
	Nothing
)

// An Action on the endpoints of a silent member.
type Action string

// The actions of "on_expiry".
const (
	// for a time they stay for the ports and families without a ready endpoint in another cluster
	ActLastResort Action = "last_resort"
	ActRemove     Action = "remove"
	ActKeep       Action = "keep" // they stay as they are
)

// DefaultLimit is how long a last resort lasts.
const DefaultLimit = time.Hour

// OnExpiry is the option on_expiry.
type OnExpiry struct {
	Action Action
	Limit  time.Duration // of a last resort
}

// String is the value of the option.
func (o OnExpiry) String() string {
	if o.Action == ActLastResort {
		return string(o.Action) + " " + o.Limit.String()
	}
	return string(o.Action)
}

// Part returns which endpoints count after so long a silence.
func (o OnExpiry) Part(silent time.Duration) Part {
	switch {
	case o.Action == ActKeep:
		return All
	case o.Action == ActLastResort && silent < o.Limit:
		return LastResort
	}
	return Nothing
}
