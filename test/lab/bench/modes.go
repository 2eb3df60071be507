package main

import (
	"context"
	"slices"

	"github.com/miekg/dns"
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

// Why a peer has no figure in a row.
const (
	noPart   = "NSD sends nothing of an RRset that is too large for the client"
	noTCP    = "the baseline has prepared only what fits UDP"
	noNoData = "the baseline answers NXDOMAIN where others answer NODATA"
)

// moreRows are asked over UDP too, with -full.
func moreRows(z rowZone) []row {
	return []row{
		{name: "VIP AAAA, no data", questions: askAAAA(z.virtual), notes: []string{noNoData}},
		{name: "NXDOMAIN below a service", questions: askBelow(z.virtual)},
		{name: "headless A, 90 endpoints, UDP 1232", questions: askHeadless(z.wide), without: lacks(nsdPeer, noPart)},
		{name: "headless SRV, 30 endpoints, UDP 1232", questions: askTargets(z.small), without: lacks(nsdPeer, noPart)},
		{name: "headless SRV, 90 endpoints, UDP 1232", questions: askTargets(z.wide), without: lacks(nsdPeer, noPart)},
		{name: "mix", questions: z.mix(), notes: []string{mixNote, noNoData}},
	}
}

// lacks says that the peer is left out of a row, and why.
func lacks(p peer, why string) map[string]string { return map[string]string{p.name: why} }

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
		{name: "headless A, 90 endpoints", questions: overTCP(z.wide, askHeadless(z.wide)), without: lacks(baselinePeer, noTCP)},
		{name: "headless SRV, 30 endpoints", questions: overTCP(z.small, askTargets(z.small)), without: lacks(baselinePeer, noTCP)},
		{name: "headless SRV, 90 endpoints", questions: overTCP(z.wide, askTargets(z.wide)), without: lacks(baselinePeer, noTCP)},
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
	// One cut size is enough, and there are the others for what is cut.
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
