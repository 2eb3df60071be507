package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
	"github.com/clusterset-dns/clusterset/test/tools/demo/ask"
)

// A scene is a change in the clusterset, and the questions to the DNS server in south after it.
type scene struct {
	title, says string
	happens     func(*demo, context.Context) error
	then        []ask.Question
	// also shows what an operator can see elsewhere; it may be nil.
	also func(*demo, context.Context) error
}

var scenes = []scene{
	{
		title: "Two clusters export their services",
		says: `The Services web and db run in the namespace shop of east and of west. One command exports a Service: it creates a
ServiceExport. In south the namespace exists and is empty.`,
		happens: (*demo).export,
		then: []ask.Question{
			{
				Shows: "Both clusters export web, which makes one service. South gave it a virtual IP from its own service network.",
				Name:  "web.shop", Qtype: "A", Want: []string{"A VIP"},
			},
			{
				Shows: "It has an IPv6 address, too.",
				Name:  "web.shop", Qtype: "AAAA", Want: []string{"AAAA VIP"},
			},
			{
				Shows: "An SRV record has the port and the host, and the addresses of the host come along.",
				Name:  "_http._tcp.web.shop", Qtype: "SRV",
				Want: []string{"SRV 0 100 80 web.shop.svc.clusterset.local.", "A VIP", "AAAA VIP"},
			},
			{
				Shows: "The part of one cluster has a name as well: the Pods of web in west.",
				Name:  "west.web.shop", Qtype: "A", Want: []string{"A 10.22.0.11"},
			},
			{
				Shows: "db is headless: its name has the addresses of its Pods in all clusters,",
				Name:  "db.shop", Qtype: "A", Want: []string{"A 10.21.0.20", "A 10.21.0.21", "A 10.22.0.20"},
			},
			{
				Shows: "the name with a cluster ID has those in one cluster,",
				Name:  "east.db.shop", Qtype: "A", Want: []string{"A 10.21.0.20", "A 10.21.0.21"},
			},
			{
				Shows: "and each Pod has its own name: db-0 in east",
				Name:  "db-0.east.db.shop", Qtype: "A", Want: []string{"A 10.21.0.20"},
			},
			{
				Shows: "is another Pod than db-0 in west.",
				Name:  "db-0.west.db.shop", Qtype: "A", Want: []string{"A 10.22.0.20"},
			},
			{
				Shows: "NXDOMAIN: the name does not exist. No cluster exports a cache yet.",
				Name:  "cache.shop", Qtype: "A", Status: "NXDOMAIN",
			},
		},
	},
	{
		title: "A Pod is no longer ready",
		says: `The Pod db-1 in east fails its readiness probe. The controller of east writes that to the broker, and the controller of
south reads it there.`,
		happens: func(d *demo, ctx context.Context) error { return d.apply(ctx, d.east, "east-db.yaml") },
		then: []ask.Question{
			{
				Shows: "The answer does not have its address any more,",
				Name:  "db.shop", Qtype: "A", Want: []string{"A 10.21.0.20", "A 10.22.0.20"},
			},
			{
				Shows: "and its name does not exist.",
				Name:  "db-1.east.db.shop", Qtype: "A", Status: "NXDOMAIN",
			},
		},
	},
	{
		title: "An export is deleted",
		says:  `west stops exporting db. The Service in west stays as it is.`,
		happens: func(d *demo, ctx context.Context) error {
			return d.command(ctx, 0, "db -n shop deleted", "unexport", "db", "-n", "shop", "--context", "west")
		},
		then: []ask.Question{
			{
				Shows: "Only the Pods of east are left,",
				Name:  "db.shop", Qtype: "A", Want: []string{"A 10.21.0.20"},
			},
			{
				Shows: "and the name of the part of west does not exist.",
				Name:  "west.db.shop", Qtype: "A", Status: "NXDOMAIN",
			},
		},
	},
	{
		title: "Two exports disagree",
		says: `east exports a cache with a cluster IP, then west exports one that is headless. A service cannot be both: the oldest
export decides, with the same result in every cluster, and each ServiceExport reports the conflict.`,
		happens: (*demo).exportCaches,
		then: []ask.Question{
			{
				Shows: "The export of east is older, so the service has a virtual IP.",
				Name:  "cache.shop", Qtype: "A", Want: []string{"A VIP"},
			},
			{
				Shows: "The endpoints of west are part of it.",
				Name:  "west.cache.shop", Qtype: "A", Want: []string{"A 10.22.0.30"},
			},
		},
		also: (*demo).disagreed,
	},
	{
		title: "The nearest Pods die",
		says: `The service front runs in south, too, where its namespace has the annotation clusterset-dns.io/affinity: local. So clients in
south use the Pods of south while there are any. There is no kube-proxy here: the demo reads the imported slices as
kube-proxy does. Then all Pods in south die.`,
		happens: (*demo).localPodsDie,
		then: []ask.Question{
			{
				Shows: "The part of south has no names any more.",
				Name:  "south.front.news", Qtype: "A", Status: "NXDOMAIN",
			},
			{
				Shows: "The service keeps its virtual IP, so clients need not ask again.",
				Name:  "front.news", Qtype: "A", Want: []string{"A VIP"},
			},
		},
		also: (*demo).failOver,
	},
	{
		title: "A member dies",
		says: fmt.Sprintf(`The demo kills the controller and the API server of west, which cannot deregister: its heartbeat on the broker stops.
After %s the other members withdraw its endpoints. Its exports stay on the broker, for the time when it comes back.`, leaseTTL),
		happens: (*demo).kill,
		then: []ask.Question{
			{
				Shows: "The Pods of west have no names any more.",
				Name:  "west.web.shop", Qtype: "A", Status: "NXDOMAIN",
			},
			{
				Shows: "The service keeps its virtual IP, with the Pods of east behind it.",
				Name:  "web.shop", Qtype: "A", Want: []string{"A VIP"},
			},
			{
				Shows: "The part of east is as before.",
				Name:  "east.web.shop", Qtype: "A", Want: []string{"A 10.21.0.11", "A 10.21.0.12"},
			},
		},
		also: (*demo).expired,
	},
}

