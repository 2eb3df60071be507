package main

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/clusterset-dns/clusterset/admin/explain"
	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/api/reason"
)

// docs/spec/explain.md 5: the exit code follows from the verdict, in each format.
func TestPrintReport(t *testing.T) {
	for _, tt := range []struct {
		code, format string
		want         error
		text         string
	}{
		{"resolves", "", nil, "db.shop A\n\nresolves: S.\nWhat to do: R.\n\nok   name   E\n"},
		{"import-missing", "", errProblems, "import-missing: S."},
		{"dns-stale", "", nil, "The name has an answer nevertheless.\n"}, // a warning
		{"not-readable", "", errUnread, "not-readable: S."},
		{"api-unreachable", "json", errUnread, `"code": "api-unreachable"`},
		{"resolves", "yaml", nil, "mark: ok\n"},
	} {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		e := explainCommand{factory: &factory{IOStreams: streams}, format: tt.format}
		err := e.print(cause.Report{
			Name: "db.shop", Type: "A", Chain: []cause.Step{{Name: "name", Mark: cause.OK, Evidence: "E"}},
			Verdict: cause.Verdict{Code: reason.Code(tt.code), Sentence: "S.", Remedy: "R.", Resolves: tt.code == "dns-stale"},
		})
		if !errors.Is(err, tt.want) || !strings.Contains(out.String(), tt.text) {
			t.Errorf("%s as %q: error %v, want %v; output:\n%s\nwant %q", tt.code, tt.format, err, tt.want, out, tt.text)
		}
	}
}

func TestWithPort(t *testing.T) {
	for in, want := range map[string]string{
		"10.96.0.53": "10.96.0.53:53", "10.96.0.53:1053": "10.96.0.53:1053", "fd00::53": "[fd00::53]:53",
		"[fd00::53]": "[fd00::53]:53", "": "", "a/b": "",
	} {
		if got, err := withPort(in); got != want || (err != nil) != (want == "") {
			t.Errorf("withPort(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
}

// A service may be named as kubectl and Pods do; other names stay as they are.
func TestQuestion(t *testing.T) {
	e := explainCommand{factory: &factory{kube: genericclioptions.NewConfigFlags(true)}, options: explain.Defaults()}
	*e.kube.Namespace = "shop"
	const db = "db.shop.svc.clusterset.local"
	for in, want := range map[string]string{
		"db": db, "service db": db, "svc/db": db, "serviceimport db": db, "shop/db": db, "service shop/db": db,
		"db.shop": db, "db.shop.svc": db, db: db, "db.shop AAAA": db + " AAAA", "svc db SRV": db + " SRV",
		"service":               "service.shop.svc.clusterset.local",
		"db-0.east.db.shop.svc": "db-0.east." + db, db + ".": db + ".", "clusterset.local": "clusterset.local",
		"db.shop.svc.cluster.local": "db.shop.svc.cluster.local", "shop.": "shop.", "db A AAAA": "",
	} {
		name, types, err := e.question(strings.Fields(in))
		if got := strings.Join(append([]string{name}, types...), " "); got != want || (err != nil) != (want == "") {
			t.Errorf("question of %q = %q, %v, want %q", in, got, err, want)
		}
	}
}
