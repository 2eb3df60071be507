package deploy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/controller/safety"
	"github.com/clusterset-dns/clusterset/test/harness/program"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

const (
	rulesFile     = "alerts/clusterset.rules.yaml"
	rulesTestFile = "alerts/clusterset.test.yaml"
	dashboardFile = "dashboard/clusterset.json"
)

var metricName = regexp.MustCompile(`\bcoredns_clusterset_[a-z_]*[a-z]\b`)

// knownMetrics are those in docs/metrics.md, which a test of its own compares with the code.
func knownMetrics(t *testing.T) []string {
	t.Helper()
	readme, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known := metricName.FindAllString(string(readme), -1)
	if len(known) == 0 {
		t.Fatal("docs/metrics.md names no metrics")
	}
	return known
}

// TestMetricsExist finds a name in alerts or dashboard that nothing exports, and one that no panel shows.
func TestMetricsExist(t *testing.T) {
	known := knownMetrics(t)
	var shown []string
	for _, file := range []string{rulesFile, rulesTestFile, dashboardFile} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := metricName.FindAllString(string(b), -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, name := range names {
			name = strings.TrimSuffix(name, "_bucket")
			if !slices.Contains(known, name) {
				t.Errorf("%s: %s is no metric of ours", file, name)
			}
			if file == dashboardFile {
				shown = append(shown, name)
			}
		}
	}
	for _, name := range known {
		// The serial is for comparing servers by hand.
		if !slices.Contains(shown, name) && name != "coredns_clusterset_serial" {
			t.Errorf("%s shows no %s", dashboardFile, name)
		}
	}
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	tier.All(t) // It takes minutes to compile.
	if out, err := exec.CommandContext(t.Context(), program.Find(t, "promtool"), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// alertRules is what the tests read of clusterset.rules.yaml.
type alertRules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert       string
			Expr        string
			Labels      map[string]string
			Annotations map[string]string
		}
	}
}

func TestAlerts(t *testing.T) {
	promtool(t, "check", "rules", rulesFile)
	promtool(t, "test", "rules", rulesTestFile)
	b, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var rules alertRules
	if err := yaml.Unmarshal(b, &rules); err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(rulesTestFile)
	if err != nil {
		t.Fatal(err)
	}
	alerts := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts++
			if !strings.Contains(string(tests), fmt.Sprintf("alertname=%q, severity=%q", r.Alert, r.Labels["severity"])) {
				t.Errorf("%s: %s of severity %q never fires in it", rulesTestFile, r.Alert, r.Labels["severity"])
			}
			if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) ||
				r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s: %s has labels %v and annotations %v, want a severity, summary and description",
					rulesFile, r.Alert, r.Labels, r.Annotations)
			}
		}
	}
	if alerts == 0 {
		t.Errorf("%s has no alerts", rulesFile)
	}
}

// TestDashboard has promtool parse every query, and looks for panels that cover each other.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		SchemaVersion int
		UID           string
		Panels        []struct {
			ID          int
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.SchemaVersion < 30 || dashboard.UID == "" || len(dashboard.Panels) == 0 {
		t.Errorf("schema version %d, uid %q, %d panels, want a version from 30 on, a uid and panels",
			dashboard.SchemaVersion, dashboard.UID, len(dashboard.Panels))
	}
	var text strings.Builder
	text.WriteString("groups:\n- name: dashboard\n  rules:\n")
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*")
	taken := map[[2]int]string{}
	for _, p := range dashboard.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
		for i, target := range p.Targets {
			expr := variables.Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("panel %q: %s has a variable that the dashboard does not define", p.Title, expr)
			}
			fmt.Fprintf(&text, "  - record: panel_%d_%d\n    expr: %q\n", p.ID, i, expr)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[at]; ok || at[0] >= 24 {
					t.Fatalf("panel %q covers %q or is beyond the right edge", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
	}
	queries := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(queries, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", queries)
}

// The alert on a freeze explains each reason that there is.
func TestFreezeReasonsAreExplained(t *testing.T) {
	rules, err := os.ReadFile("alerts/clusterset.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, alert, _ := strings.Cut(string(rules), "- alert: ClusterSetFrozen\n")
	alert, _, _ = strings.Cut(alert, "- alert: ")
	for _, r := range safety.Reasons() {
		if !strings.Contains(alert, r.String()) {
			t.Errorf("alert ClusterSetFrozen does not explain %s", r)
		}
	}
}
