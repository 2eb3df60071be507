// The browser command tests a page as people use it, in a headless Chromium: browser <chromium> <URL> <folder for
// screenshots>
//
// It prints a line for each check and ends with 1 if one failed. The page must not depend on the mouse, on colours or
// on what it may not load.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "want: browser <chromium> <URL> <folder for screenshots>")
		os.Exit(2)
	}
	c := &checks{url: strings.TrimSuffix(os.Args[2], "/")}
	if err := c.run(os.Args[1], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(1)
	}
	if c.failed {
		os.Exit(1)
	}
}

// checks are those of one page.
type checks struct {
	url    string
	failed bool

	mu     sync.Mutex
	events []string // what the page tried that it should not
}

// check prints a result.
func (c *checks) check(ok bool, format string, args ...any) {
	word := "ok"
	if !ok {
		word, c.failed = "FAILED", true
	}
	fmt.Printf("%s: "+format+"\n", append([]any{word}, args...)...)
}

func (c *checks) run(chromium, folder string) error {
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(chromium),
		chromedp.WindowSize(width, 900))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has none for root
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	defer stop()
	ctx, end := chromedp.NewContext(ctx)
	defer end()
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		return err
	}
	go note(c, chromedp.Events(ctx, network.RequestWillBeSent), func(e network.EventRequestWillBeSent) string {
		if strings.HasPrefix(e.Request.URL, c.url+"/") {
			return ""
		}
		return "request " + e.Request.URL
	})
	go note(c, chromedp.Events(ctx, log.EntryAdded), func(e log.EventEntryAdded) string {
		return string(e.Entry.Level) +
			" " + e.Entry.Text
	})
	go note(c, chromedp.Events(ctx, page.JavascriptDialogOpening),
		func(e page.EventJavascriptDialogOpening) string { return "dialog " + e.Message })
	if err := chromedp.Do(ctx, chromedp.Navigate(c.url+"/")); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{c.colors(folder), c.structure, c.keyboard, c.narrow} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.check(len(c.events) == 0, "the page loads and runs nothing: %q", c.events)
	return nil
}

// note keeps what the page tries until the events end: requests to elsewhere, scripts, and what its policy forbids.
func note[E any](c *checks, events iter.Seq2[E, error], text func(E) string) {
	for e, err := range events {
		if err != nil {
			return
		}
		if what := text(e); what != "" && !strings.Contains(what, "favicon.ico") { // browsers ask every site for that
			c.mu.Lock()
			c.events = append(c.events, what)
			c.mu.Unlock()
		}
	}
}

// width of the screenshots.
const width = 1000

// colors takes a screenshot in each scheme.
func (c *checks) colors(folder string) func(context.Context) error {
	return func(ctx context.Context) error {
		backs := map[string]string{"light": "rgb(255, 255, 255)", "dark": "rgb(18, 19, 22)"}
		for _, scheme := range []string{"dark", "light"} {
			media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme",
				Value: scheme}}}
			if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media); err != nil {
				return err
			}
			back, err := chromedp.Run(ctx, chromedp.Evaluate[string](`getComputedStyle(document.body).backgroundColor`))
			if err != nil {
				return err
			}
			c.check(back == backs[scheme], "the background is %s in the %s scheme, want %s", back, scheme, backs[scheme])
			shot, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
			if err != nil {
				return err
			}
			if shot, err = small(shot); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(folder, "status-"+scheme+".png"), shot, 0o600); err != nil {
				return err
			}
		}
		return nil
	}
}

// small returns a picture with a palette of its most frequent colours: the page has few, and the rest are edges of
// letters.
func small(shot []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return nil, err
	}
	counts := map[color.Color]int{}
	bounds := from.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[from.At(x, y)]++
		}
	}
	palette := color.Palette(slices.SortedFunc(maps.Keys(counts),
		func(a, b color.Color) int { return counts[b] - counts[a] }))
	to := image.NewPaletted(bounds, palette[:min(len(palette), 64)])
	draw.Draw(to, bounds, from, bounds.Min, draw.Src)
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, to)
	return b.Bytes(), err
}

