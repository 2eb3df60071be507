package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

const (
	growthEndpoints = 1_000 // of each headless service
	// Zones of any size are asked for as many names at most, spread over all of the zone.
	growthNames  = 1_000
	growthRounds = 5
	// A server is started so often for its memory. The in-tree plugin takes long in large zones and is started once.
	growthStarts = 3

	growthChanges      = 1_000 // in one measurement
	growthChangeRounds = 3

	targetGrowth         = 1.1   // of the largest zone over the smallest
	targetGrowthResident = 200e6 // octets over empty, with 1,000,000 endpoints
	targetSliceChange    = 100   // µs, with 100,000 services
)

var growthPeers = []peer{inTreePeer, ourPeer}

// A growthSize is how much a zone holds.
type growthSize struct{ vips, headless int }

// A growthAxis is a zone that grows in one direction.
type growthAxis struct {
	name, beside string
	size         func(growthSize) int // along the axis
	sizes        []growthSize         // the smallest first
	// target is how much more a query may cost in the largest zone than in the smallest; 0 means none is set.
	target float64
}

// The names of the axes, and what they count.
const axisEndpoints, axisServices = "endpoints", "services"

func growthAxes() []growthAxis {
	return []growthAxis{
		{
			axisServices, "one headless service of 1,000 endpoints",
			func(s growthSize) int { return s.vips },
			[]growthSize{{100, 1}, {1_000, 1}, {10_000, 1}, {100_000, 1}}, 0,
		},
		{
			axisEndpoints, "1,000 VIPs",
			func(s growthSize) int { return s.headless * growthEndpoints },
			[]growthSize{{1_000, 1}, {1_000, 10}, {1_000, 100}, {1_000, 1_000}}, targetGrowth,
		},
	}
}

func (s growthSize) services() (virtual, many []service) {
	return vips(s.vips), headless("headless", s.headless, growthEndpoints, 0)
}

// since returns the services that a smaller size does not have.
func (s growthSize) since(smaller growthSize) []service {
	virtual, many := s.services()
	return slices.Concat(virtual[smaller.vips:], many[smaller.headless:])
}

// The questions whose cost must not grow.
const growthVIP, growthHost = "VIP A", "one host"

func (s growthSize) rows() []row {
	virtual, many := s.services()
	return []row{
		{name: growthVIP, questions: some(askVIP(virtual), growthNames)},
		{name: growthHost, questions: askHosts(many, max(1, s.headless*growthEndpoints/growthNames))},
	}
}

// A growthResult is what one peer takes at one size. Maps are by question.
type growthResult struct {
	Axis         string
	Size         int
	Peer         string
	Memory       memoryResult
	CPU          map[string]summary
	Growth       map[string]summary // of the largest size only
	SliceChange  summary
	ImportChange summary
}

// growthPart has a result for each axis, size and peer, the smallest size of an axis first.
type growthPart struct {
	Empty   memoryResult
	Results []growthResult
}

// growthSection measures zones that grow along each axis.
func (b *bench) growthSection(ctx context.Context) (part, error) {
	found := &growthPart{}
	var err error
	if found.Empty, err = b.growthMemory(ctx, emptyPeer, source{}, nil); err != nil {
		return nil, err
	}
	for _, a := range growthAxes() {
		results, err := b.grow(ctx, a)
		if err != nil {
			return nil, err
		}
		found.Results = append(found.Results, results...)
	}
	return found, nil
}

// growthMemory starts servers of one peer, one after the other, as often as is worth it.
func (b *bench) growthMemory(ctx context.Context, p peer, src source, few []question) (memoryResult, error) {
	starts := growthStarts
	if p.name == inTreePeer.name {
		starts = 1
	}
	var taken footprints
	for i := range starts {
		b.progress.say("growth: memory of %s, %d of %d", p.name, i+1, starts)
		if err := b.takeFootprint(ctx, &taken, p, src, few); err != nil {
			return memoryResult{}, err
		}
	}
	return taken.result(p), nil
}

// grow measures the sizes of one axis. The smallest zone stays, on a control plane of its own, and is asked once more
// in the rounds of the largest, which are compared with it. The others are one zone to which more is added.
func (b *bench) grow(ctx context.Context, a growthAxis) (all []growthResult, err error) {
	small, err := b.startZone(ctx, a)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, small.stop()) }()
	if all, err = small.measure(ctx, a.sizes[0], nil); err != nil {
		return nil, err
	}
	large, err := b.startZone(ctx, a)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, large.stop()) }()
	for i, size := range a.sizes[1:] {
		var smallest []*server
		if i+2 == len(a.sizes) {
			smallest = small.servers
		}
		found, err := large.measure(ctx, size, smallest)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
		large.stopServers()
	}
	return all, nil
}

