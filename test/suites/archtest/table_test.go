package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var quoted = regexp.MustCompile("`([a-z/]+)`")

// words of the table for several packages. An empty name stands for all of them.
var words = map[string][]string{
	"pure packages": {"controller/merge", "controller/export", "controller/vip", "controller/liveness", "controller/selection"},
	"all below":     {"controller/", "apiserver", "api/"},
	"each other":    {"api/"},
	"the rest":      {""},
	"everything":    {""},
}

// documented reads the table of docs/architecture.md: for each package what it may import of ours.
func documented(t *testing.T, all map[string]pkg) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	may := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || !strings.Contains(cells[0], "`") {
			continue
		}
		var allowed []string
		for word, stands := range words {
			if strings.Contains(cells[2], word) {
				allowed = append(allowed, stands...)
			}
		}
		for _, name := range names(cells[2], all) {
			if strings.Contains(cells[2], "those of `"+filepath.Base(name)) {
				allowed = append(allowed, may[name]...)
			}
			allowed = append(allowed, name)
		}
		if strings.HasPrefix(strings.TrimSpace(cells[0]), "root") {
			may[""] = allowed
			continue
		}
		for _, name := range names(cells[0], all) {
			may[name] = allowed
		}
	}
	return may
}

// names returns the packages that a cell of the table names. Those of the controller may be named without its path, and api/ stands for
// all of its packages.
func names(cell string, all map[string]pkg) (found []string) {
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		name := m[1]
		_, exists := all[module+"/"+name]
		_, part := all[module+"/controller/"+name]
		switch {
		case !exists && part:
			name = "controller/" + name
		case !exists:
			name += "/"
		}
		found = append(found, name)
	}
	return found
}

// TestTable holds the column "may import" of docs/architecture.md to the imports of each package that it names.
func TestTable(t *testing.T) {
	all := list(t)
	may := documented(t, all)
	for name, allowed := range may {
		p, ok := all[strings.TrimSuffix(module+"/"+name, "/")]
		if !ok {
			continue // a folder of packages
		}
		for _, path := range p.imports {
			used, ours := strings.CutPrefix(path, module+"/")
			permitted := func(a string) bool {
				return a == used || strings.HasSuffix(a, "/") && strings.HasPrefix(used, a) || a == ""
			}
			if ours && !slices.ContainsFunc(allowed, permitted) {
				t.Errorf("%s imports %s; docs/architecture.md allows %q", name, used, allowed)
			}
		}
	}
	for path := range all {
		name, ours := strings.CutPrefix(path, module+"/")
		covered := func(row string) bool { return row == name || strings.HasPrefix(name, strings.TrimSuffix(row, "/")+"/") }
		if ours && !slices.ContainsFunc(keys(may), covered) {
			t.Errorf("package %s has no row in docs/architecture.md", name)
		}
	}
}

func keys(m map[string][]string) (all []string) {
	for k := range m {
		if k != "" {
			all = append(all, k)
		}
	}
	return all
}
