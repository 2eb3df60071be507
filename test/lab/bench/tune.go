package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// tuneProfile is how long the profile is taken that the optimised build is made from.
const tuneProfile = 20 * time.Second

// The ways to build and to run our server that are compared. The first is what the others are measured by.
func tunePeers(optimised string) []peer {
	with := func(name string, change func(*peer)) peer {
		p := ourPeer
		p.name = name
		change(&p)
		return p
	}
	return []peer{
		ourPeer,
		with("PGO", func(p *peer) { p.program = optimised }),
		with("multisocket", func(p *peer) {
			p.lines = func(s source) []string {
				return append([]string{fmt.Sprintf("multisocket %d", runtime.NumCPU())}, ourPeer.lines(s)...)
			}
		}),
		with("GOGC=400", func(p *peer) { p.env = []string{"GOGC=400"} }),
		with("GOGC=off, GOMEMLIMIT=128MiB", func(p *peer) { p.env = []string{"GOGC=off", "GOMEMLIMIT=128MiB"} }),
	}
}

// A tuneResult is what a way to build or run the server does for one kind of question.
type tuneResult struct {
	Question string
	Peer     string
	CPU      summary
	OverOurs summary
	QPS      summary
	MoreQPS  summary
	Resident float64 // octets, after all rounds
}

// tunePart has a result for each question and way.
type tunePart struct {
	Results []tuneResult
	profile []byte // of the server as built, answering each kind of question
}

// tuneSection takes a profile, builds the server with it, and compares that and some settings with the server as built.
func (b *bench) tuneSection(ctx context.Context) (_ part, err error) {
	z := b.newRowZone()
	c, err := b.startCluster(ctx, "tune", z.services())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	rows, found := newRows(z), &tunePart{}
	optimised := filepath.Join(b.dir, "coredns-pgo")
	if found.profile, err = b.buildOptimised(ctx, c, rows, optimised); err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(r row) bool {
		return r.name != "VIP A, 10,000 services" && r.name != "headless A, 30 endpoints"
	})
	servers, stop, err := b.startServers(ctx, "tune", tunePeers(optimised), c.source, fewOf(rows))
	defer stop()
	if err != nil {
		return nil, err
	}
	heats := make([]heat, len(rows))
	for i, r := range rows {
		if heats[i], err = b.newHeat(ctx, r.name, r.questions, servers); err != nil {
			return nil, err
		}
	}
	if err := b.runRounds(ctx, "tune", heats, b.rounds); err != nil {
		return nil, err
	}
	for i, r := range rows {
		results, err := tuneResults(r.name, heats[i])
		if err != nil {
			return nil, err
		}
		found.Results = append(found.Results, results...)
	}
	return found, nil
}

func tuneResults(question string, h heat) ([]tuneResult, error) {
	var results []tuneResult
	base := h.of(ourPeer)
	for _, t := range h {
		now, _, err := resident(t.server.process.Pid())
		if err != nil {
			return nil, err
		}
		results = append(results, tuneResult{
			Question: question, Peer: t.server.peer.name, Resident: float64(now),
			CPU: summarize(t.cpu), OverOurs: summarize(ratios(t.cpu, base.cpu)),
			QPS: summarize(t.qps), MoreQPS: summarize(ratios(t.qps, base.qps)),
		})
	}
	return results, nil
}

// buildOptimised asks our server each kind of question for a while, and builds the program anew with the profile of
// that.
func (b *bench) buildOptimised(ctx context.Context, c *cluster, rows []row, program string) ([]byte, error) {
	s, err := b.startServer(ctx, ourPeer, c.source, fewOf(rows))
	if err != nil {
		return nil, err
	}
	defer s.stop()
	b.progress.say("tune: taking a profile of %s", tuneProfile)
	profile, err := s.profileWhile(ctx, tuneProfile, func(ctx context.Context) error {
		return b.askEach(ctx, s, rows, tuneProfile)
	})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(b.dir, "tune.pprof")
	if err := os.WriteFile(file, profile, 0o600); err != nil {
		return nil, err
	}
	b.progress.say("tune: building CoreDNS with the profile (some minutes)")
	return profile, goBuild(ctx, "-pgo", file, "-o", program, coreDNS)
}

func (p *tunePart) markdown() string {
	lines := [][]string{{"question", "way", "CPU, µs", "over as built", "queries/s", "over as built", "resident, MB"}}
	for _, r := range p.Results {
		lines = append(lines, []string{
			r.Question, r.Peer, figure("%.1f", r.CPU), figure("%.2f", r.OverOurs), figure("%.0f", r.QPS),
			figure("%.2f", r.MoreQPS),
			fmt.Sprintf("%.0f", r.Resident/1e6),
		})
	}
	return heading("Ways to build and to run the server", table(lines))
}

func (p *tunePart) goals() []goal { return nil }

// files are kept beside the report.
func (p *tunePart) files() map[string][]byte { return map[string][]byte{"default.pgo": p.profile} }
