package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/server"
	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// exampleQuestions are about the objects in examples/, a shop in the clusters east, west and south.registry1.
var exampleQuestions = []question{
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

// TestManifests asks a server that reads examples/ as files.
func TestManifests(t *testing.T) {
	ctx := t.Context()
	root, err := server.Root(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "coredns")
	if err := server.Build(ctx, root, bin); err != nil {
		t.Fatal(err)
	}
	d := demo{out: t.Output()}
	if d.port, err = controlplane.ReservePort(); err != nil {
		t.Fatal(err)
	}
	corefile := fmt.Sprintf("%s:%d {\nbind 127.0.0.1\nclusterset {\nmanifests %s\n}\n}\n", zone, d.port.Number, filepath.Join(root, "examples"))
	file := filepath.Join(dir, "Corefile")
	if err := os.WriteFile(file, []byte(corefile), 0o600); err != nil {
		t.Fatal(err)
	}
	if d.server, err = server.Start(subprocess.Command{Bin: bin, Args: []string{"-conf", file}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}()
	err = d.server.Await(ctx, func(ctx context.Context) error { return server.Serves(ctx, d.port.String(), zone) })
	if err == nil {
		err = d.askAll(ctx, exampleQuestions)
	}
	if err != nil {
		t.Error(err)
	}
}