// A growthZone is a zone that grows, and what serves it.
type growthZone struct {
	bench       *bench
	axis        growthAxis
	cluster     *cluster
	changes     *changes
	size        growthSize
	servers     []*server // of growthPeers
	stopServers func()    // may be called more than once
}

// startZone starts a control plane with what will change, and nothing else. The caller has to stop it.
func (b *bench) startZone(ctx context.Context, a growthAxis) (*growthZone, error) {
	c, err := b.startCluster(ctx, "growth", []service{changedVIP(), changedHeadless()})
	if err != nil {
		return nil, err
	}
	z := &growthZone{bench: b, axis: a, cluster: c, stopServers: func() {}}
	if z.changes, err = newChanges(ctx, c); err != nil {
		return nil, errors.Join(err, z.stop())
	}
	return z, nil
}

func (z *growthZone) stop() error {
	z.stopServers()
	return z.cluster.stop()
}

// measure lets the zone grow to the size and measures all peers. The servers run on. smallest are those of the zone to
// compare with, nil for none.
func (z *growthZone) measure(ctx context.Context, size growthSize, smallest []*server) ([]growthResult, error) {
	b, n := z.bench, z.axis.size(size)
	b.progress.say("growth: %d %s", n, z.axis.name)
	if err := z.cluster.add(ctx, b.progress, "growth", size.since(z.size)); err != nil {
		return nil, err
	}
	z.size = size
	rows, results := size.rows(), make([]growthResult, len(growthPeers))
	for i, p := range growthPeers {
		memory, err := b.growthMemory(ctx, p, z.cluster.source, fewOf(rows))
		if err != nil {
			return nil, err
		}
		results[i] = growthResult{Axis: z.axis.name, Size: n, Peer: p.name, Memory: memory}
	}
	var err error
	z.servers, z.stopServers, err = b.startServers(ctx, "growth", growthPeers, z.cluster.source, fewOf(rows))
	if err != nil {
		z.stopServers()
		return nil, err
	}
	if err := z.ask(ctx, results, rows, smallest); err != nil {
		return nil, err
	}
	return results, z.change(ctx, results)
}

// ask measures the questions of rows at the servers, and at those of the smallest zone if there are any.
func (z *growthZone) ask(ctx context.Context, results []growthResult, rows []row, smallest []*server) error {
	b := z.bench
	var heats []heat
	for r, small := range z.axis.sizes[0].rows() {
		for i, s := range z.servers {
			h, err := b.newHeat(ctx, small.name+", "+s.peer.name, rows[r].questions, []*server{s})
			if err == nil && smallest != nil {
				var other heat
				other, err = b.newHeat(ctx, small.name, small.questions, smallest[i:i+1])
				h = append(h, other...)
			}
			if err != nil {
				return err
			}
			heats = append(heats, h)
		}
	}
	if err := b.runRounds(ctx, "growth", heats, min(b.rounds, growthRounds)); err != nil {
		return err
	}
	for i, h := range heats {
		results[i%len(z.servers)].note(rows[i/len(z.servers)].name, h)
	}
	return nil
}

// note takes a heat of one question: the server itself and, if it is compared, the one of the smallest zone.
func (g *growthResult) note(question string, h heat) {
	if g.CPU == nil {
		g.CPU = map[string]summary{}
	}
	g.CPU[question] = summarize(h[0].cpu)
	if len(h) == 1 {
		return
	}
	if g.Growth == nil {
		g.Growth = map[string]summary{}
	}
	g.Growth[question] = summarize(ratios(h[0].cpu, h[1].cpu))
}

// change measures what a change costs the servers.
func (z *growthZone) change(ctx context.Context, results []growthResult) error {
	costSlice, err := z.changeCost(ctx, "slice", z.changes.changeSlice)
	if err != nil {
		return err
	}
	costImport, err := z.changeCost(ctx, "import", z.changes.changeImport)
	for i := range results {
		results[i].SliceChange, results[i].ImportChange = summarize(costSlice[i]), summarize(costImport[i])
	}
	return err
}

