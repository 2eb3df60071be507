package safety

import discoveryv1 "k8s.io/api/discovery/v1"

// OnExpiry says what happens to the endpoints of a member whose heartbeat expired.
type OnExpiry string

// The values of "on_expiry".
const (
	Remove   OnExpiry = "remove"    // its imported slices are removed
	NotReady OnExpiry = "not_ready" // its endpoints stay, not ready
	Retain   OnExpiry = "keep"      // they stay as they are
)

// Apply returns what is left of the slices of an expired member. With [NotReady] the endpoints keep serving and terminating:
// the knowledge about the pods is unchanged, but it may be out of date. given is not changed.
func (o OnExpiry) Apply(given []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	switch o {
	case Retain:
		return given
	case NotReady:
		left := make([]*discoveryv1.EndpointSlice, 0, len(given))
		for _, s := range given {
			s = s.DeepCopy()
			for i := range s.Endpoints {
				s.Endpoints[i].Conditions.Ready = new(bool)
			}
			left = append(left, s)
		}
		return left
	}
	return nil
}
