package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

//go:embed manifests
var manifests embed.FS

// A scene is something that happens to the clusterset, and what south's DNS server is asked after it.
type scene struct {
	title, says string
	happens     func(*demo, context.Context) error
	then        []question
	// also shows what a person can see elsewhere; nil means nothing.
	also func(*demo, context.Context) error
}

var scenes = []scene{
	{
		title: "Two clusters export their services",
		says: `web and db run in namespace shop of east and of west. Exporting a service is one command, or a ServiceExport.
south has the namespace, and nothing in it.`,
		happens: (*demo).export,
		then: []question{
			{
				shows: "web is exported by both, and is one service: south gave it one virtual IP, of its own service network.",
				name:  "web.shop", qtype: "A", want: []string{"A VIP"},
			},
			{
				shows: "It has one of the other family, too.",
				name:  "web.shop", qtype: "AAAA", want: []string{"AAAA VIP"},
			},
			{
				shows: "SRV tells port and host, and brings the addresses along.",
				name:  "_http._tcp.web.shop", qtype: "SRV",
				want: []string{"SRV 0 100 80 web.shop.svc.clusterset.local.", "A VIP", "AAAA VIP"},
			},
			{
				shows: "What one cluster offers has a name as well: the Pods of web in west.",
				name:  "west.web.shop", qtype: "A", want: []string{"A 10.22.0.11"},
			},
			{
				shows: "db is headless: its name has the Pods of all clusters,",
				name:  "db.shop", qtype: "A", want: []string{"A 10.21.0.20", "A 10.21.0.21", "A 10.22.0.20"},
			},
			{
				shows: "the name of a cluster below it has those of that one,",
				name:  "east.db.shop", qtype: "A", want: []string{"A 10.21.0.20", "A 10.21.0.21"},
			},
			{
				shows: "and each Pod has a name of its own: db-0 in east",
				name:  "db-0.east.db.shop", qtype: "A", want: []string{"A 10.21.0.20"},
			},
			{
				shows: "is not db-0 in west.",
				name:  "db-0.west.db.shop", qtype: "A", want: []string{"A 10.22.0.20"},
			},
			{
				shows: "NXDOMAIN: there is no such name. Nobody exports a cache, so far.",
				name:  "cache.shop", qtype: "A", status: "NXDOMAIN",
			},
		},
	},
	{
		title:   "A Pod is no longer ready",
		says:    `db-1 in east fails its probe. Its controller tells the broker, that of south hears of it.`,
		happens: func(d *demo, ctx context.Context) error { return d.apply(ctx, d.east, "east-db.yaml") },
		then: []question{
			{
				shows: "Its address leaves the answer,",
				name:  "db.shop", qtype: "A", want: []string{"A 10.21.0.20", "A 10.22.0.20"},
			},
			{
				shows: "and its name is gone.",
				name:  "db-1.east.db.shop", qtype: "A", status: "NXDOMAIN",
			},
		},
	},
	{
		title: "An export is deleted",
		says:  `west exports db no longer. The Service in west stays as it is.`,
		happens: func(d *demo, ctx context.Context) error {
			return d.command(ctx, 0, "db -n shop deleted", "unexport", "db", "-n", "shop", "--context", "west")
		},
		then: []question{
			{
				shows: "East is left,",
				name:  "db.shop", qtype: "A", want: []string{"A 10.21.0.20"},
			},
			{
				shows: "west's part of it has no name any more.",
				name:  "west.db.shop", qtype: "A", status: "NXDOMAIN",
			},
		},
	},
	{
		title: "Two exports disagree",
		says: `east exports a cache with a cluster IP, then west one that is headless. One name cannot be both: the older export
wins, in every cluster alike, and all who export the service are told.`,
		happens: (*demo).exportCaches,
		then: []question{
			{
				shows: "It is as east has it: one virtual IP.",
				name:  "cache.shop", qtype: "A", want: []string{"A VIP"},
			},
			{
				shows: "West is a part of it all the same.",
				name:  "west.cache.shop", qtype: "A", want: []string{"A 10.22.0.30"},
			},
		},
		also: (*demo).disagreed,
	},
	{
		title: "A member dies",
		says: fmt.Sprintf(`The controller and the API server of west are killed. Nobody says goodbye: its heartbeat at the broker stops. After
%s its endpoints are taken out everywhere; what it exported is remembered, for when it comes back.`, leaseTTL),
		happens: (*demo).kill,
		then: []question{
			{
				shows: "West's Pods are gone from the answers.",
				name:  "west.web.shop", qtype: "A", status: "NXDOMAIN",
			},
			{
				shows: "The service goes on, at the same virtual IP, with what east has.",
				name:  "web.shop", qtype: "A", want: []string{"A VIP"},
			},
			{
				shows: "East is untouched.",
				name:  "east.web.shop", qtype: "A", want: []string{"A 10.21.0.11", "A 10.21.0.12"},
			},
		},
		also: (*demo).expired,
	},
}

