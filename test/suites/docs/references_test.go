package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// texts returns the source and documents of the repository by their paths in it.
func texts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == ".git" || name == "bin"):
			return filepath.SkipDir
		case entry.IsDir() || !slices.Contains([]string{".go", ".md", ".yaml", ".txtar", ".example", "Makefile", "Corefile"},
			kind(name)):
			return nil
		}
		text, err := os.ReadFile(file)
		all[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 300 {
		t.Fatalf("%d files: want those of the repository", len(all))
	}
	return all
}

// kind is the extension of a file, or its name if it has none.
func kind(name string) string {
	if ext := path.Ext(name); ext != "" {
		return ext
	}
	return path.Base(name)
}

// sections returns the numbers of the sections of a document of rules: "3" and "3.2".
func sections(t *testing.T, document string) []string {
	t.Helper()
	var numbers []string
	for _, m := range regexp.MustCompile(`(?m)^(?:## (\d+)\.|### (\d+\.\d+)) \S`).FindAllStringSubmatch(read(t, document), -1) {
		numbers = append(numbers, m[1]+m[2])
	}
	for i, number := range numbers[1:] {
		if !follows(numbers[i], number) {
			t.Errorf("%s: section %s after %s", document, number, numbers[i])
		}
	}
	return numbers
}

// follows reports whether one section can stand right after another: 1 and 1.1, 1.1 and 1.2, 1.2 and 2.
func follows(before, after string) bool {
	top, sub, _ := strings.Cut(before, ".")
	return after == top+"."+next(sub) || after == next(top)
}

// next returns the decimal number after n, "1" after "".
func next(n string) string {
	digits := []byte("0" + n)
	for i := len(digits) - 1; ; i-- {
		if digits[i] < '9' {
			digits[i]++
			return strings.TrimLeft(string(digits), "0")
		}
		digits[i] = '0'
	}
}

var citation = regexp.MustCompile(`docs/spec/([\w-]+)\.md(\s+(?:(?://|#)\s*)?)(\d+(?:\.\d+)*)((?:,|\s+and|\s+or|\s+to)\s+(?:(?://|#)\s*)?\d)?`)

// TestCitations finds every section of the rules that source and documents cite.
func TestCitations(t *testing.T) {
	documents, err := filepath.Glob(filepath.Join(root, "docs/spec/*.md"))
	if err != nil || len(documents) < 7 {
		t.Fatalf("documents of rules: %q, %v", documents, err)
	}
	known := map[string][]string{}
	for _, document := range documents {
		name := filepath.Base(document)
		known[strings.TrimSuffix(name, ".md")] = sections(t, "docs/spec/"+name)
	}
	found := 0
	for file, text := range texts(t) {
		for _, m := range citation.FindAllStringSubmatch(text, -1) {
			found++
			if m[2] != " " {
				t.Errorf("%s: %q: want path and section on one line, with one blank between", file, m[0])
			}
			if m[4] != "" {
				t.Errorf("%s: %q: want the path before each section, so that each is checked", file, m[0])
			}
			if !slices.Contains(known[m[1]], m[3]) {
				t.Errorf("%s cites docs/spec/%s.md %s, which does not exist", file, m[1], m[3])
			}
		}
	}
	if found < 30 {
		t.Errorf("%d citations, want those of the whole repository", found)
	}
}

var (
	bareSection = regexp.MustCompile(`(?i)\bsections? \d|\bof the rules\b|\b(?:the DNS|controller's) rules\b`)
	namedSource = regexp.MustCompile(`RFC \d+|KEP-\d+|KEP'?s?|[sS]pecification|\.md`)
	lineStart   = regexp.MustCompile(`\s*\n\s*(?://|#)?\s*`)
)

// TestSectionsAreNamed finds references to a section that do not say of which document.
func TestSectionsAreNamed(t *testing.T) {
	for file, text := range texts(t) {
		// The rules refer to themselves, and this test has what it searches for.
		if path.Dir(file) == "docs/spec" || path.Base(file) == "references_test.go" {
			continue
		}
		text = lineStart.ReplaceAllString(text, " ")
		for _, at := range bareSection.FindAllStringIndex(text, -1) {
			around := text[max(0, at[0]-60):min(len(text), at[1]+60)]
			if !namedSource.MatchString(around) {
				t.Errorf("%s: %q: want the document beside the section", file, around)
			}
		}
	}
}

var (
	fence     = regexp.MustCompile("(?ms)^ *(?:~~~|```).*?^ *(?:~~~|```) *$")
	inline    = regexp.MustCompile("`[^`\n]*`")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.+)$`)
	noAnchor  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	mentioned = regexp.MustCompile(`\bdocs/[\w/-]+\.md\b`)
)

// anchors returns what a link to a heading of the document has behind "#", as GitHub makes it.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		slug := noAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(slug, " ", "-"))
	}
	return all
}

// TestLinks follows every relative link of every document, to its file and its heading.
func TestLinks(t *testing.T) {
	all, found := texts(t), 0
	for file, text := range all {
		if path.Ext(file) != ".md" {
			continue
		}
		text = inline.ReplaceAllString(fence.ReplaceAllString(text, ""), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			found++
			target, anchor, _ := strings.Cut(m[1], "#")
			to := file
			if target != "" {
				to = path.Join(path.Dir(file), target)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s links %s: %v", file, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(all[to]), anchor) {
				t.Errorf("%s links %s: want one of the headings %q", file, m[1], anchors(all[to]))
			}
		}
	}
	if found < 30 {
		t.Errorf("%d links, want those of all documents", found)
	}
}

// TestMentions finds every document that source or another document names by its path in the repository.
func TestMentions(t *testing.T) {
	for file, text := range texts(t) {
		for _, name := range mentioned.FindAllString(text, -1) {
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("%s names %s: %v", file, name, err)
			}
		}
	}
}

// TestQuotedLogs finds the log lines that docs/troubleshooting.md quotes in the source.
func TestQuotedLogs(t *testing.T) {
	var source strings.Builder
	for file, text := range texts(t) {
		if path.Ext(file) == ".go" && !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(file, "test/") {
			source.WriteString(text)
		}
	}
	quotes := regexp.MustCompile("log: ((?:`[^`]+`(?:, )?)+)").FindAllStringSubmatch(read(t, "docs/troubleshooting.md"), -1)
	if len(quotes) < 3 {
		t.Errorf("%d rows quote the log, want those that a log explains", len(quotes))
	}
	for _, quote := range quotes {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(quote[1], -1) {
			if !strings.Contains(source.String(), m[1]) {
				t.Errorf("docs/troubleshooting.md quotes the log line %q, which the source does not have", m[1])
			}
		}
	}
}
