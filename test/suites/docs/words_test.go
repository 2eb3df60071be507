package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/cache"
	"github.com/clusterset-dns/clusterset/controller/safety"
)

// wordsOf returns the words of a source.
func wordsOf(from reason.Source) (all []string) {
	for _, w := range reason.Words() {
		if w.Source == from {
			all = append(all, w.Text)
		}
	}
	return all
}

// docs/spec/controller.md 6.2 has all reasons of conditions, and so has the table of codes.
func TestReasonsOfConditions(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "docs/spec/controller.md"), "\n### 6.2 Values\n")
	text, _, _ = strings.Cut(text, "\n### ")
	for row, source := range map[string]reason.Source{
		"Valid": reason.Valid, "Ready (export)": reason.ExportReady, "Conflict": reason.Conflict,
		"Ready (import)": reason.ImportReady,
	} {
		_, values, ok := strings.Cut(text, "| "+row+" | ")
		if !ok {
			t.Fatalf("6.2 has no row %q", row)
		}
		values, _, _ = strings.Cut(values, "\n")
		var documented []string
		for _, m := range regexp.MustCompile(`\b[A-Z][a-z]*([A-Z][A-Za-z]+)?\b`).FindAllString(values, -1) {
			if m != "True" && m != "False" && m != "Unknown" {
				documented = append(documented, m)
			}
		}
		slices.Sort(documented)
		equalSets(t, "reason of "+row, slices.Compact(documented), wordsOf(source))
	}
}

// Each reason that the controller can write has a row in the table of codes, also one that it gets later.
func TestReasonsHaveWords(t *testing.T) {
	known := map[string]bool{}
	for _, source := range []reason.Source{reason.Valid, reason.ExportReady, reason.Conflict, reason.ImportReady} {
		for _, text := range wordsOf(source) {
			known[text] = true
		}
	}
	used := conditionReasons(t, "../../../controller", "../../../api/wellknown")
	for _, text := range slices.Sorted(maps.Keys(used)) {
		if !known[text] {
			t.Errorf("%s: reason %q of a condition is not in api/reason: give it a code", used[text], text)
		}
		delete(known, text)
	}
	if left := slices.Sorted(maps.Keys(known)); len(left) > 0 {
		t.Errorf("api/reason has %q, which no code writes", left)
	}
}

// conditionReasons returns the reasons of conditions in the source of folders, and where they are: constants of the MCS
// API, and own ones.
func conditionReasons(t *testing.T, folders ...string) map[string]string {
	t.Helper()
	used := map[string]string{}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if text := reasonIn(n); text != "" {
					used[text] = path
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return used
}

var ofMCS = regexp.MustCompile(`^Service(?:Ex|Im)portReason(\w+)$`)

// reasonIn returns the reason that a node names: mcsv1beta1.ServiceExportReasonNoService, or const ReasonNotMember =
// "NotMember".
func reasonIn(n ast.Node) string {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		if m := ofMCS.FindStringSubmatch(n.Sel.Name); m != nil {
			return m[1] // which is its value
		}
	case *ast.ValueSpec:
		if len(n.Names) != 1 || len(n.Values) != 1 || !strings.HasPrefix(n.Names[0].Name, "Reason") {
			return ""
		}
		if l, ok := n.Values[0].(*ast.BasicLit); ok && l.Kind == token.STRING {
			text, _ := strconv.Unquote(l.Value)
			return text
		}
	}
	return ""
}

// Each reason to freeze has a code. Codes of rejections are those of reasons that there are.
func TestFreezesAndRejectionsHaveCodes(t *testing.T) {
	var freezes []string
	for _, r := range safety.Reasons() {
		freezes = append(freezes, r.String())
		if reason.Of(reason.Frozen, r.String()) == "" {
			t.Errorf("freeze reason %s has no code", r)
		}
	}
	equalSets(t, "freeze reason", wordsOf(reason.Frozen), freezes)
	var dns []string
	for r := cache.BadObject; r <= cache.Panicked; r++ {
		dns = append(dns, r.String())
	}
	_, list, _ := strings.Cut(section(t, metricsDoc, "The controller"), "Here a `reason` of rejection is one of ")
	list, _, _ = strings.Cut(list, ".")
	for source, have := range map[reason.Source][]string{
		reason.RejectedOthers: quotedWords(list), reason.RejectedImport: dns, reason.RejectedSlice: dns,
	} {
		for _, text := range wordsOf(source) {
			if !slices.Contains(have, text) {
				t.Errorf("%s: %q is no reason of a rejection: %q are", source, text, have)
			}
		}
	}
}
