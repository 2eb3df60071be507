package baseline

import (
	"fmt"
	"io"
	"slices"

	"github.com/miekg/dns"
)

// prepare reads a master file. name is for error texts.
func prepare(r io.Reader, name string) (*handler, error) {
	rrsets, err := read(r, name)
	if err != nil {
		return nil, err
	}
	f := &handler{answers: make(map[question]*pair, len(rrsets))}
	for q, records := range rrsets {
		if q.qtype == dns.TypeSOA {
			f.soa = append(f.soa, records...)
		}
		var glue []dns.RR
		for _, rr := range records {
			if srv, ok := rr.(*dns.SRV); ok {
				glue = append(glue, rrsets[question{srv.Target, dns.TypeA}]...)
			}
		}
		f.answers[q] = &pair{plain: fit(q, records, glue, nil), edns: fit(q, records, glue, opt())}
	}
	f.soa = slices.Clip(f.soa)
	if len(f.soa) != 1 {
		return nil, fmt.Errorf("master file %q: %d SOA records: want 1", name, len(f.soa))
	}
	return f, nil
}

func read(r io.Reader, name string) (map[question][]dns.RR, error) {
	rrsets := map[question][]dns.RR{}
	parser := dns.NewZoneParser(r, ".", name)
	for rr, ok := parser.Next(); ok; rr, ok = parser.Next() {
		q := question{rr.Header().Name, rr.Header().Rrtype}
		rrsets[q] = append(rrsets[q], rr)
	}
	if err := parser.Err(); err != nil {
		return nil, fmt.Errorf("master file: %w", err)
	}
	return rrsets, nil
}

func opt() *dns.OPT {
	o := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	o.SetUDPSize(EDNSSize)
	return o
}

// fit cuts an answer as CoreDNS would, so that CoreDNS finds nothing left to cut.
func fit(q question, records, glue []dns.RR, o *dns.OPT) answer {
	m := new(dns.Msg)
	m.SetQuestion(q.name, q.qtype)
	m.Answer, m.Extra = records, slices.Clone(glue)
	size := dns.MinMsgSize
	if o != nil {
		m.Extra = append(m.Extra, o)
		size = EDNSSize
	}
	m.Truncate(size)
	isOPT := func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeOPT }
	return answer{
		records:   slices.Clone(m.Answer),
		extra:     slices.Clip(slices.DeleteFunc(m.Extra, isOPT)),
		truncated: m.Truncated,
	}
}
