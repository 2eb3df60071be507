package controller

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/queue"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
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
			r := requeuer{exports: queues[0], imports: queues[1]}
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

// docs/spec/controller.md 10.3: inventory entries of a member delay only services that it has a part in.
func TestEntryConcerns(t *testing.T) {
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{apibroker.LabelManagedBy: apibroker.ManagedBy},
		Annotations: map[string]string{apibroker.AnnotationSources: `{"noted":{"record":1,"export":"u"}}`},
	}}
	imp.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "shown"}}
	for _, tt := range []struct {
		name              string
		change            broker.Change
		recorded          bool // this cluster has a record
		toImport, toOwner bool
	}{
		{name: "a slice", change: broker.Change{}, recorded: true, toImport: true, toOwner: true},
		{name: "no part", change: broker.Change{Listed: true, Cluster: "mallory", UID: true}, recorded: true},
		{name: "no part, own export ended", change: broker.Change{Listed: true, Cluster: "mallory", UID: true}, toOwner: true},
		{name: "its Member is unknown", change: broker.Change{Listed: true}, recorded: true},
		{name: "a record", change: broker.Change{Listed: true, Cluster: "mallory", Record: true}, recorded: true, toImport: true},
		{name: "other claims", change: broker.Change{Listed: true, Cluster: "mallory", Claims: true}, recorded: true, toImport: true, toOwner: true},
		{name: "in the notes", change: broker.Change{Listed: true, Cluster: "noted"}, recorded: true, toImport: true},
		{name: "in the status", change: broker.Change{Listed: true, Cluster: "shown"}, recorded: true, toImport: true},
	} {
		if toImport, toOwner := concernsImport(tt.change, imp), concernsExport(tt.change, tt.recorded); toImport != tt.toImport || toOwner != tt.toOwner {
			t.Errorf("%s: concerns the import %t, the export %t; want %t, %t", tt.name, toImport, toOwner, tt.toImport, tt.toOwner)
		}
	}
}
