package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostFiles is how many files the methods of one type may be in: a type in more of them does several jobs.
const mostFiles = 10

// methodFiles returns the names of the files that have methods of a type, by the name of the type.
func methodFiles(fset *token.FileSet, files []*ast.File) map[string][]string {
	in := map[string]map[string]bool{}
	for _, f := range files {
		for _, d := range f.Decls {
			method, ok := d.(*ast.FuncDecl)
			if !ok || method.Recv == nil {
				continue
			}
			typ := receiver(method.Recv.List[0].Type)
			if in[typ] == nil {
				in[typ] = map[string]bool{}
			}
			in[typ][filepath.Base(fset.Position(f.Pos()).Filename)] = true
		}
	}
	all := map[string][]string{}
	for typ, names := range in {
		all[typ] = slices.Sorted(maps.Keys(names))
	}
	return all
}

// receiver returns the name of the type in T, *T and T[P].
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	}
	return "" // the language has no other form
}

// TestMethodsAreInFewFiles holds the types of the product to a rule of docs/architecture.md: no type has methods in
// more than ten files.
func TestMethodsAreInFewFiles(t *testing.T) {
	types := 0
	err := filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if d.Name() == ".git" || dir == filepath.Join(root, "test") {
			return filepath.SkipDir
		}
		fset := token.NewFileSet()
		for typ, files := range methodFiles(fset, parse(t, fset, dir)) {
			types++
			if len(files) > mostFiles {
				t.Errorf("%s: type %s has methods in %d files, want at most %d: %s",
					strings.TrimPrefix(filepath.ToSlash(dir), root+"/"), typ, len(files), mostFiles,
					strings.Join(files, ", "))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if types < 100 {
		t.Errorf("%d types with methods were read, want those of the module", types)
	}
}

// TestMethodsAreFound shows that methods of every form of receiver count for their type.
func TestMethodsAreFound(t *testing.T) {
	fset := token.NewFileSet()
	var files []*ast.File
	for name, text := range map[string]string{"a.go": "func (t *T[P]) A() {}", "b.go": "func (T[P]) B() {}\nfunc F() {}",
		"c.go": "func (U) C() {}"} {
		f, err := parser.ParseFile(fset, name, "package p\n"+text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	got := methodFiles(fset, files)
	if !slices.Equal(got["T"], []string{"a.go", "b.go"}) || !slices.Equal(got["U"], []string{"c.go"}) || len(got) != 2 {
		t.Errorf("methods are in %v, want those of T in a.go and b.go, of U in c.go", got)
	}
}