// play shows all scenes and fails if an answer is wrong.
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
		d.printf("   The DNS server in south serves the change %s later.\n\n", duration(time.Since(began)))
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

func (d *demo) export(ctx context.Context) error {
	for _, m := range d.clusterset.Members {
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

// exportFrom exports Services.
func (d *demo) exportFrom(ctx context.Context, m *testclusterset.Member, services ...string) error {
	args := slices.Concat([]string{"export"}, services, []string{"-n", "shop", "--context", m.ID})
	return d.command(ctx, 0, services[0]+" -n shop", args...)
}

// disagreement is the reason and message of the condition Conflict of both exports of the cache.
const disagreement = `TypeConflict: Conflicting type. Using "ClusterSetIP" from oldest service export in "east". 1/2 clusters disagree. [conflict-type]`

// disagreed shows where an operator can see the conflict.
func (d *demo) disagreed(ctx context.Context) error {
	d.printf("   Both ServiceExports have the condition Conflict:\n")
	for _, m := range []*testclusterset.Member{d.east, d.west} {
		err := d.await(ctx, func(ctx context.Context) error { return conflict(ctx, m) })
		if err != nil {
			return err
		}
		d.printf("     %s: True, %s\n", m.ID, disagreement)
	}
	d.printf("\n   The command status warns of it:\n")
	return d.command(ctx, 0, "TypeConflict", "status", "--context", "east")
}

// expired shows where an operator can see the dead member.
func (d *demo) expired(ctx context.Context) error {
	d.printf("   The command status reports the dead member. Its exit status is 2, because something is wrong.\n")
	return d.command(ctx, 2, `member "west" last renewed its heartbeat`, "status", "--context", "south", "--lease-ttl", leaseTTL)
}

// conflict fails unless the member's export of the cache has the condition Conflict.
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

// The Pods of the service front.
var inSouth, inEast = []string{"10.23.0.40", "10.23.0.41"}, []string{"10.21.0.40"}

// localPodsDie exports front from south and from east, shows that connections from south stay there, and takes its Pods
// there away.
func (d *demo) localPodsDie(ctx context.Context) error {
	for _, m := range []*testclusterset.Member{d.east, d.south} {
		if err := d.apply(ctx, m, m.ID+"-near.yaml"); err != nil {
			return err
		}
		err := d.command(ctx, 0, "front -n news", "export", "front", "-n", "news", "--context", m.ID)
		if err != nil {
			return err
		}
	}
	if err := d.showTargets(ctx, "both clusters have Pods, and those of south are nearer", inSouth); err != nil {
		return err
	}
	return d.apply(ctx, d.south, "south-near-down.yaml")
}

// failOver shows where connections go when the Pods in south are gone.
func (d *demo) failOver(ctx context.Context) error {
	return d.showTargets(ctx, "connections to front now go to Pods in east", inEast)
}

// showTargets waits until kube-proxy in south would send connections to front to these Pods, and no others.
func (d *demo) showTargets(ctx context.Context, why string, want []string) error {
	err := d.await(ctx, func(ctx context.Context) error {
		got, err := d.targets(ctx)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("connections to front in south go to %q, want %q", got, want)
		}
		return err
	})
	if err != nil {
		return err
	}
	d.printf("   kube-proxy in south would connect clients of front to %s: %s.\n\n", strings.Join(want, " or "), why)
	return nil
}

// targets are the ready endpoints in the imported slices that kube-proxy reads: it leaves out those with the label for
// headless services.
func (d *demo) targets(ctx context.Context) ([]string, error) {
	list, err := d.south.Imported(ctx, "news", "front")
	if err != nil {
		return nil, err
	}
	var all []string
	for i := range list {
		if _, hidden := list[i].Labels[corev1.IsHeadlessService]; hidden {
			continue
		}
		for _, e := range list[i].Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				all = append(all, e.Addresses...)
			}
		}
	}
	slices.Sort(all)
	return all, nil
}
