package exporter

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/vip"
)

// maxQuarantine is how many addresses are saved: the election writes the Lease every 2 seconds, with all that it holds.
const maxQuarantine = 200

// A quarantine is that of the clusterset IPs as it outlives an instance: one line for each address.
type quarantine struct{ note member.LeaseNote }

func newQuarantine(m *member.Cluster, namespace string) quarantine {
	return quarantine{member.LeaseNote{Cluster: m, Namespace: namespace, Key: wellknown.AnnotationQuarantine}}
}

// load returns what an instance before this one saved. A line that is not of that form is left out.
func (q quarantine) load(ctx context.Context) ([]vip.Freed, error) {
	text, err := q.note.Load(ctx)
	return parseQuarantine(text), err
}

// save replaces what is saved.
func (q quarantine) save(ctx context.Context, all []vip.Freed) error {
	return q.note.Save(ctx, formatQuarantine(all), wellknown.ManagerExporter)
}

// formatQuarantine writes lines such as "243.0.0.4 2026-03-01T09:10:00Z shop/db".
func formatQuarantine(all []vip.Freed) string {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%s %s %s\n", f.Addr, f.Until.UTC().Format(time.RFC3339), f.Service)
	}
	return b.String()
}

func parseQuarantine(text string) (all []vip.Freed) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		addr, err := netip.ParseAddr(fields[0])
		if err != nil {
			continue
		}
		until, err := time.Parse(time.RFC3339, fields[1])
		if err != nil {
			continue
		}
		namespace, name, _ := strings.Cut(fields[2], "/")
		all = append(all, vip.Freed{Addr: addr, Until: until, Service: types.NamespacedName{Namespace: namespace, Name: name}})
	}
	return all
}
