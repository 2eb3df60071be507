// Package query asks a DNS server one question and prints the response as dig 9.18 does. It stands in for dig in the
// demo where dig is not installed, and knows the options that the demo uses and no others.
package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Usage is the command line that [Run] takes.
const Usage = "@SERVER [-r] [-p PORT] [+nocmd] [+nostats] [+noquestion] [+tries=N] [+timeout=SECONDS] NAME [TYPE]"

// dig offers this size over UDP.
const bufsize = 1232

// A request is a parsed command line.
type request struct {
	server, port string
	name         string
	qtype        uint16
	tries        int
	timeout      time.Duration // of one try
}

// Run sends a question and writes the response. It takes arguments of dig, see [Usage]; of the lines that dig prints by
// default, those that +nocmd, +nostats and +noquestion turn off are never printed.
func Run(ctx context.Context, args []string, w io.Writer) error {
	q, err := parse(args)
	if err != nil {
		return fmt.Errorf("%w\nusage: %s", err, Usage)
	}
	m := new(dns.Msg)
	m.SetQuestion(q.name, q.qtype)
	m.SetEdns0(bufsize, false)
	m.AuthenticatedData = true // as dig does
	reply, err := q.exchange(ctx, m, "udp")
	if err == nil && reply.Truncated {
		fmt.Fprintln(w, ";; Truncated, retrying in TCP mode.")
		reply, err = q.exchange(ctx, m, "tcp")
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, format(reply))
	return err
}

func (q request) exchange(ctx context.Context, m *dns.Msg, network string) (reply *dns.Msg, err error) {
	client := dns.Client{Net: network, Timeout: q.timeout, UDPSize: bufsize}
	for range q.tries {
		if reply, _, err = client.ExchangeContext(ctx, m, net.JoinHostPort(q.server, q.port)); err == nil ||
			ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", q.name, dns.TypeToString[q.qtype], err)
	}
	return reply, nil
}

func parse(args []string) (request, error) {
	q := request{port: "53", qtype: dns.TypeA, tries: 3, timeout: 5 * time.Second}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		key, value, _ := strings.Cut(arg, "=")
		switch {
		case arg == "-r" || arg == "+nocmd" || arg == "+nostats" || arg == "+noquestion":
		case arg == "-p" && len(args) > 0:
			q.port, args = args[0], args[1:]
		case key == "+tries" || key == "+timeout":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				return q, fmt.Errorf("%q: want a number from 1", arg)
			}
			if key == "+tries" {
				q.tries = n
			} else {
				q.timeout = time.Duration(n) * time.Second
			}
		case strings.HasPrefix(arg, "@"):
			q.server = arg[1:]
		case strings.HasPrefix(arg, "-") || strings.HasPrefix(arg, "+"):
			return q, fmt.Errorf("option %q is not known", arg)
		case q.name == "":
			q.name = dns.Fqdn(arg)
		default:
			qtype, known := dns.StringToType[strings.ToUpper(arg)]
			if !known {
				return q, fmt.Errorf("type %q is not known", arg)
			}
			q.qtype = qtype
		}
	}
	if q.server == "" || q.name == "" {
		return q, errors.New("server or name is missing")
	}
	return q, nil
}

// format returns the message as dig prints it.
func format(m *dns.Msg) string {
	var b strings.Builder
	b.WriteString(";; Got answer:\n")
	if slices.ContainsFunc(m.Question, func(q dns.Question) bool { return dns.IsSubDomain("local.", q.Name) }) {
		b.WriteString(";; WARNING: .local is reserved for Multicast DNS\n" +
			";; You are currently testing what happens when an mDNS query is leaked to DNS\n")
	}
	fmt.Fprintf(&b, ";; ->>HEADER<<- opcode: %s, status: %s, id: %d\n",
		dns.OpcodeToString[m.Opcode], dns.RcodeToString[m.Rcode], m.Id)
	var flags strings.Builder
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"qr", m.Response}, {"aa", m.Authoritative}, {"tc", m.Truncated}, {"rd", m.RecursionDesired},
		{"ra", m.RecursionAvailable},
		{"ad", m.AuthenticatedData}, {"cd", m.CheckingDisabled},
	} {
		if f.set {
			flags.WriteString(" " + f.name)
		}
	}
	fmt.Fprintf(&b, ";; flags:%s; QUERY: %d, ANSWER: %d, AUTHORITY: %d, ADDITIONAL: %d\n",
		&flags, len(m.Question), len(m.Answer), len(m.Ns), len(m.Extra))
	if m.RecursionDesired && !m.RecursionAvailable {
		b.WriteString(";; WARNING: recursion requested but not available\n")
	}
	b.WriteString("\n")
	formatOPT(&b, m.IsEdns0())
	var additional []dns.RR
	for _, rr := range m.Extra {
		if rr.Header().Rrtype != dns.TypeOPT {
			additional = append(additional, rr)
		}
	}
	formatSection(&b, "ANSWER", m.Answer)
	formatSection(&b, "AUTHORITY", m.Ns)
	formatSection(&b, "ADDITIONAL", additional)
	return b.String()
}

func formatOPT(b *strings.Builder, opt *dns.OPT) {
	if opt == nil {
		return
	}
	do := ""
	if opt.Do() {
		do = " do"
	}
	fmt.Fprintf(b, ";; OPT PSEUDOSECTION:\n; EDNS: version: %d, flags:%s; udp: %d\n", opt.Version(), do, opt.UDPSize())
	for _, option := range opt.Option {
		if ede, is := option.(*dns.EDNS0_EDE); is {
			fmt.Fprintf(b, "; EDE: %d (%s)", ede.InfoCode, dns.ExtendedErrorCodeToString[ede.InfoCode])
			if ede.ExtraText != "" {
				fmt.Fprintf(b, ": (%s)", ede.ExtraText)
			}
			b.WriteString("\n")
		}
	}
}

func formatSection(b *strings.Builder, name string, rrs []dns.RR) {
	if len(rrs) == 0 {
		return
	}
	fmt.Fprintf(b, ";; %s SECTION:\n", name)
	for _, rr := range rrs {
		h := rr.Header()
		data := strings.TrimPrefix(rr.String(), h.String())
		var line line
		// dig's columns, with tabs of 8.
		line.add(h.Name, 24)
		line.add(fmt.Sprint(h.Ttl), 32)
		line.add(dns.ClassToString[h.Class], 40)
		line.add(dns.TypeToString[h.Rrtype], 48)
		b.WriteString(line.text + data + "\n")
	}
	b.WriteString("\n")
}

// A line is filled column by column.
type line struct {
	text string
	at   int
}

// add adds text, and tabs and blanks up to the next column: one of them at least.
func (l *line) add(text string, next int) {
	const tab = 8
	l.text += text
	l.at += len(text)
	next = max(next, l.at+1)
	if tabs := next/tab - l.at/tab; tabs > 0 {
		l.text += strings.Repeat("\t", tabs)
		l.at = next / tab * tab
	}
	l.text += strings.Repeat(" ", next-l.at)
	l.at = next
}
