package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/clusterset-dns/clusterset/admin/write"
)

// An error after the first write tells that earlier writes stay; the steps are printed then, in all formats.
func TestRest(t *testing.T) {
	written, same := write.Step{Action: write.Created, Kind: "Member", Name: "east"},
		write.Step{Action: write.Unchanged, Kind: "Member", Name: "west"}
	for _, tt := range []struct {
		name, dry, format string
		steps             []write.Step
		says, prints      bool
	}{
		{"written", "none", "", []write.Step{same, written}, true, false},
		{"written, as JSON", "none", "json", []write.Step{same, written}, true, true},
		{"nothing written", "none", "json", []write.Step{same}, false, false},
		{"a dry run", "server", "yaml", []write.Step{written}, false, false},
	} {
		var errOut bytes.Buffer
		o := &output{factory: &factory{IOStreams: genericiooptions.IOStreams{ErrOut: &errOut}}, dry: tt.dry,
			format: tt.format, steps: tt.steps}
		failed := errors.New("no")
		err := o.withPartialNote(failed)
		if says := strings.HasSuffix(
			err.Error(),
			"no; what the steps above name is written and stays: run the same command again to do the rest"); says != tt.says ||
			!errors.Is(err, failed) {
			t.Errorf("%s: error %v, want that of before, and that something is written: %t", tt.name, err, tt.says)
		}
		if got := errOut.String(); tt.prints && got != written.String()+"\n" || !tt.prints && got != "" {
			t.Errorf("%s: printed %q, want the step: %t", tt.name, got, tt.prints)
		}
		if o.withPartialNote(nil) != nil {
			t.Errorf("%s: an error without one", tt.name)
		}
	}
}
