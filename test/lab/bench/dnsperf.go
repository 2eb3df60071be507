package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
)

// A load is how dnsperf asks: the same for all peers.
type load struct {
	duration time.Duration
	rate     int // queries a second at most; 0 means as many as the server answers
	tcp      bool
	each     bool // record the latency of each answer
}

// Few enough queries at a time that no socket's buffer overflows, and enough that neither side waits for the other.
const (
	clients     = 8
	outstanding = 100
	// Seconds until an answer counts as lost. With so many queries for 10,000 records at a time, the in-tree plugin takes
	// a second for each even on an idle machine.
	patience = 30
)

// args returns dnsperf's arguments for the file of packed questions.
func (l load) args(port int, file string) []string {
	args := []string{
		"-f", "inet", "-s", "127.0.0.1", "-p", strconv.Itoa(port), "-B", "-d", file,
		"-l", strconv.FormatFloat(l.duration.Seconds(), 'f', -1, 64),
		"-c", strconv.Itoa(clients), "-q", strconv.Itoa(outstanding), "-t", strconv.Itoa(patience),
	}
	if l.rate > 0 {
		args = append(args, "-Q", strconv.Itoa(l.rate))
	}
	if l.tcp {
		args = append(args, "-m", "tcp")
	}
	if l.each {
		// A line for each answer is enough: there could be millions about sockets that are not ready.
		args = append(args, "-v", "-O", "suppress=timeouts,congestion,sendfailed,sockready,unexpected")
	}
	return args
}

// stats are the results of one run of dnsperf.
type stats struct {
	sent, completed, lost int
	rcodes                map[string]int
	octets                int // of an answer, in the mean
	qps                   float64
	latency               time.Duration // in the mean
	latencies             []float64     // of each answer, µs; only of a load with each
}

func findDnsperf() (string, error) {
	path, err := exec.LookPath("dnsperf")
	if err != nil {
		return "", errors.New("dnsperf is missing: want Debian's package dnsperf (apt-get install dnsperf)")
	}
	return path, nil
}

// ask asks the questions in file, over and over.
func (b *bench) ask(ctx context.Context, l load, port int, file string) (stats, error) {
	c, err := subprocess.Start(subprocess.Command{Bin: b.dnsperf, Args: l.args(port, file)})
	if err != nil {
		return stats{}, err
	}
	if err := c.Wait(ctx); err != nil {
		return stats{}, err
	}
	report := c.Out.String()
	s, err := parseStats(report)
	if err == nil && l.each {
		s.latencies, err = parseLatencies(report)
	}
	return s, err
}

var (
	countLine   = regexp.MustCompile(`(?m)^\s*Queries (sent|completed|lost):\s+(\d+)`)
	rcodeLine   = regexp.MustCompile(`(?m)^\s*Response codes:\s+(.*)$`)
	rcodeItem   = regexp.MustCompile(`(\w+) (\d+) \(`)
	sizeLine    = regexp.MustCompile(`(?m)^\s*Average packet size:\s+request \d+, response (\d+)`)
	qpsLine     = regexp.MustCompile(`(?m)^\s*Queries per second:\s+([\d.]+)`)
	latencyLine = regexp.MustCompile(`(?m)^\s*Average Latency \(s\):\s+([\d.]+)`)
)

// parseStats reads the report that dnsperf writes when it is done.
func parseStats(report string) (stats, error) {
	s := stats{rcodes: map[string]int{}}
	var errs []error
	number := func(text string) float64 {
		n, err := strconv.ParseFloat(text, 64)
		errs = append(errs, err)
		return n
	}
	field := func(line *regexp.Regexp) string {
		m := line.FindStringSubmatch(report)
		if m == nil {
			errs = append(errs, fmt.Errorf("no line like %q", line))
			return "0"
		}
		return m[1]
	}
	counts := map[string]int{}
	for _, m := range countLine.FindAllStringSubmatch(report, -1) {
		counts[m[1]] = int(number(m[2]))
	}
	s.sent, s.completed, s.lost = counts["sent"], counts["completed"], counts["lost"]
	for _, m := range rcodeItem.FindAllStringSubmatch(field(rcodeLine), -1) {
		s.rcodes[m[1]] = int(number(m[2]))
	}
	s.octets, s.qps = int(number(field(sizeLine))), number(field(qpsLine))
	s.latency = time.Duration(number(field(latencyLine)) * float64(time.Second))
	if err := errors.Join(errs...); err != nil {
		return stats{}, fmt.Errorf("report of dnsperf: %w\n%s", err, strings.TrimSpace(report))
	}
	return s, nil
}

// answerLine is what dnsperf writes of each answer, with -v: rcode, question, seconds. One that did not come is T or I.
var answerLine = regexp.MustCompile(`(?m)^> ([A-Z]\w+) .* ([\d.]+)$`)

// parseLatencies returns the latency of each answer, in µs. There has to be one.
func parseLatencies(report string) ([]float64, error) {
	var all []float64
	for _, m := range answerLine.FindAllStringSubmatch(report, -1) {
		seconds, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, fmt.Errorf("report of dnsperf: latency: %w", err)
		}
		all = append(all, seconds*1e6)
	}
	if len(all) == 0 {
		return nil, errors.New("report of dnsperf: no latency of an answer")
	}
	return all, nil
}

// rcodeSlack is how far the share of an rcode may be off: the last answers are not awaited.
const rcodeSlack = 0.02

// verify returns an error if an answer has an rcode that is not wanted, if the shares are others, or if answers are
// missing.
func (s stats) verify(want map[string]float64) error {
	if s.completed == 0 {
		return errors.New("no answers")
	}
	for rcode, n := range s.rcodes {
		share, ok := want[rcode]
		if !ok || math.Abs(float64(n)/float64(s.completed)-share) > rcodeSlack {
			return fmt.Errorf("rcodes %v of %d answers: want parts %v", s.rcodes, s.completed, want)
		}
	}
	// The kernel may drop a datagram now and then; a server may not.
	if s.lost > s.sent/1000 {
		return fmt.Errorf("%d of %d queries without an answer", s.lost, s.sent)
	}
	return nil
}
