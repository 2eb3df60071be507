package shorten_test

import (
	"testing"

	"github.com/clusterset-dns/clusterset/api/shorten"
)

func TestText(t *testing.T) {
	for _, tt := range []struct {
		name, text, want string
		limit            int
	}{
		{name: "empty", limit: 8},
		{name: "as long as the limit", text: "12345678", limit: 8, want: "12345678"},
		{name: "longer", text: "123456789", limit: 8, want: "12345..."},
		{name: "behind a character", text: "üüüüü", limit: 9, want: "üüü..."},
		{name: "within a character", text: "üüüüü", limit: 8, want: "üü..."},
		{name: "within a character of four octets", text: "12😀😀", limit: 8, want: "12..."},
		{name: "shortest limit", text: "1234", limit: 3, want: "..."},
	} {
		if got := shorten.Text(tt.text, tt.limit); got != tt.want {
			t.Errorf("%s: Text(%q, %d) = %q, want %q", tt.name, tt.text, tt.limit, got, tt.want)
		}
	}
}
