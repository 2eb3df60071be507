package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/program"
	"github.com/clusterset-dns/clusterset/test/tools/demo/ask"
)

// exampleQuestions are about the objects in examples/, a shop in the clusters east, west and south.registry1.
var exampleQuestions = []ask.Question{
	{
		Shows: "web is a ClusterSetIP service: one virtual IP for all clusters.",
		Name:  "web.shop", Qtype: "A", Want: []string{"A 10.200.0.10"},
	},
	{
		Shows: "It has one of the other family, too.",
		Name:  "web.shop", Qtype: "AAAA", Want: []string{"AAAA fd00:200::10"},
	},
	{
		Shows: "The endpoints of one cluster have a name as well.",
		Name:  "west.web.shop", Qtype: "A", Want: []string{"A 10.2.0.11"},
	},
	{
		Shows: "payment has no virtual IP, so the local cluster answers as long as it has an endpoint.",
		Name:  "payment.bank", Qtype: "A", Want: []string{"A 10.96.1.40"},
	},
	{
		Shows: "db is headless: its name has the ready endpoints of all clusters.",
		Name:  "db.shop", Qtype: "A", Want: []string{"A 10.1.0.20", "A 10.1.0.21", "A 10.2.0.20", "A 10.3.0.20"},
	},
	{
		Shows: "Each endpoint has a name below that of its cluster: Pod db-0 in east,",
		Name:  "db-0.east.db.shop", Qtype: "AAAA", Want: []string{"AAAA fd00:1::20"},
	},
	{
		Shows: "and in south.registry1, a cluster whose id has a dot.",
		Name:  "db-0.south.registry1.db.shop", Qtype: "A", Want: []string{"A 10.3.0.20"},
	},
	{
		Shows: "A Pod without a hostname is named after its address.",
		Name:  "10-1-0-31.east.cache.shop", Qtype: "A", Want: []string{"A 10.1.0.31"},
	},
	{
		Shows: "An SRV record has port and host; the addresses of the host come along.",
		Name:  "_redis._tcp.cache.shop", Qtype: "SRV", Want: []string{
			"SRV 0 50 6379 10-1-0-31.east.cache.shop.svc.clusterset.local.",
			"SRV 0 50 6379 fd00-2--31.west.cache.shop.svc.clusterset.local.",
			"A 10.1.0.31", "AAAA fd00:2::31",
		},
	},
	{
		Shows: "NODATA: the name exists, but the cache in west has no IPv4 address.",
		Name:  "west.cache.shop", Qtype: "A",
	},
	{
		Shows: "NXDOMAIN: no such name. This endpoint exists, but is not ready.",
		Name:  "10-1-0-32.east.cache.shop", Qtype: "A", Status: "NXDOMAIN",
	},
}

// start serves the folder examples until the test ends.
func start(t *testing.T) ask.Client {
	t.Helper()
	s, err := serve("../../../../examples")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	if err := s.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	return ask.Client{Out: t.Output(), Port: s.port}
}

func TestExamples(t *testing.T) {
	if err := start(t).All(t.Context(), slices.Concat(questions, exampleQuestions)); err != nil {
		t.Error(err)
	}
}

func TestWrongAnswer(t *testing.T) {
	c := start(t)
	var out bytes.Buffer
	c.Out = &out
	err := c.All(t.Context(), []ask.Question{{Name: "web.shop", Qtype: "A", Want: []string{"A 10.200.0.11"}},
		questions[0]})
	if err == nil || !strings.HasSuffix(err.Error(), ": web.shop.svc.clusterset.local A") {
		t.Errorf("All = %v, want an error that names the question", err)
	}
	const want = `WRONG: records ["A 10.200.0.10"], want ["A 10.200.0.11"]`
	if !strings.Contains(out.String(), want) {
		t.Errorf("output = %s\nwant %s in it", &out, want)
	}
}

var id = regexp.MustCompile(`, id: \d+`)

// sortedLines returns the lines without the id of the message, which is random. They are sorted, since the server
// rotates the records.
func sortedLines(out string) []string {
	return slices.Sorted(strings.Lines(id.ReplaceAllString(strings.TrimLeft(out, "\n"), "")))
}

// TestQueryPrintsWhatDigPrints compares all lines of both programs.
func TestQueryPrintsWhatDigPrints(t *testing.T) {
	c := start(t)
	dig := c
	dig.Dig = program.Find(t, "dig")
	short := []ask.Question{{Name: "dns-version." + ask.Zone + ".", Qtype: "TXT"}, {Name: ask.Zone, Qtype: "SOA"}}
	for _, q := range slices.Concat(exampleQuestions, short) {
		name := q.FQDN()
		if q.Shows == "" {
			name = q.Name
		}
		want, err := dig.Run(t.Context(), name, q.Qtype)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Run(t.Context(), name, q.Qtype)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := sortedLines(got), sortedLines(want); !slices.Equal(got, want) {
			t.Errorf("%s %s: got\n%q\nwant\n%q", name, q.Qtype, got, want)
		}
	}
}
