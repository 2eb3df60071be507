package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// A question is what is asked, what it shows, and the only right answer.
type question struct {
	shows  string
	name   string // below svc.clusterset.local
	qtype  string
	status string // NOERROR if empty
	// want are the types and data of the records in answer and additional section, in any order. VIP stands for the address
	// of that family that the ServiceImport in south has.
	want []string
}

func (q question) fqdn() string { return q.name + ".svc." + zone }

func (q question) rcode() string {
	if q.status == "" {
		return "NOERROR"
	}
	return q.status
}

// check compares got, of a question without VIP.
func (q question) check(got reply) error {
	if got.status != q.rcode() {
		return fmt.Errorf("status %s, want %s", got.status, q.rcode())
	}
	want := slices.Sorted(slices.Values(q.want))
	if !slices.Equal(got.records(), want) {
		return fmt.Errorf("records %q, want %q", got.records(), want)
	}
	if len(got.answer) == 0 && (len(got.authority) != 1 || !strings.Contains(got.authority[0], " SOA ")) {
		return fmt.Errorf("authority %q, want the SOA record", got.authority)
	}
	return nil
}

// resolved returns q with the addresses that m has for VIP.
func (q question) resolved(ctx context.Context, m *testclusterset.Member) (question, error) {
	q.want = slices.Clone(q.want)
	for i, want := range q.want {
		family, is := strings.CutSuffix(want, " VIP")
		if !is {
			continue
		}
		labels := strings.Split(q.name, ".")
		imp, err := m.Import(ctx, labels[len(labels)-1], labels[len(labels)-2])
		if err != nil {
			return q, fmt.Errorf("ServiceImport of %s: %w", q.name, err)
		}
		n := slices.IndexFunc(imp.Spec.IPs, func(ip string) bool {
			a, err := netip.ParseAddr(ip)
			return err == nil && a.Is4() == (family == "A")
		})
		if n < 0 {
			return q, fmt.Errorf("ServiceImport of %s: ips %q, want one for %s", q.name, imp.Spec.IPs, family)
		}
		q.want[i] = family + " " + imp.Spec.IPs[n]
	}
	return q, nil
}
