package liveness

import "time"

// A Part is what is imported of a cluster.
type Part uint8

// The parts.
const (
	All        Part = iota
	LastResort      // what no other cluster offers
	Nothing
)

// An Action on the endpoints of a silent member.
type Action string

// The actions of "on_expiry".
const (
	ActLastResort Action = "last_resort" // they stay for the ports and families of which no other cluster has a ready endpoint, for a time
	ActRemove     Action = "remove"
	ActKeep       Action = "keep" // they stay as they are
)

// DefaultLimit is how long a last resort lasts.
const DefaultLimit = time.Hour

// OnExpiry says what happens to the endpoints of a silent member.
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

// Part returns what is imported of a member that has been silent for so long.
func (o OnExpiry) Part(silent time.Duration) Part {
	switch {
	case o.Action == ActKeep:
		return All
	case o.Action == ActLastResort && silent < o.Limit:
		return LastResort
	}
	return Nothing
}
