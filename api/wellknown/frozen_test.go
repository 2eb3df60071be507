package wellknown

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFreezes(t *testing.T) {
	since := time.Date(2026, 3, 1, 9, 0, 0, 7, time.FixedZone("", 3600))
	text := FormatFreezes([]Freeze{{Reason: "credential", Code: "credential-rejected", Detail: "it is rejected",
		Suspends: "exports", Since: since}})
	if want := `[{"reason":"credential","code":"credential-rejected","detail":"it is rejected","suspends":"exports","since":"2026-03-01T08:00:00Z"}]`; text != want {
		t.Errorf("annotation = %s, want %s", text, want)
	}
	if got := ParseFreezes(text); len(got) != 1 || FormatFreezes(got) != text {
		t.Errorf("%s is read as %+v", text, got)
	}
	if got := FormatFreezes(nil); got != "" {
		t.Errorf("annotation without a reason = %q, want none", got)
	}
	long := Freeze{Detail: strings.Repeat("ü", 9999)}
	if n := len(FormatFreezes(slices.Repeat([]Freeze{long}, 100))); n > 10_000 {
		t.Errorf("annotation of %d octets, want it to be bounded", n)
	}
	for _, text := range []string{"", "x", "{}", `[{"since":"soon"}]`, "[" + strings.Repeat("{},", 99) + "{}]"} {
		if got := ParseFreezes(text); len(got) != 0 {
			t.Errorf("%.20q is read as %+v, want nothing", text, got)
		}
	}
	if got := ParseFreezes(`[{"reason":"` + strings.Repeat("x", 9999) + `"}]`); len(got) != 1 || len(got[0].Reason) > maxFreezeText {
		t.Errorf("a long reason is read as %+v, want it to be cut", got)
	}
}
