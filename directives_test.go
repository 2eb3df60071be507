package clusterset

import (
	"flag"
	"fmt"
	"os"
	"regexp"
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
			options = append(options, fmt.Sprintf("        %q: %s", d.Name, schema(t, d.Args)))
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
		{"deploy/chart/values.schema.json", `"controllerOptions": {` + "\n" + `      "properties": {` + "\n", "      },\n",
			strings.Join(options, ",\n") + "\n"},
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

const (
	labelPattern    = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
	durationPattern = `(0|([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+)`
	requirement     = `[-0-9A-Za-z_./=!(),]+`
)

// arguments has a regular expression for each argument of the options in the chart. None matches a quote, a brace or a
// line break, which would change the Corefile or the manifest.
var arguments = map[string]string{
	"ID": labelPattern + "([.]" + labelPattern + ")?", "NAME": labelPattern,
	"SELECTOR": requirement + "( " + requirement + ")*",
	"RENEW":    durationPattern, "TTL": durationPattern, "DURATION": durationPattern, "DELAY": durationPattern,
	"CIDR": "[0-9A-Fa-f.:]+/[0-9]+", "ADDRESS": `([0-9.]+|\[[0-9A-Fa-f.:]+\]):[0-9]+`,
	"QPS": "([1-9][0-9]*([.][0-9]+)?|0[.][0-9]*[1-9][0-9]*)", "BURST": "[1-9][0-9]*",
}

var argument = regexp.MustCompile("[A-Z]+")

// pattern returns a regular expression for arguments in the notation of README.md, in which a last optional argument
// may follow each alternative. It matches all that the option accepts, but for rare spellings of numbers: +5s, 1e3. The
// option checks bounds.
func pattern(t *testing.T, args string) string {
	t.Helper()
	for _, r := range []struct{ from, to string }{
		{`^(.*?)( \[\w+\])?$`, "^(${1})${2}$$"},
		{` \[(\w+)\.\.\.\]`, "( ${1})*"}, {` \[(\w+)\]`, "( ${1})?"}, {`(\w+)\.\.\.`, "${1}( ${1})*"},
	} {
		args = regexp.MustCompile(r.from).ReplaceAllString(args, r.to)
	}
	return argument.ReplaceAllStringFunc(args, func(name string) string {
		if arguments[name] == "" {
			t.Fatalf("argument %s: want a pattern for it", name)
		}
		return arguments[name]
	})
}

// schema returns the schema of an option in the values of the chart. YAML reads on and off as booleans.
func schema(t *testing.T, args string) string {
	t.Helper()
	types, bounds := `"string"`, ""
	matches := regexp.MustCompile(pattern(t, args)).MatchString
	if matches("on") && matches("off") && !matches("7") {
		types += `, "boolean"`
	}
	switch zero, seven := matches("0"), matches("7"); {
	case zero && !seven:
		types, bounds = types+`, "integer"`, `, "minimum": 0, "maximum": 0`
	case zero:
		types, bounds = types+`, "integer"`, `, "minimum": 0`
	case seven:
		types, bounds = types+`, "integer"`, `, "minimum": 1`
	}
	return fmt.Sprintf(`{"type": [%s], "pattern": %q%s}`, types, pattern(t, args), bounds)
}

// TestPatterns: the schema of the chart rejects nothing that an option accepts.
func TestPatterns(t *testing.T) {
	words := strings.Fields("0 7 0.5 0s 1s 5s 60s 1h30m banana east east.eu a=b a!=b on off kep lighthouse first local " +
		"region remote none last_resort remove keep create 10.0.0.0/8 fd00::/108 127.0.0.1:80 [::]:9154")
	accepted := 0
	for _, o := range controller.Options() {
		if slices.Contains(chartValues, o.Name) {
			continue
		}
		matches := regexp.MustCompile(pattern(t, o.Args)).MatchString
		for _, first := range words {
			for _, second := range []string{"", "0s", "60s", "7", "fd00::/108", "a"} {
				args := strings.Fields(first + " " + second)
				if len(args) < o.Min || o.Max >= 0 && len(args) > o.Max || o.Set(new(controller.Config), args) != nil {
					continue
				}
				accepted++
				if text := strings.Join(args, " "); !matches(text) {
					t.Errorf("%s %s is accepted, and %s does not match it", o.Name, text, pattern(t, o.Args))
				}
			}
		}
	}
	if accepted < 50 {
		t.Errorf("%d values are accepted, want more to compare", accepted)
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
