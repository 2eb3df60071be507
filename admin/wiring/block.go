package wiring

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Marks of the block in a Corefile. The first one ends with a checksum of the lines between them, so a change by hand
// is seen.
//
// The block stands at the top of the text and not at its end: the original text follows, octet by octet, whether or not
// that ends with a newline, and also after somebody has edited it (docs/spec/dns-wiring.md 3).
const (
	beginMark = `# BEGIN clusterset dns (written by "clusterset dns apply", removed by "clusterset dns undo") `
	endMark   = "# END clusterset dns\n"
)

func checksum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

func markedBlock(content string) string {
	return beginMark + checksum(content) + "\n" + content + endMark
}

// A markedText is a Corefile, divided at the marks.
type markedText struct {
	found         bool
	intact        bool   // the block is as it was written
	before, after string // the text around it, which is the whole text if there is no block
	content       string // the lines between the marks
}

// cutBlock divides a text. A mark without the other is an error.
func cutBlock(text string) (markedText, error) {
	begin := strings.Index("\n"+text, "\n"+beginMark)
	if begin < 0 {
		if strings.Contains(text, strings.TrimSpace(endMark)) {
			return markedText{}, fmt.Errorf("it has the line %q without the line that begins the block", strings.TrimSpace(endMark))
		}
		return markedText{after: text}, nil
	}
	first, rest, _ := strings.Cut(text[begin:], "\n")
	at := strings.Index("\n"+rest, "\n"+endMark)
	if at < 0 {
		return markedText{}, fmt.Errorf("it has the line %q without the line %q", first, strings.TrimSpace(endMark))
	}
	m := markedText{found: true, before: text[:begin], content: rest[:at], after: rest[at+len(endMark):]}
	m.intact = strings.TrimPrefix(first, beginMark) == checksum(m.content)
	return m, nil
}

// options of plugins that a CoreDNS knows.
type options struct{ servfail, maxConcurrent bool }

// block returns server blocks for the zone, one for each value of bind.
//
// The caches are as short as the TTL that the plugin clusterset gives by default, and SERVFAIL is not cached: a server
// that is not ready answers so, and is asked again by the next query (docs/spec/dns-wiring.md 2).
func (w Desired) block(at []listener, o options) string {
	var b strings.Builder
	written := map[string]bool{}
	for _, l := range at {
		if written[l.bind] {
			continue
		}
		written[l.bind] = true
		for _, same := range at {
			if same.bind == l.bind {
				b.WriteString(w.key(same.port) + " ")
			}
		}
		b.WriteString("{\n    errors\n")
		if l.bind != "" {
			b.WriteString("    bind " + l.bind + "\n")
		}
		b.WriteString(w.chain(o) + "}\n")
	}
	return b.String()
}

// standardBlock is for a Corefile that is not known.
func (w Desired) standardBlock(o options) string { return w.block([]listener{{port: "53"}}, o) }

func (w Desired) key(port string) string {
	if port == "" {
		return w.Zone
	}
	return w.Zone + ":" + port
}

// chain returns the plugins that answer.
func (w Desired) chain(o options) string {
	if w.InProcess {
		return "    clusterset\n"
	}
	var b strings.Builder
	b.WriteString("    cache {\n        success 9984 5 0\n        denial 9984 1 0\n")
	if o.servfail {
		b.WriteString("        servfail 0\n")
	}
	b.WriteString("    }\n    forward . " + strings.Join(w.addresses(), " "))
	if o.maxConcurrent {
		b.WriteString(" {\n        max_concurrent 1000\n    }")
	}
	b.WriteString("\n")
	return b.String()
}

// placeholder is printed for an unknown address.
const placeholder = "ADDRESS"

func (w Desired) addresses() []string {
	if len(w.Addresses) == 0 {
		return []string{placeholder}
	}
	var all []string
	for _, a := range w.Addresses {
		all = append(all, a.String())
	}
	return all
}

// writable reports whether all values to write are known.
func (w Desired) writable() bool { return w.InProcess || len(w.Addresses) > 0 }
