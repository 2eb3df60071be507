package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the pages into testdata")

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) time.Time { return now.Add(-d) }

// example is a clusterset in which something of each kind is to be seen. text disguises each text of others.
func example(text func(string) string) Status {
	return Status{
		At: now, Instance: "node-1_3f", Version: "0.9.0", Cluster: text("east"),
		State: State{Leads: true, Detail: "This instance leads.", Since: before(time.Hour)},
		Broker: Link{Membership: "admitted", Detail: text("no contact with the broker for 31s"),
			CredentialExpires: before(-36 * time.Hour), CredentialEnds: true},
		DNS:    &DNS{Service: text("clusterset-system/clusterset-dns")},
		Failed: []Service{{Name: text("shop/cart"), State: text("export: NoService: There is no Service."), Failed: true}},
		Counts: Counts{Members: 4, Expired: 1, Failed: 2, Services: 4, Exports: 2, Imports: 2, Conflicts: 1, Selections: 1},
		Frozen: []Freeze{{Reason: "own_heartbeat", Code: "controller-frozen", Detail: text("for 30s no heartbeat came back"),
			Suspends: "expiry", Since: before(90 * time.Second)}},
		Members: []Member{
			{ID: text("east"), State: Self, Heartbeat: before(3 * time.Second), TTL: time.Minute, Version: text("0.9.0"),
				Exports: 2, Imported: 2},
			{ID: text("north"), State: Expired, Since: before(20 * time.Minute), Heartbeat: before(21 * time.Minute),
				TTL: time.Minute, Exports: 1, Imported: 1, Offered: 1},
			{ID: text("south"), State: NoHeartbeat, TTL: time.Hour},
			{ID: text("west"), State: Live, Heartbeat: before(72 * time.Hour), TTL: time.Minute, Version: text("0.8.1"),
				Exports: 3, Imported: 2, Offered: 2},
		},
		Conflicts: []Conflict{{Service: text("shop/web"), Reasons: "PortConflict", Detail: text(`Conflicting ports. 1/2 clusters disagree.`)}},
		Selections: []Selection{{Service: text("shop/web"), Port: text("http TCP IPv4"), Clusters: []string{text("west")},
			Why: "no preferred cluster has a ready endpoint, or not for long enough", Since: before(4 * time.Minute), Prefers: text(`[{"propertySelector":{}}]`)}},
		Services: Services{Found: 4, Page: 1, Pages: 1, Rows: []Service{
			{Name: text("bank/pay"), Exporters: []string{text("west")},
				State: "not imported: this cluster has no namespace of the name"},
			{Name: text("shop/cart"), State: text("export: NoService: There is no Service."), Failed: true},
			{Name: text("shop/db"), Type: "Headless", Exporters: []string{text("east"), text("west")}, Ready: 4, State: "ready",
				OK: true},
			{Name: text("shop/web"), Type: "ClusterSetIP", Addresses: []string{text("10.96.0.7"), text("fd00::7")},
				Exporters: []string{text("north"), text("west")}, Ready: 2, State: "ready", OK: true},
		}},
	}
}

func plain(s string) string { return s }

// hostile is what a member could write if nothing validated it: markup for each place of the page, controls, and
// characters that reverse the text after them.
func hostile(s string) string {
	return s + "</td></title></style><script>alert(1)</script><a href=\"javascript:alert(1)\" onclick='x'>\"'`=\u202eevil\u2066\u200b\x00\x1b[31m\xff{{.}}&lt;"
}

// large is more than the largest clusterset that is supported, with the longest names.
func large() Status {
	s, long := Status{At: now, Cluster: strings.Repeat("c", 63), State: State{Leads: true}}, strings.Repeat("n", 63)
	for i := range 350 {
		state := Live
		if i == 349 {
			state = Expired
		}
		s.Members = append(s.Members, Member{ID: fmt.Sprintf("%s%d", long, i), State: state, Exports: i, Imported: i / 2,
			Offered: i})
	}
	var all []string
	text, clusters := strings.Repeat("x", 30_000), slices.Repeat([]string{long}, 100)
	for i := range 10_000 {
		all = append(all, fmt.Sprintf("%s/%s%05d", long, long, i))
		s.Conflicts = append(s.Conflicts, Conflict{Service: all[i], Reasons: "TypeConflict", Detail: text})
		s.Selections = append(s.Selections, Selection{Service: all[i], Clusters: clusters, Prefers: text})
	}
	s.Services = Query{Page: 7}.Select(all)
	for i := range s.Services.Rows {
		s.Services.Rows[i].Exporters, s.Services.Rows[i].Addresses, s.Services.Rows[i].State = clusters, clusters, text
	}
	s.Counts = Counts{Members: 350, Services: len(all), Conflicts: len(all), Selections: len(all)}
	return s
}

