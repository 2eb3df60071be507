package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// A Answer is a resolver's answer to a question for TXT of dns-version in the zone (docs/spec/dns-wiring.md 7).
type Answer struct {
	Server   string `json:"server,omitempty"`   // host and port
	Protocol string `json:"protocol,omitempty"` // udp or tcp
	Response string `json:"response,omitempty"` // "NOERROR 1.0.0"; empty if there was none
	Error    string `json:"error,omitempty"`    // why there was none
	// Wired means that the answer is that of a DNS server of a clusterset.
	Wired bool `json:"wired"`
}

// askTimeout bounds one question over one protocol.
const askTimeout = 2 * time.Second

// askServers sends the question to the servers, over UDP and then over TCP, until one responds.
func askServers(ctx context.Context, servers []string, zone string) Answer {
	question := new(dns.Msg)
	question.SetQuestion("dns-version."+dns.Fqdn(zone), dns.TypeTXT)
	var failed error
	for _, server := range servers {
		if _, _, err := net.SplitHostPort(server); err != nil {
			server = net.JoinHostPort(server, "53")
		}
		for _, protocol := range []string{"udp", "tcp"} {
			client := dns.Client{Net: protocol, Timeout: askTimeout}
			reply, _, err := client.ExchangeContext(ctx, question, server)
			if err == nil {
				return answerOf(server, protocol, reply)
			}
			failed = errors.Join(failed, fmt.Errorf("%s: %w", protocol, err))
		}
	}
	if failed == nil {
		failed = errors.New("no address of a resolver is known")
	}
	return Answer{Error: strings.ReplaceAll(failed.Error(), "\n", "; ")}
}

func answerOf(server, protocol string, reply *dns.Msg) Answer {
	a := Answer{Server: server, Protocol: protocol, Response: dns.RcodeToString[reply.Rcode]}
	for _, rr := range reply.Answer {
		if txt, ok := rr.(*dns.TXT); ok && reply.Rcode == dns.RcodeSuccess {
			a.Response += " " + strings.Join(txt.Txt, "")
			a.Wired = true
		}
	}
	return a
}
