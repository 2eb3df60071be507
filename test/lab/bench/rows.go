package main

import "slices"

// A row is one kind of question and how much more than the baseline our server may spend on it.
type row struct {
	name      string
	questions []question
	target    float64           // 0 means none
	without   map[string]string // why a peer, by its name, is left out
	notes     []string          // what a reader has to know
}

// rowPeers are compared on each kind of question. The first is what the others are measured by.
var rowPeers = []peer{baselinePeer, inTreePeer, ourPeer}

// A rowResult is a line of the table of questions.
type rowResult struct {
	Mode     string
	Question string
	Rounds   int
	Target   float64
	Peers    map[string]peerResult // without those that are left out
	Notes    []string
}

// rowsPart has a result for each row of each mode, one mode after the other.
type rowsPart []rowResult

type peerResult struct {
	CPU          summary
	OverBaseline summary // zero where the baseline is left out
	QPS          summary
	Latency      summary
	P50          summary
	P99          summary
	Octets       float64
}

// Sizes of the zone that the rows ask.
const (
	rowVIPs      = 10_000
	rowHeadless  = 100
	rowEndpoints = 30 // of each headless service
	rowLarge     = 10_000

	// With -full only.
	rowWide = 90 // endpoints of as many headless services again
	// Endpoints whose records, with no name compressed, are less than the 16 KiB that dnsperf 2.10 takes of a message.
	rowWhole = 300
)

// A rowZone is what the rows ask for.
type rowZone struct {
	virtual, small, wide []service
	large, whole         service
}

func (b *bench) newRowZone() rowZone {
	first := 0
	next := func(namespace string, n, endpoints int) []service {
		all := headless(namespace, n, endpoints, first)
		first += n * endpoints
		return all
	}
	z := rowZone{virtual: vips(rowVIPs), small: next("headless", rowHeadless, rowEndpoints)}
	z.large = next("large", 1, rowLarge)[0]
	if b.full {
		z.wide = next("wide", rowHeadless, rowWide)
		z.whole = next("whole", 1, rowWhole)[0]
	}
	return z
}

func (z rowZone) services() []service {
	all := slices.Concat(z.virtual, z.small, z.wide, []service{z.large})
	if z.whole.endpoints > 0 {
		all = append(all, z.whole)
	}
	return all
}

// newRows are asked over UDP.
func newRows(z rowZone) []row {
	large := []service{z.large}
	return []row{
		{name: "VIP A, 10,000 services", questions: askVIP(z.virtual), target: 1.1},
		{name: "SRV of a VIP", questions: askSRV(z.virtual), target: 1.12},
		{name: "NXDOMAIN", questions: askUnknown(z.virtual), target: 1.15},
		{name: "headless A, 30 endpoints", questions: askHeadless(z.small), target: 1.12},
		{name: "one host of 10,000 endpoints", questions: askHosts(large, 1), target: 1.1},
		{
			name: "A of 10,000 endpoints, UDP 512", questions: askTruncated(z.large, false), target: 1.3,
			without: lacks(nsdPeer, noPart),
		},
		{
			name: "A of 10,000 endpoints, UDP 1232", questions: askTruncated(z.large, true), target: 1.3,
			without: lacks(nsdPeer, noPart),
		},
		{name: "headless SRV, 30 endpoints, UDP 1232", questions: askTargets(z.small), target: 1.12,
			without: lacks(nsdPeer, noPart)},
	}
}

// fewOf returns a few questions of each row: a server that answers them right is ready.
func fewOf(rows []row) []question {
	var few []question
	for _, r := range rows {
		few = append(few, some(r.questions, 2)...)
	}
	return few
}

// Why a peer has no figure in a row.
const (
	noPart   = "NSD sends nothing of an RRset that is too large for the client"
	noTCP    = "the baseline has prepared only what fits UDP"
	noNoData = "the baseline answers NXDOMAIN where others answer NODATA"
)

// lacks notes that the peer is left out of a row, and the reason.
func lacks(p peer, why string) map[string]string { return map[string]string{p.name: why} }
