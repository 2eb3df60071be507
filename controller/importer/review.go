package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/controller/safety"
)

// Kept returns how many services of each other member, and of clusters without Member, stay imported, in part or as a whole, because the broker lost
// something or has an old copy.
func (i *Importer) Kept() map[string]int {
	services := make(map[string]int)
	for _, m := range i.cfg.Broker.Members() {
		if m.Name != i.planner.clusterID {
			services[m.Name] = 0
		}
	}
	i.kept.mu.Lock()
	defer i.kept.mu.Unlock()
	for _, clusters := range i.kept.all {
		for _, c := range clusters {
			services[c]++
		}
	}
	return services
}

// Review tells people of what stays imported from clusters without Member: these have no rights to write it again.
func (i *Importer) Review() {
	unjoined := slices.DeleteFunc(slices.Sorted(maps.Keys(i.Kept())), func(c string) bool { return i.cfg.Broker.Member(c) != nil })
	detail := ""
	if len(unjoined) > 0 {
		detail = fmt.Sprintf("the broker has no Member of %s: join again there, or, if that cluster is gone for good, remove it; what is imported from there stays",
			strings.Join(unjoined, ", "))
	}
	i.cfg.Freezes.Set(safety.LostMembers, detail)
}
