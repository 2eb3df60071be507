package member

import (
	"github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/shorten"
)

// MaxNote is the limit of the API server for the note of an Event, in octets.
const MaxNote = 1024

// cutMessage returns at most limit octets of the message of a condition, and always the codes at its end.
func cutMessage(message string, limit int) string {
	text, codes := reason.Split(message)
	return shorten.Text(text, limit-len(codes)) + codes
}
