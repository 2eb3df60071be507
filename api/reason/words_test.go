package reason

import (
	"slices"
	"testing"
)

// docs/spec/explain.md 4: a word has one code, which exists.
func TestWords(t *testing.T) {
	seen := map[Word]bool{}
	for _, w := range Words() {
		key := Word{Source: w.Source, Text: w.Text}
		if seen[key] {
			t.Errorf("%s has %q twice", w.Source, w.Text)
		}
		seen[key] = true
		if w.Code != "" && !Known(w.Code) {
			t.Errorf("%s, %q: %q is no code", w.Source, w.Text, w.Code)
		}
		if got := Of(w.Source, w.Text); got != w.Code {
			t.Errorf("Of(%s, %q) = %q, want %q", w.Source, w.Text, got, w.Code)
		}
		want := "Text."
		if w.Code != "" {
			want += " [" + string(w.Code) + "]"
		}
		if got := Say(w.Source, w.Text, "Text."); got != want {
			t.Errorf("Say(%s, %q) = %q, want %q", w.Source, w.Text, got, want)
		}
		if text, codes := Split(want); text != "Text." || text+codes != want {
			t.Errorf("Split(%q) = %q, %q", want, text, codes)
		}
	}
}

func TestSay(t *testing.T) {
	for _, tt := range []struct{ reasons, want string }{
		{"TypeConflict,PortConflict", "Text. [conflict-type,conflict-ports]"},
		{"LabelsConflict,AnnotationsConflict", "Text. [conflict-properties]"},
		{"LabelsConflict,IPFamilyConflict", "Text. [conflict-families,conflict-properties]"},
		{"OfAnotherImplementation", "Text."},
	} {
		if got := Say(Conflict, tt.reasons, "Text."); got != tt.want {
			t.Errorf("Say(%q) = %q, want %q", tt.reasons, got, tt.want)
		}
	}
}

// Text that ends with brackets without a code is text.
func TestSplit(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                   {"", ""},
		"No. [export-no-service]":            {"No.", " [export-no-service]"},
		"No. [export-no-service,cluster]":    {"No. [export-no-service,cluster]", ""},
		"None of the networks [10.0.0.0/8]":  {"None of the networks [10.0.0.0/8]", ""},
		"None of the networks [] []":         {"None of the networks [] []", ""},
		"Is [import-pending]. [resolves]":    {"Is [import-pending].", " [resolves]"},
		"Not at the end [import-pending] of": {"Not at the end [import-pending] of", ""},
	} {
		if message, codes := Split(text); !slices.Equal([]string{message, codes}, want) {
			t.Errorf("Split(%q) = %q, %q, want %q", text, message, codes, want)
		}
	}
}

func TestPhrase(t *testing.T) {
	for message, want := range map[string]string{
		"It is not. [export-no-service]": "It is not [export-no-service]", "It is not.": "It is not",
		"of [] [x]": "of [] [x]",
	} {
		if got := Phrase(message); got != want {
			t.Errorf("Phrase(%q) = %q, want %q", message, got, want)
		}
	}
}
