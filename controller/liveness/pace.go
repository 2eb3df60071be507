package liveness

import "time"

const (
	// fewMembers keep the pace of their option.
	fewMembers = 100
	// beatGap is the least time between two heartbeats in a larger clusterset, and watchGap that for each member which
	// watches them: at a fixed rate the load of the broker grows with the number of its watches, and not with their
	// square, and beyond 500 members not at all.
	beatGap, watchGap = 100 * time.Millisecond, 200 * time.Microsecond
	// longest lets a TTL be at most an hour.
	longest = 20 * time.Minute
)

// Pace returns the interval and the TTL of heartbeats in a clusterset of so many members, with the option "lease renew
// ttl" (docs/spec/controller.md 8.1). The interval is a multiple of renew. With "lease 0" both are 0.
func Pace(renew, ttl time.Duration, members int) (time.Duration, time.Duration) {
	if members <= fewMembers || renew <= 0 {
		return renew, ttl
	}
	n := time.Duration(members)
	least := min(longest, n*max(beatGap, n*watchGap))
	renew *= max(1, (least+renew-1)/renew)
	return renew, max(ttl, 3*renew)
}
