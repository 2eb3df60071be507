package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/nsd"
)

// A mode is a way to ask rows.
type mode struct {
	name   string
	rows   []row
	cached bool   // with the plugin cache before the peer
	nsd    string // NSD's program; "" means without it
	rounds int
}

// peers returns those that are started.
func (m mode) peers() []peer {
	if m.nsd == "" {
		return rowPeers
	}
	return append(slices.Clone(rowPeers), nsdPeer)
}

// modes returns UDP alone, unless all is asked for. It fails where a program is missing.
func (b *bench) modes(ctx context.Context, z rowZone) ([]mode, error) {
	if !b.full {
		return []mode{{name: "UDP", rows: newRows(z), rounds: b.rounds}}, nil
	}
	nsd, err := findNSD()
	if err != nil {
		return nil, err
	}
	fewer := min(b.rounds, max(3, b.rounds/2))
	return []mode{
		{name: "UDP", rows: slices.Concat(newRows(z), moreRows(z)), nsd: nsd, rounds: b.rounds},
		{name: "pipelined TCP", rows: tcpRows(z), nsd: nsd, rounds: fewer},
		{name: "UDP, cache before the peer", rows: cachedRows(z), cached: true, rounds: fewer},
	}, nil
}

// moreRows are asked over UDP too, with -full.
func moreRows(z rowZone) []row {
	return []row{
		{name: "VIP AAAA, no data", questions: askAAAA(z.virtual), notes: []string{noNoData}},
		{name: "NXDOMAIN below a service", questions: askBelow(z.virtual)},
		{name: "headless A, 90 endpoints, UDP 1232", questions: askHeadless(z.wide), without: lacks(nsdPeer, noPart)},
		{name: "headless SRV, 90 endpoints, UDP 1232", questions: askTargets(z.wide), without: lacks(nsdPeer, noPart)},
		{name: "mix", questions: z.mix(), notes: []string{mixNote, noNoData}},
	}
}

// dnsperfMost is why a row over TCP is not larger.
const dnsperfMost = "300 endpoints: dnsperf takes no message over 16 KiB"

// tcpRows ask for whole answers. The records of 10,000 endpoints are more than one message holds.
func tcpRows(z rowZone) []row {
	whole := []service{z.whole}
	return []row{
		{name: "VIP A, 10,000 services", questions: overTCP(z.virtual, askVIP(z.virtual))},
		{name: "VIP AAAA, no data", questions: overTCP(z.virtual, askAAAA(z.virtual)), notes: []string{noNoData}},
		{name: "SRV of a VIP", questions: overTCP(z.virtual, askSRV(z.virtual))},
		{name: "NXDOMAIN", questions: overTCP(z.virtual, askUnknown(z.virtual))},
		{name: "headless A, 30 endpoints", questions: overTCP(z.small, askHeadless(z.small))},
		{name: "headless A, 90 endpoints", questions: overTCP(z.wide, askHeadless(z.wide)),
			without: lacks(baselinePeer, noTCP)},
		{name: "headless SRV, 30 endpoints", questions: overTCP(z.small, askTargets(z.small)),
			without: lacks(baselinePeer, noTCP)},
		{name: "headless SRV, 90 endpoints", questions: overTCP(z.wide, askTargets(z.wide)),
			without: lacks(baselinePeer, noTCP)},
		{name: "one host of 10,000 endpoints", questions: overTCP(nil, askHosts([]service{z.large}, 1))},
		{
			name: "A of 300 endpoints, the whole answer", questions: overTCP(whole, askHeadless(whole)),
			without: lacks(baselinePeer, noTCP), notes: []string{dnsperfMost},
		},
		{name: "mix", questions: overTCP(nil, z.mix()), notes: []string{mixNote, noNoData}},
	}
}

// cachedRows are the rows for which the plugin cache makes a difference.
func cachedRows(z rowZone) []row {
	rows := newRows(z)
	for i := range rows {
		// What the targets promise is without a cache.
		rows[i].target = 0
	}
	// One cut size is enough, and the others are for the parts that are cut.
	return append(slices.Delete(rows, 5, 6),
		row{name: "VIP AAAA, no data", questions: askAAAA(z.virtual), notes: []string{noNoData}},
		row{name: "mix", questions: z.mix(), notes: []string{mixNote, noNoData}},
	)
}

const mixNote = "mix: 70 % VIP A, 10 % VIP AAAA, 5 % VIP SRV, 10 % headless A of 30 endpoints, 5 % NXDOMAIN"

// mix fits UDP.
func (z rowZone) mix() []question {
	return mix(1000,
		share{14, askVIP(z.virtual)}, share{2, askAAAA(z.virtual)}, share{1, askSRV(z.virtual)},
		share{2, askHeadless(z.small)}, share{1, askUnknown(z.virtual)},
	)
}

// expect returns the questions with the answers that are right for the peer.
func (p peer) expect(questions []question) []question {
	all := slices.Clone(questions)
	for i := range all {
		q := &all[i]
		switch {
		case p.name == baselinePeer.name && q.want == noData:
			q.want.rcode = dns.RcodeNameError
		case p.name == nsdPeer.name && q.qtype == dns.TypeSRV:
			q.want.extra = 0
		}
	}
	return all
}

// after is the peer with other lines before its own.
func after(p peer, lines ...string) peer {
	return peer{name: p.name, lines: func(s source) []string { return append(slices.Clone(lines), p.lines(s)...) }}
}