// play shows all scenes, and fails if an answer is wrong.
func (d *demo) play(ctx context.Context) error {
	for _, s := range scenes {
		d.heading(s.title, s.says)
		if err := s.happens(d, ctx); err != nil {
			return err
		}
		began := time.Now()
		for _, q := range s.then {
			if err := d.awaitAnswer(ctx, q); err != nil {
				return err
			}
		}
		d.printf("   %s later the DNS server in south has followed.\n\n", duration(time.Since(began)))
		if err := d.askAll(ctx, s.then); err != nil {
			return err
		}
		if s.also == nil {
			continue
		}
		if err := s.also(d, ctx); err != nil {
			return err
		}
	}
	return nil
}

// apply writes the objects of one of our manifests.
func (d *demo) apply(ctx context.Context, m *testclusterset.Member, name string) error {
	text, err := manifests.ReadFile("manifests/" + name)
	if err != nil {
		return err
	}
	d.printf("   Into %s goes test/tools/demo/manifests/%s.\n\n", m.ID, name)
	return m.ApplyYAML(ctx, text)
}

func (d *demo) export(ctx context.Context) error {
	for _, m := range d.fleet.Members {
		if err := d.apply(ctx, m, m.ID+".yaml"); err != nil {
			return err
		}
	}
	for _, m := range []*testclusterset.Member{d.east, d.west} {
		if err := d.exportFrom(ctx, m, "web", "db"); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) exportCaches(ctx context.Context) error {
	for _, m := range []*testclusterset.Member{d.east, d.west} {
		if err := d.apply(ctx, m, m.ID+"-cache.yaml"); err != nil {
			return err
		}
		if err := d.exportFrom(ctx, m, "cache"); err != nil {
			return err
		}
	}
	return nil
}

// exportFrom exports services that were made a moment ago.
func (d *demo) exportFrom(ctx context.Context, m *testclusterset.Member, services ...string) error {
	args := slices.Concat([]string{"export"}, services, []string{"-n", "shop", "--context", m.ID})
	return d.command(ctx, 0, services[0]+" -n shop", args...)
}

// disagreement is what both exports of the cache say about them.
const disagreement = `TypeConflict: Conflicting type. Using "ClusterSetIP" from oldest service export in "east". 1/2 clusters disagree.`

// disagreed shows where the conflict can be seen.
func (d *demo) disagreed(ctx context.Context) error {
	d.printf("   The conflict is told by condition Conflict of both ServiceExports:\n")
	for _, m := range []*testclusterset.Member{d.east, d.west} {
		err := d.await(ctx, func(ctx context.Context) error { return conflict(ctx, m) })
		if err != nil {
			return err
		}
		d.printf("     %s: True, %s\n", m.ID, disagreement)
	}
	d.printf("\n   and by status, as a warning:\n")
	return d.command(ctx, 0, "TypeConflict", "status", "--context", "east")
}

// expired shows that an operator can see who is dead.
func (d *demo) expired(ctx context.Context) error {
	d.printf("   An operator sees the dead member. Something is wrong, so the exit status is 2.\n")
	return d.command(ctx, 2, `member "west" last renewed its heartbeat`, "status", "--context", "south", "--lease-ttl", leaseTTL)
}

// conflict fails unless the member's export of the cache tells of the conflict.
func conflict(ctx context.Context, m *testclusterset.Member) error {
	exp, err := m.ServiceExport(ctx, "shop", "cache")
	if err != nil {
		return err
	}
	c := meta.FindStatusCondition(exp.Status.Conditions, string(mcsv1beta1.ServiceExportConditionConflict))
	if c == nil {
		return errors.New("export of the cache in " + m.ID + ": no condition Conflict")
	}
	if got := c.Reason + ": " + c.Message; c.Status != "True" || got != disagreement {
		return fmt.Errorf("export of the cache in %s: %s, %s, want True, %s", m.ID, c.Status, got, disagreement)
	}
	return nil
}

func (d *demo) kill(context.Context) error {
	controller := d.westControl
	d.westControl = nil
	p, err := os.FindProcess(controller.Pid())
	if err != nil {
		return err
	}
	if err := p.Kill(); err != nil {
		return err
	}
	<-controller.Done()
	d.west.KillAPIServer()
	d.printf("   $ kill -9 %d    # the controller of west; its kube-apiserver likewise\n\n", controller.Pid())
	return nil
}
