package wiring

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coredns/caddy/caddyfile"
)

// A corefile is the structure of a Corefile, as far as every plugin has it. The lexer is that of CoreDNS. Its parser is
// not used: it reads files that "import" names, which exist only in the Pod, and loses the place of each token.
type corefile struct {
	blocks   []serverBlock
	snippets []directive
	imports  []string // patterns of imports outside of any block
	skipped  []string // what of these may have the zone, and was not read or not understood
}

type serverBlock struct {
	keys []key
	line int
	body []directive
}

// A key is one zone of a server block.
type key struct {
	scheme string // "dns", "tls" and so on
	zone   string // lower case, without the dot at its end; "." for the root
	port   string // "" for the default
}

// A directive is a line with the block that it may have.
type directive struct {
	words []string
	line  int
	block bool
	body  []directive
}

// parseCorefile returns an error that names the line for everything that it does not understand, also if CoreDNS would.
func parseCorefile(text string) (corefile, error) {
	if strings.HasPrefix(text, "\ufeff") {
		return corefile{}, fmt.Errorf("line 1: byte order mark: want text")
	}
	d := caddyfile.NewDispenser("Corefile", strings.NewReader(text))
	var c corefile
	for d.Next() {
		top, err := parseDirective(&d)
		if err != nil {
			return c, err
		}
		switch name := top.words[0]; {
		case name == "import" && len(top.words) == 2 && !top.block:
			c.imports = append(c.imports, top.words[1])
		case !top.block:
			return c, fmt.Errorf("line %d: %q: want a server block or an import", top.line, strings.Join(top.words, " "))
		case strings.HasPrefix(name, "(") && strings.HasSuffix(name, ")"):
			c.snippets = append(c.snippets, top)
		default:
			block := serverBlock{line: top.line, body: top.body}
			for _, word := range top.words {
				k, err := parseKey(strings.TrimSuffix(word, ","))
				if err != nil {
					return c, fmt.Errorf("line %d: %w", top.line, err)
				}
				block.keys = append(block.keys, k)
			}
			c.blocks = append(c.blocks, block)
		}
	}
	return c, nil
}

// parseDirective reads the directive that begins at the current token.
func parseDirective(d *caddyfile.Dispenser) (directive, error) {
	dir := directive{words: append([]string{d.Val()}, d.RemainingArgs()...), line: d.Line()}
	if slices.ContainsFunc(dir.words, func(w string) bool { return w == "{" || w == "}" }) {
		return dir, fmt.Errorf("line %d: %q: want a directive", dir.line, strings.Join(dir.words, " "))
	}
	if dir.block = d.NextArg(); !dir.block { // what RemainingArgs leaves on the line is a "{"
		return dir, nil
	}
	for d.Next() {
		if d.Val() == "}" {
			if d.NextArg() {
				return dir, fmt.Errorf("line %d: %q after }: want a new line", d.Line(), d.Val())
			}
			return dir, nil
		}
		inner, err := parseDirective(d)
		if err != nil {
			return dir, err
		}
		dir.body = append(dir.body, inner)
	}
	return dir, fmt.Errorf("line %d: %s: want } at the end of the block", dir.line, dir.words[0])
}

func parseKey(word string) (key, error) {
	k := key{scheme: "dns"}
	if strings.Contains(word, "{$") || strings.Contains(word, "{%") {
		return k, fmt.Errorf("%q: want a zone, not a variable of the Pod", word)
	}
	if scheme, rest, ok := strings.Cut(word, "://"); ok {
		k.scheme, word = scheme, rest
	}
	if at := strings.LastIndexByte(word, ':'); at >= 0 {
		if _, err := strconv.ParseUint(word[at+1:], 10, 16); err == nil {
			word, k.port = word[:at], word[at+1:]
		}
	}
	if k.zone = strings.TrimSuffix(strings.ToLower(word), "."); k.zone == "" {
		k.zone = "."
	}
	return k, nil
}

func (b serverBlock) find(name string) *directive {
	for i := range b.body {
		if b.body[i].words[0] == name {
			return &b.body[i]
		}
	}
	return nil
}

func (b serverBlock) serves(zone string) bool {
	return slices.ContainsFunc(b.keys, func(k key) bool { return k.zone == zone })
}

// has reports whether a directive of this name is in any server block or snippet.
func (c corefile) has(name string) bool {
	for _, b := range c.blocks {
		if b.find(name) != nil {
			return true
		}
	}
	return slices.ContainsFunc(c.snippets, func(s directive) bool { return serverBlock{body: s.body}.find(name) != nil })
}

// A listener is where a server block answers Pods: a port, and the arguments of "bind", if it has them.
type listener struct{ port, bind string }

// listeners returns where the blocks listen that Pods ask: those of the root zone, or without such, those with
// "kubernetes". Blocks of TLS, HTTPS and gRPC need certificates; Pods do not ask them.
func (c corefile) listeners() []listener {
	for _, wanted := range []func(serverBlock) bool{
		func(b serverBlock) bool { return b.serves(".") },
		func(b serverBlock) bool { return b.find("kubernetes") != nil },
	} {
		var all []listener
		for _, b := range c.blocks {
			if !wanted(b) {
				continue
			}
			l := listener{}
			if bind := b.find("bind"); bind != nil {
				l.bind = strings.Join(bind.words[1:], " ")
			}
			for _, k := range b.keys {
				if l.port = k.port; k.scheme == "dns" && !slices.Contains(all, l) {
					all = append(all, l)
				}
			}
		}
		if len(all) > 0 {
			return all
		}
	}
	return nil
}
