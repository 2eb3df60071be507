package wiring

import (
	"strconv"
	"strings"
)

// values returns the value "servers" of the Helm chart of CoreDNS: all server blocks that there are, and ours. Helm
// replaces lists as a whole, so those that there are must be in it.
func (c corefile) values(w Desired, o options) string {
	all := c
	if ours, err := parseCorefile(w.block(c.listeners(), o)); err == nil {
		all.blocks = append(all.blocks[:len(all.blocks):len(all.blocks)], ours.blocks...)
	}
	var servers []any
	for _, b := range all.blocks {
		servers = append(servers, b.values())
	}
	return yamlText(map[string]any{"servers": servers})
}

func (b serverBlock) values() map[string]any {
	v := map[string]any{}
	var zones, plugins []any
	for _, k := range b.keys {
		zone := map[string]any{"zone": k.zone}
		if k.scheme == "dns" {
			zone["use_tcp"] = true
		} else {
			zone["scheme"] = k.scheme + "://"
		}
		zones = append(zones, zone)
		v["port"] = 53
		if port, err := strconv.Atoi(k.port); err == nil {
			v["port"] = port
		}
	}
	for _, d := range b.body {
		p := map[string]any{"name": d.words[0]}
		if len(d.words) > 1 {
			p["parameters"] = words(d.words[1:])
		}
		if d.block {
			p["configBlock"] = strings.TrimSuffix(lines(d.body, ""), "\n")
		}
		plugins = append(plugins, p)
	}
	v["zones"], v["plugins"] = zones, plugins
	return v
}

// lines prints directives.
func lines(all []directive, indent string) string {
	var b strings.Builder
	for _, d := range all {
		b.WriteString(indent + words(d.words))
		if d.block {
			b.WriteString(" {\n" + lines(d.body, indent+"    ") + indent + "}")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// words prints the words of a directive as the lexer reads them: in quotes where one is empty, has a blank, or begins
// like a comment.
func words(all []string) string {
	var quoted []string
	for _, word := range all {
		if word == "" || strings.ContainsAny(word, " \t\n#\"") {
			word = `"` + strings.ReplaceAll(word, `"`, `\"`) + `"`
		}
		quoted = append(quoted, word)
	}
	return strings.Join(quoted, " ")
}
