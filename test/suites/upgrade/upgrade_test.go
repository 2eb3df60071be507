//go:build upgrade

package upgrade

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/harness/until"
)

// A clusterset is a broker and two members, in the course of an upgrade.
type clusterset struct {
	*testing.T
	broker  string // kubeconfig
	members []*member
	watches []*watch
	rounds  int
	imports map[string]string // UIDs by member and name, of services that are exported throughout
}

// TestUpgrade upgrades the broker, then one member after the other, as docs/upgrading.md says, and goes back in the opposite order. At each
// stage members of both versions export to each other, change and withdraw. What is exported throughout resolves at every moment in every
// member, by DNS servers of both versions, and no import of it is deleted.
func TestUpgrade(t *testing.T) {
	previous, current := versions(t)
	c := start(t, previous)
	east, west := c.members[0], c.members[1]
	c.stage("all of "+previous.name, nil)
	c.says(current, "1. broker: update CRDs, policies and rights")

	c.stage("broker of "+current.name, func() { current.run(t, "broker", "init", "--broker-kubeconfig="+c.broker) })
	for _, m := range c.members {
		c.stage(m.ID+" of "+current.name, func() {
			m.prepare(t, current, c.broker, "--components=none")
			m.roll(t, current)
			m.serve(t, current)
		})
	}
	c.says(current, "")

	for _, m := range []*member{west, east} {
		c.stage(m.ID+" back at "+previous.name, func() { m.roll(t, previous) })
	}
	c.stage("east of "+current.name+" again", func() { east.roll(t, current) })
}

// says waits until the plan of a version begins with that; an empty text means that there is nothing to do.
func (c *clusterset) says(v version, begin string) {
	c.Helper()
	east := c.members[0]
	until.OK(c.T, "upgrade --check of "+v.name, func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, filepath.Join(v.bin, "clusterset"), "upgrade", "--check", "--kubeconfig="+east.Kubeconfig(),
			"--broker-kubeconfig="+c.broker).CombinedOutput()
		if (err == nil) != (begin == "") || !strings.HasPrefix(string(out), begin) {
			return fmt.Errorf("%w\n%s\nwant %q, or nothing to do if that is empty", err, out, begin)
		}
		return nil
	})
}

// start makes a clusterset with the programs, rights and policies of one version.
func start(t *testing.T, v version) *clusterset {
	t.Helper()
	var manifests [][]byte
	for _, name := range []string{"namespace.yaml", "controller/rbac.yaml", "dns/rbac.yaml"} {
		manifests = append(manifests, v.manifest(t, name))
	}
	empty := controlplane.Options{CRDs: [][]byte{}} // the command brings them
	started, err := testclusterset.Start(t.Context(), testclusterset.Options{
		IDs: []string{"east", "west"}, Broker: empty, Member: empty, Bare: true, Manifests: manifests,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := &clusterset{T: t, broker: started.Broker.Kubeconfig(), imports: make(map[string]string)}
	v.run(t, "broker", "init", "--broker-kubeconfig="+c.broker)
	for _, s := range started.Members {
		m := &member{Member: s, dns: make(map[string]*testclusterset.DNS)}
		m.Put(t, testclusterset.Namespace("shop"))
		m.prepare(t, v, c.broker)
		t.Cleanup(func() { m.stop(t) })
		m.roll(t, v)
		m.serve(t, v)
		c.members, c.watches = append(c.members, m), append(c.watches, &watch{known: make(map[string]string)})
	}
	c.both()
	return c
}

// both exports what is there throughout: from each member a service and a headless one, and a service from both.
func (c *clusterset) both() {
	c.Helper()
	names := []string{"shared"}
	for _, m := range c.members {
		web, db := testclusterset.Service("shop", "web-"+m.ID, http), testclusterset.Headless("shop", "db-"+m.ID, http)
		shared := testclusterset.Service("shop", "shared", http)
		for i, s := range []*corev1.Service{web, db, shared} {
			m.Put(c.T, s, testclusterset.Slice(s, s.Name+"-a", testclusterset.Endpoint{Address: m.PodIP(i, corev1.IPv4Protocol)}), testclusterset.Export("shop", s.Name))
		}
		names = append(names, web.Name, db.Name)
	}
	for i, m := range c.members {
		for _, name := range names {
			fits := oneAddress
			if exporter, ok := strings.CutPrefix(name, "db-"); ok {
				fits = is("NOERROR " + c.member(exporter).PodIP(1, corev1.IPv4Protocol))
			}
			c.watches[i].expect(name+".shop", m.answer(c.T, name+".shop", fits))
			c.imports[m.ID+" "+name] = uid(c.T, m, name)
		}
		until.OK(c.T, m.ID+" has slices of both clusters", func(ctx context.Context) error {
			slices, err := m.Imported(ctx, "shop", "shared")
			if err == nil && len(slices) != len(c.members) {
				err = fmt.Errorf("%d slices, want %d", len(slices), len(c.members))
			}
			return err
		})
	}
}

var http = testclusterset.Port("http", 80)

func (c *clusterset) member(id string) *member {
	for _, m := range c.members {
		if m.ID == id {
			return m
		}
	}
	panic("upgrade: no member " + id)
}

func uid(t *testing.T, m *member, name string) string {
	t.Helper()
	imported, err := m.Import(t.Context(), "shop", name)
	if err != nil {
		t.Fatal(err)
	}
	return string(imported.UID)
}

// stage changes something while all names are asked for, and then has each member export, change and withdraw.
func (c *clusterset) stage(what string, change func()) {
	c.Helper()
	c.Logf("stage: %s", what)
	for i, m := range c.members {
		defer c.watches[i].start(c.T, m)()
	}
	if change != nil {
		change()
	}
	c.rounds++
	for _, m := range c.members {
		c.exchanges(what, m)
	}
	for key, before := range c.imports {
		id, name, _ := strings.Cut(key, " ")
		if after := uid(c.T, c.member(id), name); after != before {
			c.Errorf("%s: import %s of %s has UID %s, had %s: want it never deleted", what, name, id, after, before)
		}
	}
}

// exchanges has a member export two services, change the endpoints of one, and withdraw both. All members see each step.
func (c *clusterset) exchanges(what string, m *member) {
	c.Helper()
	suffix := fmt.Sprintf("-%s-%d", m.ID, c.rounds)
	web, db := testclusterset.Service("shop", "web"+suffix, http), testclusterset.Headless("shop", "db"+suffix, http)
	endpoint := func(n int) testclusterset.Endpoint {
		return testclusterset.Endpoint{Address: m.PodIP(n, corev1.IPv4Protocol)}
	}
	see := func(step, name string, fits func(string) bool) {
		for _, other := range c.members {
			c.Logf("%s: %s of %s, seen by %s", what, step, name, other.ID)
			other.answer(c.T, name+".shop", fits)
		}
	}
	m.Put(c.T, web, db, testclusterset.Slice(web, web.Name+"-a", endpoint(10)), testclusterset.Slice(db, db.Name+"-a", endpoint(11)),
		testclusterset.Export("shop", web.Name), testclusterset.Export("shop", db.Name))
	see("export", web.Name, oneAddress)
	see("export", db.Name, is("NOERROR "+endpoint(11).Address))
	m.Put(c.T, testclusterset.Slice(db, db.Name+"-a", endpoint(12)))
	see("change", db.Name, is("NOERROR "+endpoint(12).Address))
	m.Drop(c.T, testclusterset.Export("shop", web.Name), testclusterset.Export("shop", db.Name))
	see("withdrawal", web.Name, is("NXDOMAIN"))
	see("withdrawal", db.Name, is("NXDOMAIN"))
}