// structure checks what a screen reader finds.
func (c *checks) structure(ctx context.Context) error {
	tree, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		return err
	}
	found, unnamed := map[string]int{}, []string{}
	for _, n := range tree.Nodes {
		role, name := text(n.Role), text(n.Name)
		if n.Ignored {
			continue
		}
		found[role]++
		switch role {
		case "link", "button", "searchbox", "table", "image", "region", "group", "columnheader":
			if name == "" {
				unnamed = append(unnamed, role)
			}
		}
	}
	for _, role := range []string{"banner", "main", "contentinfo", "navigation", "search", "region", "table",
		"columnheader", "rowheader", "image", "heading"} {
		c.check(found[role] > 0, "a screen reader finds %d of role %s", found[role], role)
	}
	c.check(len(unnamed) == 0, "without a name: %q", unnamed)
	return nil
}

func text(v *accessibility.Value) string {
	var s string
	if v == nil || json.Unmarshal(v.Value, &s) != nil {
		return ""
	}
	return s
}

// focused describes the element with the focus; it has to be visible that it has it.
const focused = `(() => { const e = document.activeElement; if (!e || e === document.body) return "";
	const s = getComputedStyle(e), r = e.getBoundingClientRect();
	const seen = r.width > 0 && r.right > 0 && s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2;
	return [...document.querySelectorAll(all)].indexOf(e) + (seen ? "" : " not visible"); })()`

const all = `const all = 'a[href],input,button,[tabindex="0"]';`

// keyboard walks over the page by Tab, and uses link and form by Enter.
func (c *checks) keyboard(ctx context.Context) error {
	count, err := chromedp.Run(ctx, chromedp.Evaluate[int](`(() => {`+all+`return document.querySelectorAll(all).length})()`))
	if err != nil {
		return err
	}
	var wrong []string
	for i := range count {
		if err := chromedp.Do(ctx, chromedp.KeyEvent(kb.Tab)); err != nil {
			return err
		}
		at, err := chromedp.Run(ctx, chromedp.Evaluate[string](`(() => {`+all+`return String(`+focused+`)})()`))
		if err != nil {
			return err
		}
		if want := fmt.Sprint(i); at != want {
			wrong = append(wrong, fmt.Sprintf("%q, want %q", at, want))
		}
	}
	c.check(len(wrong) == 0 && count > 8, "Tab visits all %d elements in their order, and shows the focus: %q", count,
		wrong)
	if err := chromedp.Do(ctx, chromedp.Navigate(c.url+"/"), chromedp.KeyEvent(kb.Tab),
		chromedp.KeyEvent(kb.Enter)); err != nil {
		return err
	}
	at, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href`))
	if err != nil {
		return err
	}
	c.check(strings.HasSuffix(at, "#main"), "the first link leads to the content: %s", at)
	if err := chromedp.Do(ctx, chromedp.Focus(chromedp.ID("filter")), chromedp.KeyEvent("shop/web")); err != nil {
		return err
	}
	if _, err := chromedp.RunResponse(ctx, chromedp.KeyEvent(kb.Enter)); err != nil {
		return err
	}
	at, err = chromedp.Run(ctx, chromedp.Evaluate[string](`location.search + " " + document.querySelectorAll('section[aria-labelledby="services"] tbody tr').length`))
	c.check(at == "?filter=shop%2Fweb 1", "the filter leads to a query, and its number of rows: %q", at)
	return err
}

// narrow checks that the page needs no scrolling to the side on a narrow screen, but in its tables (WCAG 2.2, 1.4.10).
func (c *checks) narrow(ctx context.Context) error {
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(320, 800), chromedp.Navigate(c.url+"/")); err != nil {
		return err
	}
	wide, err := chromedp.Run(ctx, chromedp.Evaluate[int](`document.documentElement.scrollWidth`))
	c.check(wide <= 320, "a screen of 320 pixels shows a page of %d", wide)
	return err
}
