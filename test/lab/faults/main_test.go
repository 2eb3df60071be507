package main

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/test/harness/outages"
)

// The table has the failures, the tests that did not run, the faults without a test, the figures, and those beyond
// their bound.
func TestPrint(t *testing.T) {
	a, b := outages.Test{Dir: "x", Name: "TestA"}, outages.Test{Dir: "x", Name: "TestB"}
	faults := []outages.Fault{
		{ID: "F1", Bound: "5 s", Tests: []outages.Test{a}},
		{ID: "F2", Bound: "0 lost, 1 request a second", Tests: []outages.Test{a, b}},
	}
	for _, tt := range []struct {
		name, events, want, bound string
		untested, ok              bool
	}{
		{name: "passed", ok: true,
			events: `{"Action":"attr","Test":"TestA","Key":"measured","Value":"{\"ID\":\"F1\",\"What\":\"0 lost\"}"}
{"Action":"attr","Test":"TestA","Key":"measured","Value":"{\"ID\":\"F1\",\"What\":\"back\",\"Took\":2000000000,\"Bound\":5000000000}"}
{"Action":"pass","Test":"TestA"}
{"Action":"pass","Test":"TestB"}`,
			want: "F1 pass 5 s 0 lost; back: 2 s\nF2 pass 0 lost, 1 request a second -"},
		{name: "one took too long",
			events: `{"Action":"attr","Test":"TestA","Key":"measured","Value":"{\"ID\":\"F1\",\"What\":\"back\",\"Took\":5100000000,\"Bound\":5000000000}"}
{"Action":"pass","Test":"TestA"}
{"Action":"pass","Test":"TestB"}`,
			want: "F1 over 5 s back: 5.1 s, over 5 s\nF2 pass 0 lost, 1 request a second -"},
		{name: "one has a bound that the table has not",
			events: `{"Action":"attr","Test":"TestA","Key":"measured","Value":"{\"ID\":\"F1\",\"What\":\"back\",\"Took\":1,\"Bound\":15000000000}"}
{"Action":"pass","Test":"TestA"}
{"Action":"pass","Test":"TestB"}`,
			want: "F1 another bound 5 s back: 1e-09 s\nF2 pass 0 lost, 1 request a second -"},
		{name: "one has a bound that begins as that of the table", bound: "5 services",
			events: `{"Action":"attr","Test":"TestA","Key":"measured","Value":"{\"ID\":\"F1\",\"What\":\"back\",\"Took\":1,\"Bound\":5000000000}"}
{"Action":"pass","Test":"TestA"}
{"Action":"pass","Test":"TestB"}`,
			want: "F1 another bound 5 services back: 1e-09 s\nF2 pass 0 lost, 1 request a second -"},
		{name: "one has no test", untested: true, events: `{"Action":"pass","Test":"TestA"}
{"Action":"pass","Test":"TestB"}`,
			want: "F1 not measured 5 s -\nF2 pass 0 lost, 1 request a second -\nF3 no test - -"},
		{name: "one of two times is not measured", bound: "5 s; 300 ms where it is warm",
			events: `{"Action":"attr","Test":"TestA","Key":"measured","Value":"{\"ID\":\"F1\",\"What\":\"back\",\"Took\":1,\"Bound\":5000000000}"}
{"Action":"pass","Test":"TestA"}
{"Action":"pass","Test":"TestB"}`,
			want: "F1 not measured 5 s; 300 ms where it is warm back: 1e-09 s\nF2 pass 0 lost, 1 request a second -"},
		{name: "one failed", events: `{"Action":"pass","Test":"TestA"}
{"Action":"fail","Test":"TestB"}`,
			want: "F1 not measured 5 s -\nF2 fail 0 lost, 1 request a second -"},
		{name: "one did not run", events: `{"Action":"pass","Test":"TestB"}`,
			want: "F1 did not run 5 s -\nF2 did not run 0 lost, 1 request a second -"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := outcomes{status: map[outages.Test]string{}, measured: map[string][]outages.Measurement{}}
			for line := range strings.Lines(tt.events) {
				if err := o.add("x", []byte(line)); err != nil {
					t.Fatal(err)
				}
			}
			faults := slices.Clone(faults)
			faults[0].Bound = cmp.Or(tt.bound, faults[0].Bound)
			if tt.untested {
				faults = append(faults, outages.Fault{ID: "F3", Bound: "-"})
			}
			var out strings.Builder
			if ok := o.print(&out, faults); ok != tt.ok {
				t.Errorf("print = %t, want %t", ok, tt.ok)
			}
			var got []string
			for line := range strings.Lines(out.String()) {
				got = append(got, strings.Join(strings.Fields(line), " "))
			}
			if text := strings.Join(got[1:], "\n"); text != tt.want {
				t.Errorf("table:\n%s\nwant:\n%s", text, tt.want)
			}
		})
	}
}