// fewFor returns a few questions of each row that the peer is asked, with the answers that are right for it.
func fewFor(rows []row, p peer) []question {
	var asked []row
	for _, r := range rows {
		if _, out := r.without[p.name]; !out {
			asked = append(asked, r)
		}
	}
	return p.expect(fewOf(asked))
}

// startMode starts the servers of a mode. The returned function stops those that run, also after an error.
func (b *bench) startMode(ctx context.Context, m mode, src source) ([]*server, func(), error) {
	var servers []*server
	stop := func() {
		for _, s := range servers {
			s.stop()
		}
	}
	for _, p := range rowPeers {
		b.progress.say("rows: %s: starting %s", m.name, p.name)
		questions := fewFor(m.rows, p)
		if m.cached {
			p = after(p, "cache")
		}
		s, err := b.startServer(ctx, p, src, questions)
		if err != nil {
			return nil, stop, err
		}
		servers = append(servers, s)
	}
	if m.nsd != "" {
		s, err := b.startNSD(ctx, m, src)
		if err != nil {
			return nil, stop, err
		}
		servers = append(servers, s)
	}
	return servers, stop, nil
}

// measureMode measures the rows of a mode.
func (b *bench) measureMode(ctx context.Context, m mode, src source) (rowsPart, error) {
	servers, stop, err := b.startMode(ctx, m, src)
	defer stop()
	if err != nil {
		return nil, err
	}
	heats := make([]heat, len(m.rows))
	for i, r := range m.rows {
		if heats[i], err = b.newRowHeat(ctx, r, servers); err != nil {
			return nil, err
		}
	}
	if err := b.runRounds(ctx, "rows: "+m.name, heats, m.rounds); err != nil {
		return nil, err
	}
	results := make(rowsPart, len(m.rows))
	for i, r := range m.rows {
		results[i] = r.result(m, heats[i])
	}
	return results, nil
}

// newRowHeat leaves out the servers that cannot be compared.
func (b *bench) newRowHeat(ctx context.Context, r row, servers []*server) (heat, error) {
	var all heat
	for _, s := range servers {
		if _, out := r.without[s.peer.name]; out {
			continue
		}
		h, err := b.newHeat(ctx, r.name, s.peer.expect(r.questions), []*server{s})
		if err != nil {
			return nil, err
		}
		h[0].halfLoad = b.full
		all = append(all, h...)
	}
	return all, nil
}

// rowsSection measures each kind of question at each peer, in each mode.
func (b *bench) rowsSection(ctx context.Context) (_ part, err error) {
	z := b.newRowZone()
	modes, err := b.modes(ctx, z)
	if err != nil {
		return nil, err
	}
	c, err := b.startCluster(ctx, "rows", z.services())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.writeMaster(); err != nil {
		return nil, err
	}
	var results rowsPart
	for _, m := range modes {
		found, err := b.measureMode(ctx, m, c.source)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		results = append(results, found...)
	}
	return results, nil
}

// result has a note for each peer of the mode that is left out of the row.
func (r row) result(m mode, h heat) rowResult {
	result := rowResult{
		Mode: m.name, Question: r.name, Rounds: m.rounds, Target: r.target,
		Peers: map[string]peerResult{}, Notes: slices.Clone(r.notes),
	}
	baseline := h.of(baselinePeer)
	for _, t := range h {
		got := peerResult{
			CPU: summarize(t.cpu), QPS: summarize(t.qps), Latency: summarize(t.latency),
			P50: summarize(t.p50), P99: summarize(t.p99), Octets: summarize(t.octets).Median,
		}
		if baseline != nil {
			got.OverBaseline = summarize(ratios(t.cpu, baseline.cpu))
		}
		result.Peers[t.server.peer.name] = got
	}
	for _, p := range m.peers() {
		if why, out := r.without[p.name]; out {
			result.Notes = append(result.Notes, why)
		}
	}
	return result
}

// startNSD starts NSD with the zone of our server, which is there for the transfer only. It returns when NSD answers
// the questions right. The caller has to stop it.
func (b *bench) startNSD(ctx context.Context, m mode, src source) (_ *server, err error) {
	b.progress.say("rows: %s: starting NSD, with a transfer from ours", m.name)
	primary, err := b.startServer(ctx, after(ourPeer, "transfer {", "to *", "}"), src, fewFor(m.rows, ourPeer))
	if err != nil {
		return nil, err
	}
	defer primary.stop()
	s := &server{peer: nsdPeer, forks: true}
	defer func() {
		if err != nil {
			s.stop()
			err = fmt.Errorf("server NSD: %w", err)
		}
	}()
	if s.port, err = controlplane.ReservePort(); err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, fmt.Sprintf("nsd-%d", s.port.Number))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	began := time.Now()
	transfer := fmt.Sprintf("request-xfr: AXFR 127.0.0.1@%d NOKEY", primary.port.Number)
	zones := []nsd.Zone{{Origin: zone, Options: []string{transfer}}}
	if s.process, err = nsd.Start(nsd.Config{Program: m.nsd, Dir: dir, Port: s.port.Number, Zones: zones}); err != nil {
		return nil, err
	}
	if err := s.awaitAnswers(ctx, fewFor(m.rows, nsdPeer)); err != nil {
		return nil, err
	}
	s.ready = time.Since(began)
	return s, nil
}

func findNSD() (string, error) {
	path, err := exec.LookPath("nsd")
	if err != nil {
		// Programs of an administrator are not on everybody's path.
		path, err = exec.LookPath("/usr/sbin/nsd")
	}
	if err != nil {
		return "", errors.New("nsd is missing: want Debian's package nsd (apt-get install nsd)")
	}
	return path, nil
}
