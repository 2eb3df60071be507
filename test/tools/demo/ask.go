package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/server"
)

// patience is how long the demo waits for what has to happen, on a machine that is busy with other things.
const patience = time.Minute

// await returns when check is content. It fails with check's last word, or when ctx ends.
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

// awaitAnswer asks until the status is that of q, with as many records. That they are the right ones is checked with dig.
func (d *demo) awaitAnswer(ctx context.Context, q question) error {
	return d.await(ctx, func(ctx context.Context) error {
		got, err := server.Ask(ctx, d.port.String(), q.fqdn(), dns.StringToType[q.qtype])
		if err != nil {
			return err
		}
		additional := len(got.Extra)
		if got.IsEdns0() != nil {
			additional--
		}
		status, n := dns.RcodeToString[got.Rcode], len(got.Answer)+additional
		if status != q.rcode() || n != len(q.want) {
			return fmt.Errorf("%s %s: %s with %d records, want %s with %d", q.fqdn(), q.qtype, status, n, q.rcode(), len(q.want))
		}
		return nil
	})
}

// askAll asks with dig, one after the other, and fails if an answer is wrong.
func (d *demo) askAll(ctx context.Context, list []question) error {
	var wrong []string
	for _, q := range list {
		right, err := d.ask(ctx, q)
		if err != nil {
			return err
		}
		if !right {
			wrong = append(wrong, q.fqdn()+" "+q.qtype)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("wrong answers: %s", strings.Join(wrong, ", "))
	}
	return nil
}

// ask shows question and answer.
func (d *demo) ask(ctx context.Context, q question) (right bool, err error) {
	if q, err = q.resolved(ctx, d.south); err != nil {
		return false, err
	}
	got, err := d.dig(ctx, q.fqdn(), q.qtype)
	if err != nil {
		return false, err
	}
	d.printf("   %s\n   $ dig @127.0.0.1 -p %d %s %s\n%s\n", q.shows, d.port.Number, q.fqdn(), q.qtype, indent(got.String(), "     "))
	if err := q.check(got); err != nil {
		d.printf("     WRONG: %s\n\n", err)
		return false, nil
	}
	return true, nil
}
