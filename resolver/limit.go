package resolver

import "slices"

// MaxOwner is the most octets of an owner name without the final dot (RFC 1035 section 2.3.4).
const MaxOwner = 253

// MaxName returns [Options].MaxName for the zone of an origin, which is fully qualified.
func MaxName(origin string) int {
	if origin == "." {
		return MaxOwner
	}
	return MaxOwner - len(origin)
}

// maxService returns the most octets of what stands before ".svc" and the origin.
func maxService(origin string) int { return MaxName(origin) - len(branch) }

// MaxNames returns MaxNames of [github.com/clusterset-dns/clusterset/cache/index.Options] for services that are in the
// zones of these origins.
func MaxNames(origins ...string) (all []int) {
	for _, origin := range origins {
		all = append(all, maxService(origin))
	}
	slices.Sort(all)
	slices.Reverse(all)
	return slices.Compact(all)
}

// Limit returns [Options].Limit for the zone of an origin: its position in what [MaxNames] returned.
func Limit(origin string, maxNames []int) int { return slices.Index(maxNames, maxService(origin)) }
