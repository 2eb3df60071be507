package member

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/test/harness/logtest"
)

// docs/spec/controller.md 3.2: the end of one export of few counts at once. Of many that go at once all count until the loss is
// confirmed, but for those that come back, and each end is reported once, when it counts.
func TestKeptExports(t *testing.T) {
	var log logtest.Recorder
	k := newKeptExports(time.Minute, &log)
	var ended []types.NamespacedName
	k.handle(func(services []types.NamespacedName) { ended = append(ended, services...) })
	export := func(i int) *mcsv1beta1.ServiceExport {
		return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("s%02d", i)}}
	}
	informer := k.handler()
	informer.OnAdd(export(0), true)
	informer.OnDelete(export(0))
	if k.get("shop/s00") != nil || len(ended) != 1 {
		t.Errorf("one of one: %d kept, %v have ended, want that one", len(k.keys()), ended)
	}

	const many = 2 * apiserver.WithholdFrom
	for i := range many {
		informer.OnAdd(export(i), false)
	}
	ended = nil
	for i := range many {
		informer.OnDelete(cache.DeletedFinalStateUnknown{Key: KeyOf(export(i)).String(), Obj: export(i)})
	}
	informer.OnAdd(export(7), false)
	k.release(time.Now(), false)
	if got := k.keys(); len(got) != many || k.withheld.Len() != many-1 || len(ended) > 0 {
		t.Errorf("without the kind: %d kept, %d of them withheld, %v have ended, want all kept", len(got), k.withheld.Len(), ended)
	}
	// The informer is asked before the export is back, and the end is released after that.
	lacks := func(string) (*mcsv1beta1.ServiceExport, bool) {
		k.release(time.Now().Add(time.Hour), true)
		return nil, false
	}
	if k.beside("shop/s08", lacks) == nil {
		t.Error("an export counted until its end was released, and is back by then: want it to count all the time")
	}
	if got := k.keys(); len(got) != 1 || k.get("shop/s07") == nil || len(ended) != many-1 {
		t.Errorf("confirmed: %v kept, %d have ended, want the one that is back", got, len(ended))
	}
	for _, line := range []string{
		"ServiceExport: 11 of 20 are gone at once; they stay exported until that is so for 1m0s",
		"ServiceExport: 19 that are gone are no longer exported",
	} {
		if log.Count(line) != 1 {
			t.Errorf("log has %q %d times, want once:\n%s", line, log.Count(line), &log)
		}
	}
}
