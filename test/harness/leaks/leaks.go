// Package leaks finds goroutines that the code under test should have ended.
package leaks

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// None waits until no goroutine is left that before does not have, which is [goleak.IgnoreCurrent] of then. A control
// plane that was started again meanwhile has new ones: it waits for its processes, and an admin's client connects anew.
func None(t testing.TB, before goleak.Option) {
	t.Helper()
	until.OK(t, "no goroutine is left", func(context.Context) error {
		return goleak.Find(before, goleak.IgnoreAnyFunction(subprocess.Goroutine),
			goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"))
	})
}
