package reason

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

//go:generate go test -run ^TestTroubleshooting$ . -update

var update = flag.Bool("update", false, "write the table of codes into docs/troubleshooting.md")

// TestTroubleshooting compares the table of docs/troubleshooting.md with the codes. With -update it writes the table.
func TestTroubleshooting(t *testing.T) {
	const file, mark = "../../docs/troubleshooting.md",
		"<!-- codes: generated from api/reason by \"make generate\". Do not edit. -->\n"
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(content), mark)
	if !ok {
		t.Fatalf("%s has no line %q", file, mark)
	}
	want := head + mark + markdown()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(content) != want {
		t.Errorf("%s is not up to date: run \"make generate\"", file)
	}
}

func markdown() string {
	var b strings.Builder
	b.WriteString("\n| code | meaning | what to do |\n| --- | --- | --- |\n")
	for _, e := range Codes() {
		meaning := e.Meaning
		if e.Cause != "" {
			meaning += ": " + e.Cause
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", e.Code, meaning, e.Remedy)
	}
	return b.String()
}

// docs/spec/explain.md 4: each constant has one entry, in the same order, with a text for each column that needs one.
func TestCodes(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var constants []Code
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if l, ok := v.Values[0].(*ast.BasicLit); ok {
				text, _ := strconv.Unquote(l.Value)
				constants = append(constants, Code(text))
			}
		}
		return true
	})
	var entries []Code
	words := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for _, e := range Codes() {
		entries = append(entries, e.Code)
		if !words.MatchString(string(e.Code)) || e.Meaning == "" || !strings.HasSuffix(e.Remedy, ".") ||
			strings.HasSuffix(e.Meaning, ".") {
			t.Errorf("entry %+v: want words, a meaning without full stop, and a remedy of sentences", e)
		}
	}
	if !slices.Equal(entries, constants) {
		t.Errorf("entries = %q, want the constants, %q", entries, constants)
	}
}
