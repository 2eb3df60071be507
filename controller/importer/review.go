package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/safety"
)

// Kept returns, by cluster, the number of services with objects that stay imported although the broker lacks them: 0
// for the other members.
func (i *Importer) Kept() map[string]int {
	services := i.keptServices()
	for _, m := range i.cfg.Broker.Members.All() {
		if m.Name != i.planner.clusterID {
			services[m.Name] += 0
		}
	}
	return services
}

// keptServices returns the number of services by cluster.
func (i *Importer) keptServices() map[string]int {
	services := make(map[string]int)
	for _, clusters := range i.kept.all() {
		for _, c := range clusters {
			services[c]++
		}
	}
	return services
}

// KeptIn returns the services of a part of the inventory of a cluster with objects that stay imported although the
// broker lacks them. A newer copy of that part may end them without an entry of theirs.
func (i *Importer) KeptIn(cluster, part string) (services []types.NamespacedName) {
	for svc, clusters := range i.kept.all() {
		if slices.Contains(clusters, cluster) && apibroker.InventoryPart(svc.Namespace, svc.Name) == part {
			services = append(services, svc)
		}
	}
	return services
}

// Review sets the reason [safety.LostMembers] while services stay imported from clusters without Member, which cannot
// write them again, and [safety.Webhook] while the last write of an import failed for an admission webhook.
func (i *Importer) Review() {
	unjoined := slices.DeleteFunc(slices.Sorted(maps.Keys(i.keptServices())),
		func(c string) bool { return i.cfg.Broker.Members.Get(c) != nil })
	detail := ""
	if len(unjoined) > 0 {
		detail = fmt.Sprintf(
			"the broker has no Member of %s: join again there, or, if that cluster is gone for good, remove it; what is imported from there stays",
			strings.Join(unjoined, ", "))
	}
	i.cfg.Freezes.Set(safety.LostMembers, detail)
	i.cfg.Freezes.Set(safety.Webhook, waitingText(i.webhooks.all()))
}

// maxNamedImports is how many imports that wait for a webhook are named.
const maxNamedImports = 5

// waitingText names the admission webhooks that could not be called, by import, and the imports: "" without any.
// clusterset explain looks for its service among these.
func waitingText(webhooks map[types.NamespacedName]string) string {
	if len(webhooks) == 0 {
		return ""
	}
	var names, imports []string
	for svc, name := range webhooks {
		names, imports = append(names, name), append(imports, svc.String())
	}
	slices.Sort(names)
	slices.Sort(imports)
	if more := len(imports) - maxNamedImports; more > 0 {
		imports = append(imports[:maxNamedImports], fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("imports wait for the admission webhook %s, which the API server of this cluster cannot call: %s",
		strings.Join(slices.Compact(names), ", "), strings.Join(imports, ", "))
}
