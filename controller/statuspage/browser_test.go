//go:build page

package statuspage

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset/controller/page"
)

var screenshots = flag.Bool("update", false, "write the screenshots into docs/images")

// shop is a clusterset in which something of each kind is to be seen. text changes each text that another member may
// have written.
func shop(text func(string) string) func(page.Query) page.Status {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	member := func(id string, state page.MemberState, exports, imported int) page.Member {
		return page.Member{ID: text(id), State: state, Heartbeat: ago(4 * time.Second), TTL: time.Minute, Version: "0.9.0",
			Exports: exports, Imported: imported}
	}
	expired := member("north", page.Expired, 2, 2)
	expired.Heartbeat, expired.Since = ago(13*time.Minute), ago(12*time.Minute)
	rows := map[string]page.Service{
		"bank/ledger": {Exporters: []string{"west"}, State: "not imported: this cluster has no namespace of the name"},
		"shop/cart": {Type: "ClusterSetIP", Addresses: []string{"10.96.14.7"}, Exporters: []string{"east", "west"},
			Ready: 6, State: "ready", OK: true},
		"shop/db": {Type: "Headless", Exporters: []string{"east", "south"}, Ready: 3, State: "ready", OK: true},
		"shop/search": {Type: "ClusterSetIP", Addresses: []string{"10.96.3.21"}, Exporters: []string{"north"},
			State: "ready", OK: true},
		"shop/web": {Type: "ClusterSetIP", Addresses: []string{"10.96.0.80", "fd00:96::50"},
			Exporters: []string{"east", "north", "west"}, Ready: 8, State: "ready", OK: true},
	}
	return func(q page.Query) page.Status {
		var names []string
		for name := range rows {
			names = append(names, name)
		}
		slices.Sort(names)
		services := q.Select(names)
		for i, r := range services.Rows {
			row := rows[r.Name]
			row.Name, row.State = text(r.Name), text(row.State)
			services.Rows[i] = row
		}
		return page.Status{
			At: now, Instance: "clusterset-controller-7d4b9", Version: "0.9.0", Cluster: "east",
			State:  page.State{Leads: true, Detail: "This instance leads."},
			Broker: page.Link{Connected: true, Membership: "admitted"},
			Counts: page.Counts{Members: 4, Expired: 1, Services: 5, Exports: 3, Imports: 4, Conflicts: 1, Selections: 1},
			Frozen: []page.Freeze{{Reason: "lost_members", Code: "controller-frozen", Suspends: "nothing",
				Since: ago(25 * time.Minute),
				Detail: text(
					"the broker was restored to before south joined: join again there; what is imported from there stays")}},
			Members: []page.Member{member("east", page.Self, 3, 3), expired, member("south", page.Live, 1, 1),
				member("west", page.Live, 3, 2)},
			Conflicts: []page.Conflict{{Service: text("shop/web"), Reasons: "SessionAffinityConflict",
				Detail: text(`Conflicting session affinity. Using "ClientIP" from oldest service export in "east". 1/3 clusters disagree.`)}},
			Selections: []page.Selection{{Service: text("shop/cart"), Port: "http TCP IPv4", Clusters: []string{"west"},
				Since: ago(3 * time.Minute),
				Why:   "no preferred cluster has a ready endpoint, or not for long enough", Prefers: text(`[{"propertySelector":{"matchProperties":{"cluster.clusterset.k8s.io":"@SameAsImporter@"}}}]`)}},
			Services: services,
		}
	}
}

// docs/spec/operations.md 8: in a real browser the page has its colours, light and dark, can be used by keyboard and by
// screen readers, and runs nothing, whatever members have written.
func TestStatusPageInBrowser(t *testing.T) {
	folder, docs := t.TempDir(), "../../docs/images"
	hostile := func(s string) string {
		return s + `</title></style><script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>` + "\u202e"
	}
	for name, text := range map[string]func(string) string{"plain": func(s string) string { return s },
		"hostile": hostile} {
		url, _ := servePage(t, "127.0.0.1:0", shop(text))
		cmd := exec.CommandContext(t.Context(), "../../bin/browser", "chromium", url(), folder)
		out, err := cmd.CombinedOutput()
		t.Logf("%s:\n%s", name, out)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "hostile" {
			continue
		}
		for _, scheme := range []string{"light", "dark"} {
			file := "status-" + scheme + ".png"
			shot, err := os.ReadFile(filepath.Join(folder, file))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(shot), "\x89PNG") || len(shot) > 150<<10 {
				t.Errorf("%s: %d octets; want a picture of at most 150 KiB", file, len(shot))
			}
			if !*screenshots {
				continue
			}
			if err := os.WriteFile(filepath.Join(docs, file), shot, 0o600); err != nil {
				t.Error(fmt.Errorf("%s: %w", docs, err))
			}
		}
	}
}