// changeCost returns the CPU time of a change in µs, by server and round. One change follows the other, so that no
// server can take two in one step.
func (z *growthZone) changeCost(ctx context.Context, what string,
	change func(context.Context) (question, error)) ([][]float64, error) {
	costs := make([][]float64, len(z.servers))
	for round := range growthChangeRounds {
		z.bench.progress.say("growth: round %d of %d: %d changes of one %s", round+1, growthChangeRounds, growthChanges, what)
		before, err := quietAll(ctx, z.servers)
		if err != nil {
			return costs, err
		}
		var last question
		for range growthChanges {
			if last, err = change(ctx); err != nil {
				return costs, err
			}
		}
		for _, s := range z.servers {
			if err := s.awaitAnswers(ctx, []question{last}); err != nil {
				return costs, err
			}
		}
		after, err := quietAll(ctx, z.servers)
		if err != nil {
			return costs, err
		}
		for i := range costs {
			costs[i] = append(costs[i], (after[i]-before[i])/growthChanges)
		}
	}
	return costs, nil
}

// quietAll returns the servers' CPU times in µs once none of them grows.
func quietAll(ctx context.Context, servers []*server) ([]float64, error) {
	all := make([]float64, len(servers))
	for i, s := range servers {
		used, err := s.quiet(ctx)
		if err != nil {
			return nil, err
		}
		all[i] = micros(used)
	}
	return all, nil
}

// The addresses that changes give, beyond those of any endpoint.
const firstChange = 1 << 23

// changedVIP and changedHeadless are the services that change. The latter's only slice is not part of the zone's
// services.

func changedVIP() service {
	return service{namespace: "change", name: "vip", ip: endpointAddr(firstChange)}
}

func changedHeadless() service {
	return service{namespace: "change", name: "slice", first: firstChange}
}

// changes writes one object over and over, as fast as the API server takes it.
type changes struct {
	cluster *cluster
	imp     *mcsv1beta1.ServiceImport  // as it is
	slice   *discoveryv1.EndpointSlice // of [sliceSize] endpoints, as it is
	next    int                        // the number of the next address
}

func newChanges(ctx context.Context, c *cluster) (*changes, error) {
	ch := &changes{cluster: c, next: firstChange + sliceSize}
	var err error
	slice, s := changedHeadless().slice(clusters[0], 0, sliceSize), changedVIP()
	if ch.slice, err = c.kube.DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice,
		metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("slice that changes: %w", err)
	}
	ch.imp, err = c.mcs.MulticlusterV1beta1().ServiceImports(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("import that changes: %w", err)
	}
	return ch, nil
}

// changeSlice gives the first endpoint of the slice another address, and returns what shows it.
func (ch *changes) changeSlice(ctx context.Context) (question, error) {
	addr := ch.addr()
	ch.slice.Endpoints[0].Addresses = []string{addr.String()}
	api := ch.cluster.kube.DiscoveryV1().EndpointSlices(ch.slice.Namespace)
	changed, err := api.Update(ctx, ch.slice, metav1.UpdateOptions{})
	if err != nil {
		return question{}, fmt.Errorf("change of a slice: %w", err)
	}
	ch.slice = changed
	return shows(changedHeadless().host(0, 0), addr), nil
}

// changeImport gives the import another address, and returns what shows it.
func (ch *changes) changeImport(ctx context.Context) (question, error) {
	addr := ch.addr()
	ch.imp.Spec.IPs = []string{addr.String()}
	api := ch.cluster.mcs.MulticlusterV1beta1().ServiceImports(ch.imp.Namespace)
	changed, err := api.Update(ctx, ch.imp, metav1.UpdateOptions{})
	if err != nil {
		return question{}, fmt.Errorf("change of an import: %w", err)
	}
	ch.imp = changed
	return shows(changedVIP().owner(), addr), nil
}

func (ch *changes) addr() netip.Addr {
	ch.next++
	return endpointAddr(ch.next)
}

// shows is answered right once the owner has the address.
func shows(owner string, addr netip.Addr) question {
	return question{owner: owner, qtype: dns.TypeA, want: answer{records: 1, addr: addr}}
}

// of returns the results of one peer along one axis.
func (p *growthPart) of(axis string, peer peer) []growthResult {
	var found []growthResult
	for _, g := range p.Results {
		if g.Axis == axis && g.Peer == peer.name {
			found = append(found, g)
		}
	}
	return found
}

// largest returns our result at the end of an axis, and the smallest size.
func (p *growthPart) largest(axis string) (last growthResult, smallest int) {
	our := p.of(axis, ourPeer)
	return our[len(our)-1], our[0].Size
}

