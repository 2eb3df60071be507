package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset/test/child"
)

// A load is how dnsperf asks: the same for all peers.
type load struct {
	duration time.Duration
	rate     int // queries a second at most; 0 means as many as the server answers
}

// Few enough queries at a time that no socket's buffer overflows, and enough that nobody waits for the other side.
const (
	clients     = 8
	outstanding = 100
	// Seconds until an answer counts as lost. With so many queries for 10,000 records at a time, the in-tree plugin takes a
	// second for each even on an idle machine.
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
	return args
}

// stats are what dnsperf tells of one run.
type stats struct {
	sent, completed, lost int
	rcodes                map[string]int
	octets                int // of an answer, in the mean
	qps                   float64
	latency               time.Duration // in the mean
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
	c, err := child.Start(child.Command{Bin: b.dnsperf, Args: l.args(port, file)})
	if err != nil {
		return stats{}, err
	}
	if err := c.Wait(ctx); err != nil {
		return stats{}, err
	}
	return parseStats(c.Out.String())
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

// verify returns an error if an answer has another rcode or if answers are missing.
func (s stats) verify(rcode string) error {
	if s.completed == 0 {
		return errors.New("no answers")
	}
	if s.rcodes[rcode] != s.completed {
		return fmt.Errorf("rcodes %v of %d answers: want %s only", s.rcodes, s.completed, rcode)
	}
	// The kernel may drop a datagram now and then; a server may not.
	if s.lost > s.sent/1000 {
		return fmt.Errorf("%d of %d queries without an answer", s.lost, s.sent)
	}
	return nil
}