func render(t *testing.T, s Status, q Query) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, s, q); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestGolden compares pages with those in testdata. docs/spec/operations.md 8.
func TestGolden(t *testing.T) {
	standby := Status{At: now, Instance: "node-2_77", State: State{Detail: "This instance stands by: node-1_3f leads.",
		Since: before(time.Minute)}}
	well := Status{At: now, Cluster: "east", State: State{Leads: true}, DNS: &DNS{Service: "dns/dns", Ready: 2},
		Broker:   Link{Connected: true, Membership: "admitted", CredentialExpires: before(-100 * time.Hour)},
		Services: Query{}.Select(nil)}
	for name, s := range map[string]Status{
		"standby": standby, "well": well, "example": example(plain), "hostile": example(hostile),
	} {
		file := filepath.Join("testdata", name+".html")
		got := strings.Replace(render(t, s, Query{Page: 1}), style, "", 1)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs from %s; \"go test ./controller/page -update\" writes it:\n%s", name, file, got)
		}
	}
}

var tag = regexp.MustCompile(`<(/?[a-zA-Z][a-zA-Z0-9]*)[^>]*>`)

// tags are the names of the elements of a page, in their order.
func tags(html string) (all []string) {
	for _, m := range tag.FindAllStringSubmatch(html, -1) {
		all = append(all, m[1])
	}
	return all
}

