package broker

import (
	"errors"
	"fmt"
	"time"

	"github.com/clusterset-dns/clusterset/apiserver"
)

// The kinds with rejected objects.
const (
	kindMember    = "Member"
	kindRecord    = "ExportedService"
	kindSlice     = "EndpointSlice"
	kindInventory = "Inventory"
)

// The watches, for decisions that need some of them.
var (
	watchNamespaces  = apiserver.WatchID{Kind: "Namespace"}
	watchMembers     = apiserver.WatchID{Kind: kindMember}
	watchRecords     = apiserver.WatchID{Kind: kindRecord}
	watchSlices      = apiserver.WatchID{Kind: kindSlice}
	watchInventories = apiserver.WatchID{Kind: kindInventory}

	// synced is what exports and imports need. Heartbeats are no part of it: without them no member expires.
	synced = []apiserver.WatchID{watchNamespaces, watchMembers, watchRecords, watchSlices, watchInventories}
)

// A link is the watches of the broker.
type link struct {
	set     *apiserver.Set
	silence time.Duration // without contact after which the link is lost
}

// synced reports whether all kinds that exports and imports need were listed once.
func (l link) synced() bool { return l.set.Synced(synced...) }

// failure returns why one of the watches, or of all, does not follow the broker, nil if all do.
func (l link) failure(ids ...apiserver.WatchID) error {
	last := l.set.LastContact(ids...)
	switch err := l.set.Err(ids...); {
	case err != nil:
		return err
	case last.IsZero():
		return errors.New("the first list is under way")
	case time.Since(last) > l.silence:
		return fmt.Errorf("no contact with the broker for %s", time.Since(last).Round(time.Second))
	}
	return nil
}
