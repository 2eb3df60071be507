package cause

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset/cache/index"
	"github.com/clusterset-dns/clusterset/resolver"
)

// An expectation is what a server should answer by the objects of the cluster. Which clusters answer for a service
// without addresses of its own is the choice of the server (docs/spec/dns.md 3.2): values are then those of all of
// them, and an answer is a part of that.
type expectation struct {
	known   bool // the objects could be read
	outcome resolver.Outcome
	values  []string // sorted
}

func expectedAnswer(in *Input, t Target, service *index.Service) expectation {
	edit := new(index.Index).Edit()
	if service != nil {
		edit.Put(service)
	}
	o := &resolver.Options{ClusterNames: true, Policy: resolver.All, MaxName: resolver.MaxName(dns.Fqdn(in.Zone))}
	a := resolver.Resolve(edit.Index(), resolver.Question{Name: t.Relative, Type: in.Type, Union: true}, o)
	e := expectation{outcome: a.Outcome}
	if t.Service == "" {
		e.known = true // such a name exists in each zone
		return e
	}
	e.known = in.Here.Import.Known() && (in.Here.Slices.Known() || service != nil && service.HasVIP())
	e.values = answerValues(&a, in.Zone)
	return e
}

// answerValues returns the records of an answer as [Reply] has them.
func answerValues(a *resolver.Answer, zone string) []string {
	var list []string
	for i := range a.Addresses.Len() {
		if addr, ok := netip.AddrFromSlice([]byte(a.Addresses.At(i))); ok {
			list = append(list, addr.String())
		}
	}
	for i := range a.Services.Len() {
		number, to := a.Services.At(i)
		list = append(list, fmt.Sprintf("%d %s.%s", number, to.AppendName(nil), zone))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// text shows an answer on one line.
func (e expectation) text(qtype uint16) string {
	if len(e.values) == 0 {
		return map[resolver.Outcome]string{
			resolver.Found: "an answer", resolver.NoData: "NODATA", resolver.NXDomain: "NXDOMAIN",
		}[e.outcome]
	}
	return dns.TypeToString[qtype] + " " + shortList(e.values)
}

// shortList joins values, the first few of them.
func shortList(values []string) string {
	const shown = 5
	text := strings.Join(values[:min(len(values), shown)], ", ")
	if more := len(values) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
