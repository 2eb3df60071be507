// Package allocs counts allocations, for tests that hold them to a ceiling.
package allocs

import (
	"math"
	"testing"
)

// rounds is how often the average is taken.
const rounds = 5

// PerRun returns how many allocations a call of f makes: the least average of some rounds, which are runs calls
// together. Whatever else the process does meanwhile, such as a server of a test before this one that still stops, adds
// to an average, and on a busy machine to many.
func PerRun(runs int, f func()) float64 {
	least := math.Inf(1)
	for range rounds {
		least = min(least, testing.AllocsPerRun(max(1, runs/rounds), f))
	}
	return least
}
