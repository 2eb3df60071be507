package archtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the directory of this module, seen from this package.
const root = "../../.."

// A fileGraph has the files of one package that use an identifier that another file of it declares: a function, a type,
// a method, a field, a variable or a constant.
type fileGraph map[string]map[string]string // user, used, an identifier as an example

// graphOf returns the graph of the files of one package, by name. Imported packages are not read: no identifier of
// theirs is declared in the package.
func graphOf(fset *token.FileSet, files []*ast.File) fileGraph {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}}
	pkg, _ := config.Check("p", fset, files, info) // the missing imports are errors
	name := func(p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }
	graph := fileGraph{}
	for _, f := range files {
		graph[name(f.Pos())] = map[string]string{}
	}
	for id, object := range info.Uses {
		if object.Pkg() != pkg || !object.Pos().IsValid() {
			continue
		}
		if user, used := name(id.Pos()), name(object.Pos()); user != used {
			if before := graph[user][used]; before == "" || id.Name < before {
				graph[user][used] = id.Name
			}
		}
	}
	return graph
}

// noImports is an importer without packages.
type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not read") }

// cycle returns the files of a cycle, in the order of their use, nil if there is none.
func (g fileGraph) cycle() []string {
	const visiting, done = 1, 2
	state := map[string]int{}
	var path []string
	var visit func(string) []string
	visit = func(file string) []string {
		if state[file] == done {
			return nil
		}
		if state[file] == visiting {
			return append(slices.Clone(path[slices.Index(path, file):]), file)
		}
		state[file] = visiting
		path = append(path, file)
		for _, used := range slices.Sorted(maps.Keys(g[file])) {
			if found := visit(used); found != nil {
				return found
			}
		}
		path = path[:len(path)-1]
		state[file] = done
		return nil
	}
	for _, file := range slices.Sorted(maps.Keys(g)) {
		if found := visit(file); found != nil {
			return found
		}
	}
	return nil
}

// describe names the uses along a cycle.
func (g fileGraph) describe(cycle []string) string {
	var text []string
	for i := range max(len(cycle)-1, 0) {
		text = append(text, fmt.Sprintf("%s uses %s of %s", cycle[i], g[cycle[i]][cycle[i+1]], cycle[i+1]))
	}
	return strings.Join(text, ", ")
}

// parse reads the files of a package without its tests, nil if it has none.
func parse(t *testing.T, fset *token.FileSet, dir string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// In each package files use each other in one direction, so it can be read from one end to the other.
func TestFilesHaveNoCycle(t *testing.T) {
	packages := 0
	err := filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if d.Name() == ".git" {
			return fs.SkipDir
		}
		fset := token.NewFileSet()
		files := parse(t, fset, dir)
		name := strings.TrimPrefix(filepath.ToSlash(dir), root+"/")
		if len(files) == 0 {
			return nil
		}
		packages++
		g := graphOf(fset, files)
		if c := g.cycle(); c != nil {
			t.Errorf("%s: %s", name, g.describe(c))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if packages < 70 {
		t.Errorf("%d packages were read, want at least 70", packages)
	}
}

// TestCycleIsFound shows what counts as a use, and that a cycle is found.
func TestCycleIsFound(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files []string
		want  string
	}{
		{name: "one direction", files: []string{"func A() { B() }", "func B() {}"}},
		{name: "functions", files: []string{"func A() { B() }", "func B() { A() }"},
			want: "0.go uses B of 1.go, 1.go uses A of 0.go"},
		{name: "a method", files: []string{"type T struct{}\nfunc New() T { var t T; t.Run(); return t }",
			"func (t T) Run() {}"},
			want: "0.go uses Run of 1.go, 1.go uses T of 0.go"},
		{name: "a field", files: []string{"type T struct{ n int }\nvar x = f(T{})", "func f(t T) int { return t.n }"},
			want: "0.go uses f of 1.go, 1.go uses T of 0.go"},
		{name: "a local name", files: []string{"func A() { B() }", "func B() { A := 1; _ = A }"}},
		{name: "an import of that name", files: []string{"import \"x/A\"\nfunc f() { A.B(); g() }",
			"func g() {}\nfunc B() {}"}},
		{name: "over three files", files: []string{"func A() { B() }", "func B() { C() }", "func C() { A() }"},
			want: "0.go uses B of 1.go, 1.go uses C of 2.go, 2.go uses A of 0.go"},
	} {
		fset := token.NewFileSet()
		var files []*ast.File
		for i, text := range tt.files {
			f, err := parser.ParseFile(fset, fmt.Sprint(i, ".go"), "package p\n"+text, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		g := graphOf(fset, files)
		if got := g.describe(g.cycle()); got != tt.want {
			t.Errorf("%s: cycle = %q, want %q", tt.name, got, tt.want)
		}
	}
}