// A text of another member changes no element and no attribute, and nothing of it is invisible.
// docs/spec/operations.md 8.
func TestHostile(t *testing.T) {
	got, want := render(t, example(hostile), Query{Page: 1}), render(t, example(plain), Query{Page: 1})
	if g, w := tags(got), tags(want); !slices.Equal(g, w) {
		t.Errorf("elements = %q, want those of a page without such texts, %q", g, w)
	}
	for _, bad := range []string{"\u202e", "\u2066", "\u200b", "\x00", "\x1b", "\xff", "<script", " onclick='x'>"} {
		if strings.Contains(got, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	var b bytes.Buffer
	if err := JSON(&b, example(hostile)); err != nil {
		t.Fatal(err)
	}
	var s Status
	if err := json.Unmarshal(b.Bytes(), &s); err != nil || len(s.Members) != 4 {
		t.Errorf("JSON: %d members, %v; want 4", len(s.Members), err)
	}
	for _, bad := range []string{"\u202e", `\u202e`, `\u0000`, `\u001b`, "<script"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("the JSON contains %q", bad)
		}
	}
	if q := ParseQuery(url.Values{"filter": {hostile("x")}, "page": {"-3"}}); strings.Contains(render(t,
		Status{State: State{Leads: true}, Services: q.Select(nil)}, q), "<script") {
		t.Error("the filter of the request is on the page as it is")
	}
}

// However much there is, the page is short, and says how much it leaves out; what is wrong is not left out.
func TestLarge(t *testing.T) {
	const most = 512 << 10
	s := large()
	got := render(t, s, Query{Page: 7})
	var b bytes.Buffer
	if err := JSON(&b, s); err != nil {
		t.Fatal(err)
	}
	if len(got) > most || b.Len() > most {
		t.Errorf("%d octets of HTML, %d of JSON; want at most %d", len(got), b.Len(), most)
	}
	for _, want := range []string{
		"200 of 350 members", "50 of 10000 services whose exports disagree", "50 of 10000 ports",
		"50 of 10000 services</caption>", "and 92 more",
		"Page 7 of 200", "/?page=8#services", ">expired<", "331 further members",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(got, "<rect"); n != 2*maxBoxes+1 {
		t.Errorf("%d boxes, want %d on each side and this cluster", n, maxBoxes)
	}
}

// The map has a line for each cluster from which something is imported, and one to each that own exports reach.
func TestMap(t *testing.T) {
	m := mapOf(example(plain).Bound())
	var got []string
	for _, l := range m.Lines {
		got = append(got, l.Title+" ("+l.Class+")")
	}
	want := []string{
		"west: 2 of 3 services are imported here (good)", "north: 1 of 1 services are imported here (bad)",
		"east exports 2 services; west: is offered 2 (self)", "east exports 2 services; north: is offered 1 (self)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("lines = %q, want %q", got, want)
	}
	if len(m.Boxes) != 6 {
		t.Errorf("boxes = %+v, want 3 clusters, this one, and the 2 that are offered something", m.Boxes)
	}
	for _, b := range m.Boxes {
		if b.X < 0 || b.Y < 0 || b.X+b.Width > m.Width || b.Y+b.Height > m.Height {
			t.Errorf("box %+v is outside of %d x %d", b, m.Width, m.Height)
		}
	}
}

func TestSelect(t *testing.T) {
	var all []string
	for i := range 120 {
		all = append(all, fmt.Sprintf("shop/s%03d", i))
	}
	for _, tt := range []struct {
		q           Query
		first, last string
		page, pages int
	}{
		{Query{Page: 1}, "shop/s000", "shop/s049", 1, 3},
		{Query{Page: 3}, "shop/s100", "shop/s119", 3, 3},
		{Query{Page: 9}, "shop/s100", "shop/s119", 3, 3},
		{Query{Page: 2, Filter: "s11"}, "shop/s110", "shop/s119", 1, 1},
		{Query{Page: 0, Filter: "none"}, "", "", 1, 1},
	} {
		got := tt.q.Select(all)
		first, last := "", ""
		if len(got.Rows) > 0 {
			first, last = got.Rows[0].Name, got.Rows[len(got.Rows)-1].Name
		}
		if first != tt.first || last != tt.last || got.Page != tt.page || got.Pages != tt.pages {
			t.Errorf("%+v: %s to %s, page %d of %d; want %+v", tt.q, first, last, got.Page, got.Pages, tt)
		}
	}
	q := ParseQuery(url.Values{"filter": {" a&b=c "}, "page": {"2"}, "refresh": {"on"}})
	if got, want := q.path(3, q.Refresh), "/?filter=a%26b%3Dc&page=3&refresh=on"; got != want {
		t.Errorf("path = %s, want %s", got, want)
	}
}

// The style sheet is the one that the policy allows, as it is on the page.
func TestPolicy(t *testing.T) {
	html := render(t, example(plain), Query{})
	_, rest, _ := strings.Cut(html, "<style>")
	css, _, _ := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(css))
	if want := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; css == "" ||
		!strings.Contains(Policy(), want) {
		t.Errorf("policy %s: want %s", Policy(), want)
	}
	if bad := regexp.MustCompile(`(?i)\s(style|src|on[a-z]+)=|https?://|@import|url\([^#]`).FindString(html); bad != "" {
		t.Errorf("the page has %q, which the policy forbids or which is from elsewhere", bad)
	}
}

// What people need who do not see the page, or use no mouse.
func TestAccessible(t *testing.T) {
	html := render(t, example(plain), Query{})
	ids := map[string]int{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(html, -1) {
		if ids[m[1]]++; ids[m[1]] > 1 {
			t.Errorf("id %q is there %d times", m[1], ids[m[1]])
		}
	}
	for _, m := range regexp.MustCompile(` (?:aria-labelledby|for|href)="(#?[^"/]*)"`).FindAllStringSubmatch(html, -1) {
		for id := range strings.FieldsSeq(m[1]) {
			if ids[strings.TrimPrefix(id, "#")] == 0 {
				t.Errorf("%s: no element has the id", m[0])
			}
		}
	}
	for part, n := range map[string]int{
		`<html lang="en">`: 1, "<h1>": 1, "<header>": 1, "<main ": 1, "<footer>": 1, "<nav ": 1, "<caption>": strings.Count(html, "<table>"),
		`<thead><tr><th scope="col">`: strings.Count(html, "<table>"), "<input ": strings.Count(html, "<label "), "<desc ": 1,
	} {
		if got := strings.Count(html, part); got != n || n == 0 {
			t.Errorf("%s is there %d times, want %d", part, got, n)
		}
	}
	if strings.Contains(html, "<th>") || strings.Contains(html, "http-equiv") {
		t.Error("a header cell without scope, or a page that loads itself again without being asked")
	}
	if !strings.Contains(render(t, example(plain), Query{Refresh: true}), `http-equiv="refresh"`) {
		t.Error("a page that shall load itself again does not")
	}
}

// Text has a contrast of at least 4.5 to 1, and lines of 3 to 1, light and dark (WCAG 2.2, 1.4.3 and 1.4.11).
func TestContrast(t *testing.T) {
	themes := strings.SplitN(style, "@media (prefers-color-scheme:dark)", 2)
	if len(themes) != 2 {
		t.Fatal("the style sheet has no dark colours")
	}
	for i, css := range themes {
		css, _, _ = strings.Cut(css, "}")
		colors := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z]+):#([0-9a-f]{6})`).FindAllStringSubmatch(css, -1) {
			colors[m[1]] = luminance(t, m[2])
		}
		for _, back := range []string{"back", "panel"} {
			for name, least := range map[string]float64{"text": 4.5, "muted": 4.5, "link": 4.5, "good": 4.5, "warn": 4.5,
				"bad": 4.5, "edge": 3} {
				a, b := max(colors[name], colors[back]), min(colors[name], colors[back])
				if ratio := (a + 0.05) / (b + 0.05); ratio < least {
					t.Errorf("theme %d: %s on %s has a contrast of %.2f, want %v", i, name, back, ratio, least)
				}
			}
		}
	}
}

// luminance is the relative luminance of a colour (WCAG 2.2).
func luminance(t *testing.T, hex string) (sum float64) {
	t.Helper()
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.03928 {
			sum += weight * c / 12.92
		} else {
			sum += weight * math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return sum
}
