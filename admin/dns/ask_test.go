package dns

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/write"
)

// The error of a wait without an answer is a sentence.
func TestNoAnswer(t *testing.T) {
	w := &wirer{&write.Writer{Cluster: &read.Cluster{}}, Options{Ask: "127.0.0.1:1", Timeout: time.Millisecond}}
	err := w.awaitAnswer(t.Context(), &State{Zone: "clusterset.local"})
	const want = `^wait until dns-version\.clusterset\.local resolves: not after 1ms: no resolver answers \(udp: .*; tcp: .*\); everything is written`
	if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
		t.Errorf("error %v, want %s", err, want)
	}
	a := Answer{Server: "10.96.0.10:53", Protocol: "udp", Response: "NXDOMAIN"}
	if got := a.String(); strings.Contains(got, "no resolver") || !strings.HasPrefix(got, `10.96.0.10:53 answers "NXDOMAIN"`) {
		t.Errorf("phrase %q of an answer, want server and response", got)
	}
}
