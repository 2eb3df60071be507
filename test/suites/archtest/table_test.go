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
	"pure packages": {"controller/merge", "controller/desired", "controller/export", "controller/liveness",
		"controller/selection"},
	"all below":  {"controller/", "apiserver", "api/"},
	"each other": {"api/"},
	"the rest":   {""},
	"everything": {""},
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

// names returns the packages that a cell of the table names. Those of the controller may be named without its path. A
// name that ends in a slash, or that is no package, stands for all packages there.
func names(cell string, all map[string]pkg) (found []string) {
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		name := strings.TrimSuffix(m[1], "/")
		folder := name != m[1]
		_, exists := all[module+"/"+name]
		_, part := all[module+"/controller/"+name]
		switch {
		case !exists && part:
			name = "controller/" + name
		case !exists || folder:
			name += "/"
		}
		found = append(found, name)
	}
	return found
}

// rowOf returns the row of a package: its own, or the longest one of a folder that has it, which ends in a slash.
func rowOf(name string, may map[string][]string) (row string, ok bool) {
	if _, ok = may[name]; ok {
		return name, true
	}
	for folder := range may {
		if strings.HasSuffix(folder, "/") && strings.HasPrefix(name+"/", folder) && len(folder) > len(row) {
			row, ok = folder, true
		}
	}
	return row, ok
}

// TestTable holds the column "may import" of docs/architecture.md to the imports of all packages, each of which has a
// row: one of its own, or that of a folder.
func TestTable(t *testing.T) {
	all := list(t)
	may := documented(t, all)
	for path, p := range all {
		name, ours := strings.CutPrefix(path+"/", module+"/")
		if !ours {
			continue
		}
		row, ok := rowOf(strings.TrimSuffix(name, "/"), may)
		if !ok {
			t.Errorf("package %s has no row in docs/architecture.md", path)
		}
		for _, path := range p.imports {
			used, ours := strings.CutPrefix(path, module+"/")
			permitted := func(a string) bool {
				return a == used || strings.HasSuffix(a, "/") && strings.HasPrefix(used, a) || a == ""
			}
			if ours && !slices.ContainsFunc(may[row], permitted) {
				t.Errorf("%s imports %s; docs/architecture.md allows %q", path, used, may[row])
			}
		}
	}
}
