// Package shorten cuts texts to what an API takes, or a log should have.
package shorten

import "strings"

// Text returns at most limit octets of text, without splitting a character. Text that was cut ends with "...", which
// counts; limit is at least 3.
//
// For a value in a message the verb %.80q is enough.
func Text(text string, limit int) string {
	const end = "..."
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(end)], "") + end
}
