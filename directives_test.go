package clusterset

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/controller"
	"github.com/clusterset-dns/clusterset/plugin"
)

//go:generate go test -run ^TestDirectives$ . -update

var update = flag.Bool("update", false, "write what is generated from the directives")

// chartValues are the options of the controller that the chart sets by other values than controllerOptions.
var chartValues = []string{"broker", "controller_namespace", "vip", "endpoints"}

// TestDirectives compares README.md, docs/controller.md and the schema of the chart's values with the directives. With
// -update it writes them.
func TestDirectives(t *testing.T) {
	dns, control := plugin.Directives(), directives(new(controller.Config))
	var options []string
	for _, d := range control {
		if !slices.Contains(chartValues, d.Name) {
			options = append(options, fmt.Sprintf("        %q", d.Name))
		}
	}
	const end = "<!-- end -->\n"
	for _, g := range []struct{ file, begin, end, want string }{
		{"README.md", "<!-- directives: " + byGenerate, end, syntax("clusterset [ZONES...]", dns)},
		{"README.md", "<!-- explained: " + byGenerate, end, explained(dns)},
		{"README.md", "<!-- rare: " + byGenerate, end, rare(dns)},
		{"docs/controller.md", "<!-- options: " + byGenerate, end,
			"\n" + syntax("clusterset", control) + "\n" + explained(control) +
				"\nA normal cluster needs none of these:\n" + rare(control)},
		{"deploy/chart/values.schema.json", `"propertyNames": {"enum": [` + "\n", "      ]},\n", strings.Join(options, ",\n") + "\n"},
	} {
		content, err := os.ReadFile(g.file)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, began := strings.Cut(string(content), g.begin)
		_, after, ended := strings.Cut(rest, g.end)
		if !began || !ended {
			t.Fatalf("%s: want %q, and after it %q", g.file, g.begin, g.end)
		}
		want := before + g.begin + g.want + g.end + after
		if want == string(content) {
			continue
		}
		if !*update {
			t.Errorf("%s is not up to date: run \"make generate\"", g.file)
		} else if err := os.WriteFile(g.file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// columns is the length of a line of Markdown.
const columns = 160

const byGenerate = "generated from the directives by \"make generate\". Do not edit. -->\n"

func syntax(head string, all []plugin.Directive) string {
	var b strings.Builder
	fmt.Fprintf(&b, "~~~ txt\n%s {\n", head)
	for _, d := range all {
		fmt.Fprintf(&b, "    %s\n", strings.TrimSpace(d.Name+" "+d.Args))
	}
	b.WriteString("}\n~~~\n")
	return b.String()
}

func explained(all []plugin.Directive) string {
	var b strings.Builder
	for _, d := range all {
		text := fmt.Sprintf("* `%s`: %s", strings.TrimSpace(d.Name+" "+d.Args), d.Text)
		if d.Default != "" {
			text += fmt.Sprintf(" Default: `%s`.", d.Default)
		}
		width := 0
		for i, word := range strings.Split(text, " ") {
			switch {
			case i == 0:
			case width+1+len(word) > columns:
				b.WriteString("\n  ")
				width = 2
			default:
				b.WriteString(" ")
				width++
			}
			b.WriteString(word)
			width += len(word)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func rare(all []plugin.Directive) string {
	var b strings.Builder
	b.WriteString("\n| directive | needed |\n| --- | --- |\n")
	for _, d := range all {
		if d.Rare != "" {
			fmt.Fprintf(&b, "| `%s` | %s |\n", d.Name, d.Rare)
		}
	}
	return b.String()
}
