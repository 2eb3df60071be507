package plan

import (
	"cmp"
	"fmt"
)

// A Member is one of those that are verified.
type Member struct {
	Name string
	Asks bool // its DNS can be asked: by a Pod, or at an address that was given
}

// Plan returns all checks of each ordered pair of members, without results. Without pods, it leaves out checks that
// need endpoints: a connection, and the names of a headless service. Names that nothing asks have that as evidence.
func Plan(members []Member, pods bool) (all []Check) {
	for _, from := range members {
		for _, to := range members {
			if from.Name == to.Name {
				continue
			}
			add := func(step Step, kind ServiceKind) {
				c := Check{From: from.Name, To: to.Name, Step: step, Kind: kind, Mark: Skipped}
				if layers[step] == LayerDNS && !to.Asks {
					c.Evidence = "no DNS server to ask in " + to.Name + " (--dns-server)"
				}
				all = append(all, c)
			}
			if pods {
				add(Pods, "")
			}
			for _, kind := range []ServiceKind{ClusterSetIP, Headless} {
				add(Export, kind)
				add(Import, kind)
				if pods || kind == ClusterSetIP {
					add(DNS, kind)
				}
				if pods {
					add(TCP, kind)
					add(UDP, kind)
				}
			}
			for _, kind := range []ServiceKind{ClusterSetIP, Headless} {
				add(Withdrawal, kind)
				if pods || kind == ClusterSetIP {
					add(NameGone, kind)
				}
			}
		}
	}
	return all
}

// Fill puts results in the places that a plan has for them: one result, or one for each IP family. A check without a
// result is skipped, because of the first one of its kind that failed.
func Fill(plan, results []Check) (all []Check) {
	type place struct {
		Way
		step Step
	}
	at := func(c Check) place { return place{c.Way(), c.Step} }
	found := map[place][]Check{}
	for _, r := range results {
		found[at(r)] = append(found[at(r)], r)
	}
	cause := map[Way]Step{}
	for _, p := range plan {
		got := found[at(p)]
		for _, r := range got {
			if _, known := cause[p.Way()]; r.Mark == Failed && !known {
				cause[p.Way()] = p.Step
			}
		}
		if len(got) == 0 {
			p.Evidence = cmp.Or(p.Evidence, "it was not reached")
			for _, w := range []Way{{p.From, p.To, ""}, p.Way()} {
				if step, failed := cause[w]; failed {
					p.Evidence = fmt.Sprintf("the step %q failed", step)
					break
				}
			}
			got = []Check{p}
		}
		all = append(all, got...)
	}
	return all
}
