package page

import (
	"strings"
	"unicode"
)

// clean returns at most n characters of a text that others may have written, with U+FFFD for what cannot be seen or
// would change how the text around it is shown: controls, format characters such as those of bidirectional text, line
// separators, and octets that are not UTF-8.
func clean(s string, n int) string {
	var b strings.Builder
	count := 0
	for _, r := range s {
		if count == n {
			b.WriteString("…")
			break
		}
		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
		count++
	}
	return b.String()
}
