package controller

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/queue"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
	"github.com/clusterset-dns/clusterset/test/harness/memberenv"
)

// A service that has lost endpoints does not wait for its further changes (docs/spec/controller.md 10.3).
func TestLostEndpointsAreUrgent(t *testing.T) {
	for lost, want := range map[bool]string{true: "[0s 150ms]", false: "[0s 400ms]"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			start, svc := time.Now(), types.NamespacedName{Namespace: "shop", Name: "db"}
			var ran [2][]time.Duration
			var queues [2]*queue.Queue
			done := make(chan error, len(queues))
			for i := range queues {
				q := queue.New(queue.Config{Name: "test", Log: logtest.To(t, ""), Failed: func() {}, Panicked: func() {}})
				queues[i] = q
				go func() {
					done <- q.Run(ctx, func(context.Context, types.NamespacedName) error {
						ran[i] = append(ran[i], time.Since(start))
						return nil
					})
				}()
			}
			r := requeuer{exports: queues[0], imports: queues[1], hasRule: func(types.NamespacedName) bool { return false }}
			affected := member.Affected{Exports: []types.NamespacedName{svc}, Imports: []types.NamespacedName{svc}}
			r.memberChanged(affected)
			time.Sleep(100 * time.Millisecond)
			affected.Lost = lost
			r.memberChanged(affected)
			time.Sleep(time.Second)
			cancel()
			for range queues {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			for _, got := range ran {
				if fmt.Sprint(got) != want {
					t.Errorf("lost %t: ran at %v, want %s", lost, got, want)
				}
			}
		})
	}
}

// docs/spec/controller.md 9.4: repeated changes of one member have a bounded rate, ends and moves of endpoints do not,
// and no other member waits.
func TestChangesOfAMember(t *testing.T) {
	i := memberenv.New(t).Start()
	newQueue := func() *queue.Queue {
		return queue.New(queue.Config{Name: "test", Log: i.Log, Failed: func() {}, Panicked: func() {}})
	}
	p := &parts{broker: i.Broker, requeue: requeuer{member: i.Member, broker: i.Broker, exports: newQueue(),
		imports: newQueue()}}
	changed, began := p.brokerHandlers(t.Context(), nil).Changed, time.Now()
	queued := func(member string, altered bool) (n int) {
		before, _ := p.requeue.imports.Waiting()
		for n := range 3 * changeBurst {
			svc := types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(member, altered, n)}
			changed(broker.Change{Service: svc, Member: member, Altered: altered})
		}
		after, _ := p.requeue.imports.Waiting()
		return after - before
	}
	for _, member := range []string{"west", "north"} {
		n := queued(member, true)
		if later := 2 * (int(time.Since(began)/changePeriod) + 1); n < changeBurst || n > changeBurst+later {
			t.Errorf("%s: %d of %d changes count at once, want %d, and two for each second", member, n, 3*changeBurst,
				changeBurst)
		}
	}
	if n := queued("west", false); n < 3*changeBurst {
		t.Errorf("%d of %d changes count at once that are not bounded, want all", n, 3*changeBurst)
	}
}
