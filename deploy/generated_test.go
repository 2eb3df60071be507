package deploy

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the generated files anew")

// generated are the files that the chart is the source of.
var generated = map[string]struct {
	mode     Mode
	template string
}{
	"dns/dns.yaml":               {OnlyDNS, "dns"},
	"dns/rbac.yaml":              {OnlyDNS, "dns-rbac"},
	"controller/controller.yaml": {OnlyController, "controller"},
	"controller/rbac.yaml":       {OnlyController, "controller-rbac"},
	"all-in-one/all-in-one.yaml": {AllInOne, "all-in-one"},
	"all-in-one/rbac.yaml":       {AllInOne, "all-in-one-rbac"},
}

const generatedHead = "# Generated from deploy/chart by \"make generate\". Do not edit.\n#\n"

// TestGenerated compares the manifests with the chart. With -update it writes them.
func TestGenerated(t *testing.T) {
	for file, from := range generated {
		text, err := render(from.template, Options{Mode: from.mode})
		if err != nil {
			t.Fatal(err)
		}
		text = append([]byte(generatedHead), text...)
		if *update {
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if existing, err := os.ReadFile(file); err != nil || !bytes.Equal(existing, text) {
			t.Errorf("%s is not up to date (%v): run \"make generate\"", file, err)
		}
	}
}
