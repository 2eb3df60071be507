package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/admin/explain/cause"
	"github.com/clusterset-dns/clusterset/api/reason"
)

// A Question is what a Pod, or the command itself, asks in the importing cluster.
type Question struct {
	From   string      `json:"from"`
	Kind   ServiceKind `json:"kind"`
	Family string      `json:"family,omitempty"` // "IPv4" or "IPv6"
	Zone   string      `json:"zone"`             // without final dot
	Name   string      `json:"name"`             // absolute

	// Want has the addresses that the objects of the importing cluster have. Without one the name has to exist.
	Want []string `json:"want,omitempty"`
	Gone bool     `json:"gone,omitempty"` // the name must not exist

	Port int    `json:"port,omitempty"` // to connect to, by TCP and UDP; 0: no connection
	Says string `json:"says,omitempty"` // what the Pod there replies
}

// Type is that of the question in DNS.
func (q Question) Type() uint16 {
	if q.Family == "IPv6" {
		return dns.TypeAAAA
	}
	return dns.TypeA
}

// An Answer is what became of a question.
type Answer struct {
	DNS Outcome  `json:"dns"`
	TCP *Outcome `json:"tcp,omitempty"` // nil without a connection
	UDP *Outcome `json:"udp,omitempty"`
}

// An Outcome is the result of one try.
type Outcome struct {
	Code     reason.Code `json:"code,omitempty"` // "": it worked
	Evidence string      `json:"evidence"`
}

// A Way is the way of a kind of Service from a member to another one.
type Way struct {
	From, To string
	Kind     ServiceKind
}

// Check is the result of a step on the way.
func (w Way) Check(step Step, o Outcome) Check {
	c := Check{From: w.From, To: w.To, Step: step, Kind: w.Kind, Mark: OK, Code: o.Code, Evidence: o.Evidence}
	if o.Code != "" {
		c.Mark = Failed
	}
	return c
}

// Way is that of the check.
func (c Check) Way() Way { return Way{c.From, c.To, c.Kind} }

// Worked reports whether everything worked.
func (a Answer) Worked() bool {
	return a.DNS.Code == "" && (a.TCP == nil || a.TCP.Code == "") && (a.UDP == nil || a.UDP.Code == "")
}

// Judge evaluates a reply of DNS.
func (q Question) Judge(r cause.Reply) Outcome {
	if code, evidence := r.Fault(q.Zone); code != "" {
		return Outcome{code, evidence}
	}
	word := dns.RcodeToString[r.Rcode]
	got := strings.Join(append([]string{word}, r.Values...), " ")
	switch {
	case q.Gone && r.Rcode == dns.RcodeNameError:
		return Outcome{"", got}
	case q.Gone:
		return Outcome{reason.DNSNotWithdrawn, got + ", want NXDOMAIN"}
	case r.Rcode == dns.RcodeNameError || len(q.Want) > 0 && len(r.Values) == 0:
		return Outcome{reason.DNSLacksName, fmt.Sprintf("%s, want %s", got, q.wanted())}
	}
	for _, v := range r.Values {
		if len(q.Want) > 0 && !slices.Contains(q.Want, v) {
			return Outcome{reason.DNSOtherAnswer, fmt.Sprintf("%s, want %s", v, q.wanted())}
		}
	}
	return Outcome{"", got}
}

func (q Question) wanted() string {
	if len(q.Want) == 0 {
		return "the name to exist"
	}
	return strings.Join(q.Want, " or ")
}

// JudgeReply evaluates the reply to a connection. failure is "" if there was one.
func (q Question) JudgeReply(network, address, said, failure string) Outcome {
	code := reason.NetworkTCP
	if network == "udp" {
		code = reason.NetworkUDP
	}
	switch {
	case failure != "":
		return Outcome{code, failure}
	case said != q.Says:
		return Outcome{reason.NetworkOtherCluster, fmt.Sprintf("%q at %s, want %q", said, address, q.Says)}
	}
	return Outcome{"", address}
}

// Checks are those that the answer in the member to is the result of.
func (q Question) Checks(to string, a Answer) []Check {
	name, connections := DNS, map[Step]*Outcome{TCP: a.TCP, UDP: a.UDP}
	if q.Gone {
		name = NameGone
	}
	of := func(step Step, o Outcome) Check {
		c := Way{q.From, to, q.Kind}.Check(step, o)
		c.Family = q.Family
		return c
	}
	all := []Check{of(name, a.DNS)}
	for _, step := range []Step{TCP, UDP} {
		if o := connections[step]; o != nil {
			all = append(all, of(step, *o))
		}
	}
	return all
}
