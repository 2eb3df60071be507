package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/tools/demo/ask"
)

// patience is how long the demo waits for what has to happen, on a machine that is busy with other things.
const patience = 3 * time.Minute

// await calls check until it returns nil. After [patience], or when ctx ends, it fails with the last error of check.
func (d *demo) await(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("after %s", patience))
	defer cancel()
	for {
		last := check(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// awaitAnswer asks until the response has the status that q wants and as many records. [demo.askAll] then checks the
// records.
func (d *demo) awaitAnswer(ctx context.Context, q ask.Question) error {
	return d.await(ctx, func(ctx context.Context) error {
		got, err := server.Ask(ctx, d.port.String(), q.FQDN(), dns.StringToType[q.Qtype])
		if err != nil {
			return err
		}
		additional := len(got.Extra)
		if got.IsEdns0() != nil {
			additional--
		}
		status, n := dns.RcodeToString[got.Rcode], len(got.Answer)+additional
		if status != q.Rcode() || n != len(q.Want) {
			return fmt.Errorf("%s %s: %s with %d records, want %s with %d", q.FQDN(), q.Qtype, status, n, q.Rcode(), len(q.Want))
		}
		return nil
	})
}

// askAll asks one question after the other and fails if an answer is wrong.
func (d *demo) askAll(ctx context.Context, list []ask.Question) error {
	list = slices.Clone(list)
	for i, q := range list {
		var err error
		if list[i], err = resolved(ctx, q, d.south); err != nil {
			return err
		}
	}
	return d.client().All(ctx, list)
}

func (d *demo) client() ask.Client {
	return ask.Client{Out: d.out, Port: uint16(d.port.Number), Dig: ask.FindDig()}
}

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
