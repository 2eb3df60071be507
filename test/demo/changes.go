package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterset-dns/clusterset/test/controlplane"
	"github.com/clusterset-dns/clusterset/test/server"
)

// A change is a new version of an EndpointSlice in examples/db.yaml and what is asked afterwards.
type change struct {
	does      string
	slice     string
	endpoints []any
	// The answer of the first one is waited for.
	then []question
}

var changes = []change{
	{
		does:      "db-0 in south.registry1 is no longer ready: its address leaves the answer.",
		slice:     "db-south",
		endpoints: []any{endpoint("10.3.0.20", "db-0", false)},
		then: []question{
			{
				shows: "Three addresses are left,",
				name:  "db.shop", qtype: "A", want: []string{"A 10.1.0.20", "A 10.1.0.21", "A 10.2.0.20"},
			},
			{
				shows: "and the name of the Pod is gone.",
				name:  "db-0.south.registry1.db.shop", qtype: "A", status: "NXDOMAIN",
			},
		},
	},
	{
		does:      "west scales up: db-1 joins.",
		slice:     "db-west-v4",
		endpoints: []any{endpoint("10.2.0.20", "db-0", true), endpoint("10.2.0.21", "db-1", true)},
		then: []question{
			{
				shows: "West offers two now,",
				name:  "west.db.shop", qtype: "A", want: []string{"A 10.2.0.20", "A 10.2.0.21"},
			},
			{
				shows: "each under its own name.",
				name:  "db-1.west.db.shop", qtype: "A", want: []string{"A 10.2.0.21"},
			},
		},
	},
}

func endpoint(address, hostname string, ready bool) map[string]any {
	return map[string]any{
		"addresses": []any{address}, "hostname": hostname, "conditions": map[string]any{"ready": ready},
	}
}

// changes makes them one after the other, and shows that the answers follow.
func (d *demo) changes(ctx context.Context) error {
	d.printf("\nChanges\n")
	for _, c := range changes {
		d.printf("\n  %s\n", c.does)
		object, err := d.changed(c)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := d.api.Apply(ctx, object); err != nil {
			return err
		}
		written := time.Now()
		if err := d.await(ctx, c.then[0]); err != nil {
			return err
		}
		d.printf("    The API server took %s for the write; the answer followed %s later.\n",
			duration(written.Sub(began)), duration(time.Since(written)))
		if err := d.askAll(ctx, c.then); err != nil {
			return err
		}
	}
	return nil
}

// changed returns the slice as c has it.
func (d *demo) changed(c change) (*unstructured.Unstructured, error) {
	b, err := os.ReadFile(filepath.Join(d.root, "examples", "db.yaml"))
	if err != nil {
		return nil, err
	}
	objects, err := controlplane.ParseYAML(b)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if u, ok := o.(*unstructured.Unstructured); ok && u.GetName() == c.slice {
			u.Object["endpoints"] = c.endpoints
			return u, nil
		}
	}
	return nil, fmt.Errorf("examples/db.yaml: want EndpointSlice %s", c.slice)
}

// await asks until there are as many records as q wants. That they are the right ones is checked with dig.
func (d *demo) await(ctx context.Context, q question) error {
	return d.server.Await(ctx, func(ctx context.Context) error {
		reply, err := server.Ask(ctx, d.port.String(), q.fqdn(), dns.StringToType[q.qtype])
		if err == nil && len(reply.Answer) != len(q.want) {
			err = fmt.Errorf("%s %s has %d records, want %d", q.fqdn(), q.qtype, len(reply.Answer), len(q.want))
		}
		return err
	})
}
