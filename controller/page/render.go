package page

import (
	"crypto/sha256"
	_ "embed" // style sheet and template
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed style.css
var style string

//go:embed page.html
var source string

var html = template.Must(template.New("page").Funcs(template.FuncMap{
	"ago": ago, "count": count, "class": MemberState.class, "duration": duration, "join": join, "shown": partText,
	"stamp": stamp,
}).Parse(strings.Replace(source, "STYLE", style, 1)))

// Policy is the Content-Security-Policy of the page: its own style sheet, its own form, and nothing else.
func Policy() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}

// A document is what the template reads.
type document struct {
	Status
	Query                             Query
	Title                             string
	Same, Once, Often, Previous, Next string
	Map                               exportMap
}

// HTML writes the page for a status and the query that it was made for.
func HTML(w io.Writer, s Status, q Query) error {
	exports := mapOf(s)
	s = s.Bound()
	d := document{Status: s, Query: q, Title: "Clusterset: status", Map: exports}
	if s.Cluster != "" {
		d.Title = "Clusterset: status of " + s.Cluster
	}
	at := s.Services.Page
	d.Same, d.Once, d.Often = q.path(at, q.Refresh), q.path(at, false), q.path(at, true)
	if at > 1 {
		d.Previous = q.path(at-1, q.Refresh) + "#services"
	}
	if at < s.Services.Pages {
		d.Next = q.path(at+1, q.Refresh) + "#services"
	}
	return html.Execute(w, d)
}

// JSON writes a status for programs.
func JSON(w io.Writer, s Status) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(s.Bound())
}

// ago returns the time from t to now.
func ago(now, t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	// Both texts are made here from a time.
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s ago</time>`, stamp(t), duration(max(now.Sub(t), 0))))
}

func join(all []string) string { return strings.Join(all, ", ") }

// partText returns the text for the shown part of a list.
func partText(n, all int, what string) string {
	if n < all {
		return fmt.Sprintf("%d of %s", n, count(all, what))
	}
	return count(all, what)
}
