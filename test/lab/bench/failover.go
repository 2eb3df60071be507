package main

import (
	"fmt"
)

// The bounds of failover: milliseconds, connections, writes and seconds.
const (
	targetMoved    = 1000
	targetFailed   = 0
	targetWrites   = 1
	targetTogether = 30
)

// A failoverPart is what clients see that connect all the time by way of kube-proxy.
type failoverPart struct {
	Proxy  string // version
	Moves  []moveResult
	Drains []drainedResult
}

// A moveResult is how long it took from the loss of the last selected endpoint, when the API server had answered, to
// the first connection in the next cluster.
type moveResult struct {
	Lost   string // where the endpoint was
	Client string // how its kube-proxy is set
	spans
}

// A drainedResult counts the connections while a cluster is drained and comes back.
type drainedResult struct {
	Drained     string
	Client      string
	Rounds      int
	Connections int
	Failed      int
}

func (p *failoverPart) markdown() string {
	moves := [][]string{{"last selected endpoint", "kube-proxy", "rounds", "p50, ms", "p99, ms", "max, ms", "target"}}
	for _, m := range p.Moves {
		moves = append(moves, []string{
			m.Lost, m.Client, fmt.Sprint(m.Number), fmt.Sprintf("%.0f", m.P50), fmt.Sprintf("%.0f", m.P99),
			fmt.Sprintf("%.0f", m.Max),
			m.goal().cell("%.0f"),
		})
	}
	drains := [][]string{{"drained and back", "kube-proxy", "rounds", "connections", "failed", "target"}}
	for _, d := range p.Drains {
		drains = append(drains, []string{
			d.Drained, d.Client, fmt.Sprint(d.Rounds), fmt.Sprint(d.Connections), fmt.Sprint(d.Failed), d.goal().cell("%.0f"),
		})
	}
	return heading("From the loss of the last selected endpoint to a connection in the next cluster",
		p.Proxy+".\n\n"+table(moves)+"\n"+table(drains))
}

func (p *failoverPart) goals() []goal {
	var all []goal
	for _, m := range p.Moves {
		all = append(all, m.goal())
	}
	for _, d := range p.Drains {
		all = append(all, d.goal())
	}
	return all
}

func (m moveResult) goal() goal {
	return newGoal(fmt.Sprintf("p99 from the loss in the %s to the next cluster, kube-proxy with %s, ms", m.Lost,
		m.Client), m.P99, targetMoved)
}

func (d drainedResult) goal() goal {
	return newGoal(fmt.Sprintf("failed connections while the %s is drained, kube-proxy with %s", d.Drained, d.Client),
		float64(d.Failed), targetFailed)
}

// A togetherPart is how all services of a member change their clusters at once.
type togetherPart struct {
	Services int
	// Floor is how long a client alone takes for a write, when it makes floorWrites for each service.
	Floor   float64
	Changes []togetherResult
}

// floorWrites is how many objects of each service the floor writes: as many as a change of selection, which shows a
// slice, hides another, and notes the reason in the import.
const floorWrites = 3

// A togetherResult is one change.
type togetherResult struct {
	What    string
	Written float64 // how long the change itself took to write
	Shown   float64 // from its begin until the last slice was shown or hidden
	Landed  float64 // and until connections of a sample landed in the other cluster; 0 if not looked for
	Slices  int     // that were written
	Most    int
	// What else the controller wrote, by API server, kind and verb, and what of it has to be written; empty if that is not
	// limited.
	Others  map[string]float64
	Allowed string
}

// String is the result in one line, as it is known long before the report.
func (c togetherResult) String() string {
	return fmt.Sprintf(
		"written in %.1f s, slices shown after %.1f s, connections land after %.1f s, %d slices written, one of them %d times, other writes: %s",
		c.Written, c.Shown, c.Landed, c.Slices, c.Most, counts(c.Others, "none"))
}

func (p *togetherPart) markdown() string {
	lines := [][]string{{
		"change", "written in, s", "slices shown, s", "connections land, s", "target", "times a client alone",
		"slices written", "writes of one", "target", "other writes", "target",
	}}
	for _, c := range p.Changes {
		landed := notMeasured
		if c.Landed > 0 {
			landed = fmt.Sprintf("%.1f", c.Landed)
		}
		goals, others := c.goals(), notMeasured
		if c.Allowed != "" {
			others = "only " + c.Allowed
			if goals[2].Missed {
				others += " **missed**"
			}
		}
		lines = append(lines, []string{
			c.What, fmt.Sprintf("%.1f", c.Written), fmt.Sprintf("%.1f", c.Shown), landed, goals[0].cell("%.0f"),
			p.timesFloor(c), fmt.Sprint(c.Slices), fmt.Sprint(c.Most), goals[1].cell("%.0f"), counts(c.Others, "none"), others,
		})
	}
	floor := fmt.Sprintf("A client alone takes %.2f ms for a write.\n\n", p.Floor*1000)
	return heading(fmt.Sprintf("%d services change their clusters together", p.Services), floor+table(lines))
}

// timesFloor returns how many times longer a change took than a client alone takes for as many writes.
func (p *togetherPart) timesFloor(c togetherResult) string {
	writes := float64(c.Slices)
	for _, n := range c.Others {
		writes += n
	}
	if writes == 0 {
		return notMeasured
	}
	return fmt.Sprintf("%.2f", max(c.Shown, c.Landed)/(writes*p.Floor))
}

func (p *togetherPart) goals() []goal {
	var all []goal
	for _, c := range p.Changes {
		all = append(all, c.goals()...)
	}
	return all
}

func (c togetherResult) goals() []goal {
	goals := []goal{
		newGoal(c.What+": until it is in effect, s", max(c.Shown, c.Landed), targetTogether),
		newGoal(c.What+": writes of one slice", float64(c.Most), targetWrites),
	}
	if c.Allowed != "" {
		goals = append(goals, newGoal(c.What+": other writes than "+c.Allowed, c.unwanted(), 0))
	}
	return goals
}

// unwanted is how much was written that is not allowed.
func (c togetherResult) unwanted() (n float64) {
	for what, writes := range c.Others {
		if what != c.Allowed {
			n += writes
		}
	}
	return n
}
