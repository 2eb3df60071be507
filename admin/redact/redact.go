// Package redact takes credentials out of API objects and texts that a user is going to give away
// (docs/spec/operations.md 4). It is pure: values in, values out.
//
// Three mechanisms work one after the other, so that what one of them misses is caught by another:
//
//	by place    fields that hold credentials or may hold anything: data of Secrets and ConfigMaps, values of environment variables,
//	            annotations that repeat an object
//	by name     values whose key says that they are a credential, in objects and in texts: "token: x", "--password=x", "Authorization: x"
//	by value    forms that only credentials have (JWT, private keys, passwords in URLs), and the values that [Known] has been given
package redact

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// minKnown is the length from which on a value is looked for everywhere: shorter ones are parts of other words.
const minKnown = 8

// A Redactor replaces credentials. It never changes.
type Redactor struct{ known []string }

// Known returns a Redactor that also replaces these values wherever they appear.
func Known(values ...string) Redactor {
	var known []string
	for _, v := range values {
		if v = strings.TrimSpace(v); len(v) >= minKnown {
			known = append(known, v)
		}
	}
	// The longest first: one value may be a part of another.
	slices.SortFunc(known, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return Redactor{slices.Compact(known)}
}

const mark = "<redacted>"

func hiddenOctets(n int) string { return fmt.Sprintf("<redacted, %d octets>", n) }

const secretWords = `tokens?|password|passwd|passphrase|pwd|secrets?|credentials?|authorization|cookie|` +
	`(?:private|client|access|api|account|shared|secret|session|encryption)[-_. ]?keys?(?:[-_. ]?(?:data|id))?|client-certificate-data|key-data`

var (
	privateKey    = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
	jwt           = regexp.MustCompile(`eyJ[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){0,2}`)
	bearer        = regexp.MustCompile(`(?i)\b(bearer|basic|negotiate|digest)([ =:]+)[A-Za-z0-9+/=._~-]{6,}`)
	userInfo      = regexp.MustCompile(`([a-z][a-z0-9+.-]*://)[^\s/"']*@`)
	prefixedToken = regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[oprsu]_[A-Za-z0-9]{20,}|\bxox[a-z]-[A-Za-z0-9-]{10,}|\bglpat-[A-Za-z0-9_-]{10,}|\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)
	// A value ends with its quotes or, without them, with the word. "Authorization" takes the rest of the line: its value
	// has two words.
	namedValue  = regexp.MustCompile(`(?i)((?:[a-z0-9_./-]*(?:` + secretWords + `)[a-z0-9_.-]*)(?:\\*["'])?[ \t]*(?::=|[=:])[ \t]*)(\\+"[^"]*"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;&}\])"']+)`)
	flagValue   = regexp.MustCompile(`(?i)(--?[a-z0-9-]*(?:` + secretWords + `)[a-z0-9-]*[ \t]+)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;"']+)`)
	headerValue = regexp.MustCompile(`(?i)(\b(?:authorization|cookie|x-[a-z-]*token)(?:\\*["'])?[ \t]*[:=][ \t]*)(?:\\+")?[^\r\n"']+`)
	denseRun    = regexp.MustCompile(`[A-Za-z0-9+/_-]{40,}={0,2}`)
	// Corefiles have no separator between key and value.
	directive = regexp.MustCompile(`(?im)\b((?:[a-z0-9_]*(?:` + secretWords + `|username|tsig|aws_access_key)[a-z0-9_]*)[ \t]+)[^{\r\n]*[^{\s]`)
	// The head of a block scalar of YAML; the lines below that are indented deeper are its value.
	blockHead = regexp.MustCompile(`(?i)^([ \t]*(?:- +)?)["']?[a-z0-9_./-]*(?:` + secretWords + `)["']?[ \t]*:[ \t]*[|>][0-9+-]*[ \t]*(?:#.*)?\r?$`)
	secretKey = regexp.MustCompile(`(?i)(?:` + secretWords + `)$`)
)

// Text returns a text without credentials.
func (r Redactor) Text(s string) string {
	for _, v := range r.known {
		s = strings.ReplaceAll(s, v, mark)
	}
	s = hideBlocks(s)
	s = privateKey.ReplaceAllString(s, mark)
	s = headerValue.ReplaceAllString(s, "${1}"+mark)
	s = bearer.ReplaceAllString(s, "${1}${2}"+mark)
	s = userInfo.ReplaceAllString(s, "${1}"+mark+"@")
	s = jwt.ReplaceAllString(s, mark)
	s = prefixedToken.ReplaceAllString(s, mark)
	s = namedValue.ReplaceAllString(s, "${1}"+mark)
	s = flagValue.ReplaceAllString(s, "${1}"+mark)
	return denseRun.ReplaceAllStringFunc(s, func(run string) string {
		if strings.ContainsAny(run, "0123456789") && strings.ToLower(run) != run && strings.ToUpper(run) != run {
			return mark // names of objects, digests and UIDs have no upper case
		}
		return run
	})
}

// hideBlocks replaces the block scalars of YAML with keys of credentials.
func hideBlocks(s string) string {
	if !strings.ContainsAny(s, "|>") {
		return s
	}
	var b strings.Builder
	inside := -1 // indentation of the key; -1 outside of such a value
	for line := range strings.Lines(s) {
		content := strings.TrimLeft(line, " \t")
		if inside >= 0 && (strings.TrimSpace(content) == "" || len(line)-len(content) > inside) {
			continue
		}
		inside = -1
		if head := blockHead.FindStringSubmatch(strings.TrimRight(line, "\n")); head != nil {
			inside = len(head[1])
			key, _, _ := strings.Cut(line, ":")
			line = key + ": " + mark + "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// Corefile returns a Corefile without credentials: it replaces the arguments of directives that take one.
func (r Redactor) Corefile(s string) string {
	return r.Text(directive.ReplaceAllString(s, "${1}"+mark))
}

// Values returns the values in a text with keys of credentials, such as those of a kubeconfig.
func Values(s string) (all []string) {
	for _, m := range namedValue.FindAllStringSubmatch(s, -1) {
		all = append(all, strings.Trim(m[2], `"'`))
	}
	return all
}