func (p *growthPart) goals() []goal {
	var all []goal
	for _, a := range growthAxes() {
		if a.target == 0 {
			continue
		}
		last, smallest := p.largest(a.name)
		for _, question := range []string{growthVIP, growthHost} {
			what := fmt.Sprintf("%s: CPU with %s %s over %s", question, count(last.Size), a.name, count(smallest))
			all = append(all, newGoal(what, last.Growth[question].Median, a.target))
		}
	}
	many, _ := p.largest(axisEndpoints)
	wide, _ := p.largest(axisServices)
	return append(all,
		newGoal(fmt.Sprintf("resident with %s endpoints over empty, octets", count(many.Size)),
			many.Memory.Resident.Median-p.Empty.Resident.Median, targetGrowthResident),
		newGoal(fmt.Sprintf("CPU of a slice change with %s services, µs", count(wide.Size)),
			wide.SliceChange.Median, targetSliceChange))
}

func count(n int) string { return grouped(float64(n)) }

func (p *growthPart) markdown() string {
	var text string
	for _, a := range growthAxes() {
		text += heading("Growth with the number of "+a.name+", beside "+a.beside, p.table(a)+"\n"+p.growthTable(a)) + "\n"
	}
	return text + fmt.Sprintf("A CoreDNS that serves nothing: %s MB resident, %s MB live heap.\n"+
		"Memory of %s is from one start, all else from several.\n",
		figure("%.1f", p.Empty.Resident.scale(1e-6)), figure("%.1f", p.Empty.Heap.scale(1e-6)), inTreePeer.name)
}

// table shows all figures along one axis, each size once for each peer.
func (p *growthPart) table(a growthAxis) string {
	lines := [][]string{{
		a.name, "peer", growthVIP + ", µs", growthHost + ", µs", "resident, MB", "live heap, MB", "peak resident, MB",
		"ready after, s", "slice change, µs", "import change, µs",
	}}
	for _, g := range p.Results {
		if g.Axis != a.name {
			continue
		}
		m := g.Memory
		lines = append(lines, []string{
			count(g.Size), g.Peer, figure("%.1f", g.CPU[growthVIP]), figure("%.1f", g.CPU[growthHost]),
			figure("%.1f", m.Resident.scale(1e-6)), figure("%.1f", m.Heap.scale(1e-6)), figure("%.1f", m.Peak.scale(1e-6)),
			figure("%.2f", m.Ready), figure("%.0f", g.SliceChange), figure("%.0f", g.ImportChange),
		})
	}
	return table(lines)
}

// growthTable compares the largest zone of an axis with the smallest, in the same rounds.
func (p *growthPart) growthTable(a growthAxis) string {
	last, smallest := p.largest(a.name)
	over := fmt.Sprintf("%s over %s %s", count(last.Size), count(smallest), a.name)
	lines := [][]string{{"CPU per query", "peer", over, "target"}}
	for _, question := range []string{growthVIP, growthHost} {
		for _, peer := range growthPeers {
			results := p.of(a.name, peer)
			growth, target := results[len(results)-1].Growth[question], ""
			if peer.name == ourPeer.name && a.target > 0 {
				target = newGoal("", growth.Median, a.target).cell("%.2f")
			}
			lines = append(lines, []string{question, peer.name, figure("%.2f", growth), target})
		}
	}
	return table(lines)
}

// files draws memory and CPU time of both axes.
func (p *growthPart) files() map[string][]byte {
	all := map[string][]byte{}
	for _, a := range growthAxes() {
		all["growth-"+a.name+"-memory.svg"] = p.memoryPlot(a).svg()
		all["growth-"+a.name+"-cpu.svg"] = p.cpuPlot(a).svg()
	}
	return all
}

func (p *growthPart) memoryPlot(a growthAxis) plot {
	drawn := plot{title: "Resident memory", x: a.name + " beside " + a.beside, y: "MB"}
	for _, peer := range growthPeers {
		l := line{name: peer.name}
		for _, g := range p.of(a.name, peer) {
			l.points = append(l.points, point{float64(g.Size), g.Memory.Resident.Median / 1e6})
		}
		drawn.lines = append(drawn.lines, l)
	}
	return drawn
}

func (p *growthPart) cpuPlot(a growthAxis) plot {
	drawn := plot{title: "CPU time per query", x: a.name + " beside " + a.beside, y: "µs"}
	for _, peer := range growthPeers {
		for _, question := range []string{growthVIP, growthHost} {
			l := line{name: peer.name + ", " + question}
			for _, g := range p.of(a.name, peer) {
				l.points = append(l.points, point{float64(g.Size), g.CPU[question].Median})
			}
			drawn.lines = append(drawn.lines, l)
		}
	}
	return drawn
}
