package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// A reply is what dig shows of an answer.
type reply struct {
	status     string
	answer     []string // records as "owner ttl IN type rdata"
	authority  []string
	additional []string
}

var statusOf = regexp.MustCompile(`status: ([A-Z]+),`)

// dig asks the server with the real dig.
func (d *demo) dig(ctx context.Context, name, qtype string) (reply, error) {
	// -r: whatever the user has in ~/.digrc must not change the output.
	cmd := exec.CommandContext(ctx, "dig", "-r", "@127.0.0.1", "-p", fmt.Sprint(d.port.Number),
		"+nocmd", "+nostats", "+noquestion", "+tries=2", "+timeout=5", name, qtype)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return reply{}, fmt.Errorf("dig %s %s: %w\n%s", name, qtype, err, out)
	}
	return parseDig(string(out))
}

func parseDig(out string) (r reply, err error) {
	status := statusOf.FindStringSubmatch(out)
	if status == nil {
		return reply{}, fmt.Errorf("dig: want an answer with a status:\n%s", out)
	}
	r.status = status[1]
	var section *[]string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		switch line {
		case ";; ANSWER SECTION:":
			section = &r.answer
		case ";; AUTHORITY SECTION:":
			section = &r.authority
		case ";; ADDITIONAL SECTION:":
			section = &r.additional
		default:
			if section != nil && line != "" && !strings.HasPrefix(line, ";") {
				*section = append(*section, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	return r, nil
}

// records are those of the answer and additional section, without owner, TTL and class, sorted.
func (r reply) records() []string {
	var all []string
	for _, rr := range slices.Concat(r.answer, r.additional) {
		if fields := strings.SplitN(rr, " ", 5); len(fields) == 5 {
			all = append(all, fields[3]+" "+fields[4])
		}
	}
	slices.Sort(all)
	return all
}

// String is what a user should look at.
func (r reply) String() string {
	var b strings.Builder
	if len(r.answer) == 0 {
		fmt.Fprintf(&b, "%s, no answer\n", r.status)
	}
	for _, rr := range r.answer {
		fmt.Fprintln(&b, rr)
	}
	for _, rr := range r.authority {
		fmt.Fprintln(&b, rr, " (authority)")
	}
	for _, rr := range r.additional {
		fmt.Fprintln(&b, rr, " (additional)")
	}
	return b.String()
}
