// Package tier chooses the make target of a test. A test without a tier is part of `make test`.
//
//	tier       target            contents
//	test       make test         finds nearly everything; minutes
//	all        make test-all     what takes long for what it finds, and the race detector
//	nightly    make nightly      faults, random search, soak, releases
//
// A test of a higher tier begins with the line tier.All(t) or tier.Nightly(t). The targets set [Env]; a plain `go test`
// runs tests of every tier.
package tier

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// Env names the environment variable with the highest tier that runs: "test", "all" or "nightly".
const Env = "CLUSTERSET_TIER"

var tiers = []string{"test", "all", "nightly"}

// SkipPrefix begins the reason of each skip by this package. test/tools/summary counts such tests in one line.
const SkipPrefix = "left to tier "

// All leaves the test to make test-all.
func All(t testing.TB) {
	t.Helper()
	require(t, "all")
}

// Nightly leaves the test to make nightly.
func Nightly(t testing.TB) {
	t.Helper()
	require(t, "nightly")
}

// Target returns the make target that runs the tests of a tier.
func Target(tier string) string {
	if tier == "nightly" {
		return "make nightly"
	}
	return "make test-" + tier
}

// Size returns small in make test, and large in the higher tiers: how much a test of a law tries.
func Size(small, large int) int {
	if os.Getenv(Env) == tiers[0] {
		return small
	}
	return large
}

func require(t testing.TB, of string) {
	t.Helper()
	runs, err := runs(os.Getenv(Env), of)
	if err != nil {
		t.Fatal(err)
	}
	if !runs {
		t.Skip(SkipPrefix + of)
	}
}

// runs reports whether a run up to the tier highest, or of all tiers if it is "", includes tests of the tier of.
func runs(highest, of string) (bool, error) {
	if highest == "" {
		return true, nil
	}
	at := slices.Index(tiers, highest)
	if at < 0 {
		return false, fmt.Errorf("%s %q: want one of %q", Env, highest, tiers)
	}
	return slices.Index(tiers, of) <= at, nil
}
