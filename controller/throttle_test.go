package controller

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// docs/spec/controller.md 9.4: repeated changes of one member cause a bounded rate of work, and delay no other member.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		const burst, period, services = 10, 30 * time.Second, 3
		throttle := newThrottle(t.Context(), func(string) int { return burst }, period)
		call := func(member string, n int) {
			throttle.call(member, types.NamespacedName{Name: fmt.Sprint(n % services)}, func() { calls.Add(1) })
		}
		for n := range 10_000 { // ten minutes
			call("mallory", n)
			time.Sleep(60 * time.Millisecond)
		}
		if most := burst + int64(10*time.Minute/period); calls.Load() > most || calls.Load() < most-1 {
			t.Errorf("%d times in ten minutes, want %d", calls.Load(), most)
		}
		before := calls.Load()
		call("west", 0)
		if calls.Load() != before+1 {
			t.Error("a member waits for another one")
		}
		before = calls.Load()
		for n := range 2 * services {
			call("mallory", n)
		}
		time.Sleep(services * period)
		synctest.Wait()
		if calls.Load() != before+services {
			t.Errorf("%d times after the last calls, want one for each service", calls.Load()-before)
		}
	})
}
