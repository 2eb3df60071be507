package main

import (
	"fmt"
	"slices"
	"strings"
)

func (p *scalePart) markdown() string {
	z := p.Size
	return heading(fmt.Sprintf("One member of a clusterset of %d", z.Members),
		fmt.Sprintf(
			"%d services in %d namespaces, each exported by %d of %d simulated members with %d endpoints in one slice: "+
				"%d records, %d slices, %d endpoints.\n\n"+
				"First import: all imports and slices after %.1f s, nothing left to do but Events after %.1f s, with %s.\n"+
				"Watches of one member at the broker: %s; below, those of the broker's API server itself are counted, too.\n"+
				"After the restart of the broker a change came through %.1f s after it served again; "+
				"after its own, the controller was in sync in %.1f s.\n\n",
			z.Services, z.Namespaces, z.Exporters, z.Members, z.Endpoints, z.exports(), z.exports(), z.endpoints(),
			p.Import, p.Synced, counts(p.phase("first import").Writes, "no writes"), counts(p.Watches, "none"),
			p.BrokerBack, p.ControllerBack)+
			p.phaseTable()+"\n"+p.watchTable()+"\n"+crossTable([]crossResult{p.Delays})+"\n"+p.memoryTable())
}

// phase returns the phase of that name; a part without it has an empty one.
func (p *scalePart) phase(what string) *scalePhase {
	i := slices.IndexFunc(p.Phases, func(p *scalePhase) bool { return p.What == what })
	if i < 0 {
		return &scalePhase{What: what}
	}
	return p.Phases[i]
}

func (p *scalePart) goals() []goal {
	var all []goal
	for _, ph := range p.Phases {
		all = append(all, ph.goals()...)
	}
	return append(all, newGoal("p99 from a change at the broker to its answer, 100 members, ms", p.Delays.P99,
		targetEndpointP99))
}

// goals: nothing is written where nothing changed, and no answer is lost.
func (p *scalePhase) goals() []goal {
	var all []goal
	if p.What == "idle" || p.Asked > 0 {
		all = append(all, newGoal(p.What+" with 100 members: writes but Leases", p.written(), 0))
	}
	if p.Asked > 0 {
		all = append(all, newGoal(p.What+" with 100 members: wrong answers", float64(p.Wrong), 0))
	}
	return all
}

func (p *scalePart) phaseTable() string {
	lines := [][]string{{
		"phase", "s", "writes", "Leases", "controller CPU, s", "DNS CPU, s", "broker CPU, s", "asked", "wrong", "target",
	}}
	for _, ph := range p.Phases {
		var targets []string
		for _, g := range ph.goals() {
			targets = append(targets, g.cell("%.0f"))
		}
		lines = append(lines, []string{
			ph.What, fmt.Sprintf("%.1f", ph.Seconds), fmt.Sprintf("%.0f", ph.written()), fmt.Sprintf("%.0f", ph.Leases),
			fmt.Sprintf("%.2f", ph.ControllerCPU), fmt.Sprintf("%.2f", ph.DNSCPU), fmt.Sprintf("%.2f", ph.BrokerCPU),
			fmt.Sprint(ph.Asked), fmt.Sprint(ph.Wrong), strings.Join(targets, ", "),
		})
	}
	return table(lines)
}

// watchTable shows what the broker sends to all watches together: each member more has one more of each resource. Those
// of the API server itself count, too, of which that of EndpointSlices gets as much as a member's.
func (p *scalePart) watchTable() string {
	lines := [][]string{{"phase", "resource", "watches", "events/s", "kB/s"}}
	for _, ph := range p.Phases {
		for _, resource := range brokerKinds {
			watches, rate := ph.Watches[resource], ph.Events[resource]/ph.Seconds
			// Less than that are bookmarks.
			if watches == 0 || rate < 0.5 {
				continue
			}
			lines = append(lines, []string{
				ph.What, resource, fmt.Sprintf("%.0f", watches), fmt.Sprintf("%.1f", rate),
				fmt.Sprintf("%.1f", ph.Octets[resource]/1e3/ph.Seconds),
			})
		}
	}
	return table(lines)
}

func (p *scalePart) memoryTable() string {
	lines := [][]string{{
		"memory, MB", "controller", "its peak", "its heap", "DNS", "its peak", "its live heap",
	}}
	for _, m := range p.Memory {
		line := []string{m.When}
		for _, octets := range []int64{m.Control, m.ControlPeak, m.ControlInUse, m.DNS, m.DNSPeak, m.DNSHeap} {
			line = append(line, fmt.Sprintf("%.1f", float64(octets)/1e6))
		}
		lines = append(lines, line)
	}
	return table(lines)
}
