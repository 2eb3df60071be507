package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// Sizes of the zone that memory is measured with, and what our server may take over a CoreDNS that serves nothing.
const (
	memoryVIPs     = 50_000
	memoryHeadless = 3_000
	memoryThirties = 3 * 30
	memoryLarge    = 10_000

	memoryRounds = 3
	// What is still at work right after the start does not count.
	settle = 5 * time.Second

	targetHeap, targetResident, targetPeak = 60e6, 110e6, 2 * 110e6
	targetReady                            = 3 // seconds
)

var memoryPeers = []peer{emptyPeer, inTreePeer, ourPeer}

// A memoryResult is what one peer takes, in octets.
type memoryResult struct {
	Peer     string
	Heap     summary
	Resident summary
	Peak     summary
	Ready    summary
}

// memoryPart has a result for each peer.
type memoryPart []memoryResult

// memorySection measures what each peer takes with a large zone.
func (b *bench) memorySection(ctx context.Context) (_ part, err error) {
	virtual := vips(memoryVIPs)
	small := headless("headless", memoryHeadless, memoryThirties, 0)
	large := headless("large", 1, memoryLarge, memoryHeadless*memoryThirties)
	c, err := b.startCluster(ctx, "memory", slices.Concat(virtual, small, large))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	questions := slices.Concat(some(askVIP(virtual), checked), some(askHosts(slices.Concat(small, large), 999), checked))
	taken := make([]footprints, len(memoryPeers))
	for round := range memoryRounds {
		for i, p := range memoryPeers {
			b.progress.say("memory: round %d of %d: %s", round+1, memoryRounds, p.name)
			if err := b.takeFootprint(ctx, &taken[i], p, c.source, questions); err != nil {
				return nil, err
			}
		}
	}
	results := make(memoryPart, len(memoryPeers))
	for i, p := range memoryPeers {
		results[i] = taken[i].result(p)
	}
	return results, nil
}

// refused is what a CoreDNS answers that serves nothing.
var refused = question{owner: zone, qtype: dns.TypeSOA, want: answer{rcode: dns.RcodeRefused}}

// footprints holds a value for each round.
type footprints struct{ heap, resident, peak, ready []float64 }

func (b *bench) takeFootprint(ctx context.Context, f *footprints, p peer, src source, questions []question) error {
	if p.name == emptyPeer.name {
		questions = []question{refused}
	}
	s, err := b.startServer(ctx, p, src, questions)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := pause(ctx, settle); err != nil {
		return err
	}
	now, peak, err := resident(s.process.Pid())
	if err != nil {
		return err
	}
	live, err := s.liveHeap(ctx)
	if err != nil {
		return err
	}
	f.heap, f.resident = append(f.heap, float64(live)), append(f.resident, float64(now))
	f.peak, f.ready = append(f.peak, float64(peak)), append(f.ready, s.ready.Seconds())
	return nil
}

func (f footprints) result(p peer) memoryResult {
	return memoryResult{
		Peer: p.name, Heap: summarize(f.heap), Resident: summarize(f.resident),
		Peak: summarize(f.peak), Ready: summarize(f.ready),
	}
}

func (all memoryPart) markdown() string {
	return heading("Memory with 50,000 VIPs and 280,000 endpoints", memoryTable(all))
}

func (all memoryPart) goals() []goal {
	heap, resident, peak := memoryGoals(all)
	their, our := memoryOf(all, inTreePeer), memoryOf(all, ourPeer)
	return []goal{
		heap, resident, peak,
		newGoal("time to ready, s", our.Ready.Median, targetReady),
		newGoal("time to ready over in-tree, s", our.Ready.Median-their.Ready.Median, 0),
	}
}

func memoryGoals(all []memoryResult) (heap, resident, peak goal) {
	base, our := memoryOf(all, emptyPeer), memoryOf(all, ourPeer)
	return newGoal("live heap over empty, octets", our.Heap.Median-base.Heap.Median, targetHeap),
		newGoal("resident over empty, octets", our.Resident.Median-base.Resident.Median, targetResident),
		newGoal("peak resident over empty, octets", our.Peak.Median-base.Peak.Median, targetPeak)
}

func memoryOf(all []memoryResult, p peer) memoryResult {
	for _, m := range all {
		if m.Peer == p.name {
			return m
		}
	}
	panic("bench: memory of " + p.name + " was not measured")
}

func memoryTable(all []memoryResult) string {
	lines := [][]string{{"peer", "live heap, MB", "resident, MB", "peak resident, MB", "ready after, s"}}
	for _, m := range all {
		lines = append(lines, []string{
			m.Peer, figure("%.1f", m.Heap.scale(1e-6)), figure("%.1f", m.Resident.scale(1e-6)),
			figure("%.1f", m.Peak.scale(1e-6)), figure("%.1f", m.Ready),
		})
	}
	base := memoryOf(all, emptyPeer)
	over := func(a, b summary) string { return fmt.Sprintf("%.1f", (a.Median-b.Median)/1e6) }
	for _, p := range []peer{inTreePeer, ourPeer} {
		m := memoryOf(all, p)
		lines = append(lines, []string{
			p.name + " over " + base.Peer,
			over(m.Heap, base.Heap), over(m.Resident, base.Resident), over(m.Peak, base.Peak), "",
		})
	}
	heap, resident, peak := memoryGoals(all)
	line := []string{"target"}
	for _, g := range []goal{heap, resident, peak} {
		g.Most /= 1e6
		line = append(line, g.cell("%.0f"))
	}
	return table(append(lines, append(line, "")))
}
