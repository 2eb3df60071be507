package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// A question is what is asked, what it shows, and the only right answer.
type question struct {
	shows  string
	name   string // below svc.clusterset.local
	qtype  string
	status string   // NOERROR if empty
	want   []string // types and data of the records in answer and additional section, in any order
}

var questions = []question{
	{
		shows: "web is a ClusterSetIP service: one virtual IP for all clusters.",
		name:  "web.shop", qtype: "A", want: []string{"A 10.200.0.10"},
	},
	{
		shows: "It has one of the other family, too.",
		name:  "web.shop", qtype: "AAAA", want: []string{"AAAA fd00:200::10"},
	},
	{
		shows: "What one cluster offers has a name as well.",
		name:  "west.web.shop", qtype: "A", want: []string{"A 10.2.0.11"},
	},
	{
		shows: "payment has no virtual IP, so the local cluster answers as long as it has an endpoint.",
		name:  "payment.bank", qtype: "A", want: []string{"A 10.96.1.40"},
	},
	{
		shows: "db is headless: its name has the ready endpoints of all clusters.",
		name:  "db.shop", qtype: "A", want: []string{"A 10.1.0.20", "A 10.1.0.21", "A 10.2.0.20", "A 10.3.0.20"},
	},
	{
		shows: "Each endpoint has a name below that of its cluster: Pod db-0 in east,",
		name:  "db-0.east.db.shop", qtype: "AAAA", want: []string{"AAAA fd00:1::20"},
	},
	{
		shows: "and in south.registry1, a cluster whose id has a dot.",
		name:  "db-0.south.registry1.db.shop", qtype: "A", want: []string{"A 10.3.0.20"},
	},
	{
		shows: "A Pod without a hostname is named after its address.",
		name:  "10-1-0-31.east.cache.shop", qtype: "A", want: []string{"A 10.1.0.31"},
	},
	{
		shows: "SRV tells port and host, and brings the addresses along.",
		name:  "_redis._tcp.cache.shop", qtype: "SRV", want: []string{
			"SRV 0 50 6379 10-1-0-31.east.cache.shop.svc.clusterset.local.",
			"SRV 0 50 6379 fd00-2--31.west.cache.shop.svc.clusterset.local.",
			"A 10.1.0.31", "AAAA fd00:2::31",
		},
	},
	{
		shows: "NODATA: the name exists, but the cache in west has no IPv4 address.",
		name:  "west.cache.shop", qtype: "A",
	},
	{
		shows: "NXDOMAIN: no such name. This endpoint exists, but is not ready.",
		name:  "10-1-0-32.east.cache.shop", qtype: "A", status: "NXDOMAIN",
	},
}

// questions asks them all, and fails if an answer is wrong.
func (d *demo) questions(ctx context.Context) error {
	d.printf("\nQuestions\n")
	return d.askAll(ctx, questions)
}

func (d *demo) askAll(ctx context.Context, list []question) error {
	var wrong []string
	for _, q := range list {
		name := q.fqdn()
		got, err := d.dig(ctx, name, q.qtype)
		if err != nil {
			return err
		}
		d.printf("\n  %s\n    $ dig @127.0.0.1 -p %d %s %s\n%s", q.shows, d.port.Number, name, q.qtype, indent(got.String()))
		if err := q.check(got); err != nil {
			d.printf("    WRONG: %s\n", err)
			wrong = append(wrong, name+" "+q.qtype)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("wrong answers: %s\n%s", strings.Join(wrong, ", "), d.server.Output())
	}
	return nil
}

func (q question) fqdn() string { return q.name + ".svc." + zone }

func (q question) check(got reply) error {
	status := q.status
	if status == "" {
		status = "NOERROR"
	}
	if got.status != status {
		return fmt.Errorf("status %s, want %s", got.status, status)
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
