package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/tools/demo/ask"
)

// resolved returns q with addresses in place of "A VIP" and "AAAA VIP": those of the ServiceImport in m.
func resolved(ctx context.Context, q ask.Question, m *testclusterset.Member) (ask.Question, error) {
	q.Want = slices.Clone(q.Want)
	for i, want := range q.Want {
		family, is := strings.CutSuffix(want, " VIP")
		if !is {
			continue
		}
		labels := strings.Split(q.Name, ".")
		imp, err := m.Import(ctx, labels[len(labels)-1], labels[len(labels)-2])
		if err != nil {
			return q, fmt.Errorf("ServiceImport of %s: %w", q.Name, err)
		}
		n := slices.IndexFunc(imp.Spec.IPs, func(ip string) bool {
			a, err := netip.ParseAddr(ip)
			return err == nil && a.Is4() == (family == "A")
		})
		if n < 0 {
			return q, fmt.Errorf("ServiceImport of %s: ips %q, want one for %s", q.Name, imp.Spec.IPs, family)
		}
		q.Want[i] = family + " " + imp.Spec.IPs[n]
	}
	return q, nil
}
