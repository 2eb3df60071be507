// Package ask puts the questions of the demo to a DNS server, prints them with the answers, and checks the answers.
package ask

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/test/harness/query"
)

// Zone is the zone that the demo serves.
const Zone = "clusterset.local"

// A Question is a query, its purpose, and the only right answer.
type Question struct {
	Shows  string
	Name   string // below svc.clusterset.local
	Qtype  string
	Status string // NOERROR if empty
	// Want has the type and data of each record of the answer and additional sections, in any order.
	Want []string
}

// FQDN is the qname, without the final dot.
func (q Question) FQDN() string { return q.Name + ".svc." + Zone }

// Rcode is the status that q wants.
func (q Question) Rcode() string {
	if q.Status == "" {
		return "NOERROR"
	}
	return q.Status
}

// Check returns an error unless r is the right answer.
func (q Question) Check(r Reply) error {
	if r.Status != q.Rcode() {
		return fmt.Errorf("status %s, want %s", r.Status, q.Rcode())
	}
	want := slices.Sorted(slices.Values(q.Want))
	if !slices.Equal(r.records(), want) {
		return fmt.Errorf("records %q, want %q", r.records(), want)
	}
	if len(r.Answer) == 0 && (len(r.Authority) != 1 || !strings.Contains(r.Authority[0], " SOA ")) {
		return fmt.Errorf("authority %q, want the SOA record", r.Authority)
	}
	return nil
}

// A Client asks one server.
type Client struct {
	Out  io.Writer
	Port uint16 // on 127.0.0.1
	// Dig is the path of dig. If it is empty, the client asks with our own program, bin/query.
	Dig string
}

// FindDig returns the path of dig, or "" if it is not installed.
func FindDig() string {
	path, err := exec.LookPath("dig")
	if err != nil {
		return ""
	}
	return path
}

// Program is the name of the program that c asks with, as a user types it in the folder of the repository.
func (c Client) Program() string {
	if c.Dig == "" {
		return "bin/query"
	}
	return "dig"
}

// All asks one question after the other and fails if an answer is wrong.
func (c Client) All(ctx context.Context, list []Question) error {
	var wrong []string
	for _, q := range list {
		r, err := c.Ask(ctx, q.FQDN(), q.Qtype)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.Out, "   %s\n   $ %s @127.0.0.1 -p %d %s %s\n%s", q.Shows, c.Program(), c.Port, q.FQDN(), q.Qtype, r)
		if err := q.Check(r); err != nil {
			fmt.Fprintf(c.Out, "     WRONG: %s\n", err)
			wrong = append(wrong, q.FQDN()+" "+q.Qtype)
		}
		fmt.Fprintln(c.Out)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("wrong answers: %s", strings.Join(wrong, ", "))
	}
	return nil
}

// Ask sends one question.
func (c Client) Ask(ctx context.Context, name, qtype string) (Reply, error) {
	out, err := c.Run(ctx, name, qtype)
	if err != nil {
		return Reply{}, err
	}
	return parse(out)
}

// Run sends one question and returns all that dig or our own program prints.
func (c Client) Run(ctx context.Context, name, qtype string) (string, error) {
	// -r: the user's ~/.digrc must not change the output.
	args := []string{"-r", "@127.0.0.1", "-p", fmt.Sprint(c.Port), "+nocmd", "+nostats", "+noquestion", "+tries=2",
		"+timeout=5", name, qtype}
	if c.Dig == "" {
		var out bytes.Buffer
		err := query.Run(ctx, args, &out)
		return out.String(), err
	}
	out, err := exec.CommandContext(ctx, c.Dig, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("dig %s %s: %w\n%s", name, qtype, err, out)
	}
	return string(out), nil
}

// A Reply has what dig prints of a response.
type Reply struct {
	Status     string
	Answer     []string // records as "owner ttl IN type rdata"
	Authority  []string
	Additional []string
}

var statusOf = regexp.MustCompile(`status: ([A-Z]+),`)

// parse reads the output of dig.
func parse(out string) (r Reply, err error) {
	status := statusOf.FindStringSubmatch(out)
	if status == nil {
		return Reply{}, fmt.Errorf("dig: want an answer with a status:\n%s", out)
	}
	r.Status = status[1]
	var section *[]string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		switch line {
		case ";; ANSWER SECTION:":
			section = &r.Answer
		case ";; AUTHORITY SECTION:":
			section = &r.Authority
		case ";; ADDITIONAL SECTION:":
			section = &r.Additional
		default:
			if section != nil && line != "" && !strings.HasPrefix(line, ";") {
				*section = append(*section, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	return r, nil
}

// records are those of the answer and additional sections, without owner, TTL and class, sorted.
func (r Reply) records() []string {
	var all []string
	for _, rr := range slices.Concat(r.Answer, r.Additional) {
		if fields := strings.SplitN(rr, " ", 5); len(fields) == 5 {
			all = append(all, fields[3]+" "+fields[4])
		}
	}
	slices.Sort(all)
	return all
}

// String is the part of the response that matters to a reader, one record a line.
func (r Reply) String() string {
	var b strings.Builder
	if len(r.Answer) == 0 {
		fmt.Fprintf(&b, "     %s, no answer\n", r.Status)
	}
	for _, rr := range r.Answer {
		fmt.Fprintf(&b, "     %s\n", rr)
	}
	for _, rr := range r.Authority {
		fmt.Fprintf(&b, "     %s  (authority)\n", rr)
	}
	for _, rr := range r.Additional {
		fmt.Fprintf(&b, "     %s  (additional)\n", rr)
	}
	return b.String()
}
