package golden

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// A Reply is a message in a form that can be compared: records are text, sorted within their section, and the serial is
// 1.
type Reply struct {
	Head string // rcode and flags: "NOERROR aa"
	Sections
}

// Sections are the records of a reply without OPT.
type Sections struct{ Answer, Authority, Additional []string }

// A Want has the permitted replies: one of the forms, or any N of the answer records of the only form.
type Want struct {
	Head  string
	Any   int // 0: whole forms
	Forms []Sections
}

// NewReply takes a message apart.
func NewReply(m *dns.Msg) Reply {
	r := Reply{Head: dns.RcodeToString[m.Rcode]}
	if m.Authoritative {
		r.Head += " aa"
	}
	if m.Truncated {
		r.Head += " tc"
	}
	for _, section := range []struct {
		from []dns.RR
		to   *[]string
	}{{m.Answer, &r.Answer}, {m.Ns, &r.Authority}, {m.Extra, &r.Additional}} {
		for _, rr := range section.from {
			if rr.Header().Rrtype != dns.TypeOPT {
				*section.to = append(*section.to, recordText(rr))
			}
		}
	}
	r.sort()
	return r
}

func recordText(rr dns.RR) string {
	if soa, ok := rr.(*dns.SOA); ok {
		soa = dns.Copy(soa).(*dns.SOA)
		soa.Serial = 1
		rr = soa
	}
	return strings.Join(strings.Fields(rr.String()), " ")
}

func (s *Sections) sort() {
	slices.Sort(s.Answer)
	slices.Sort(s.Authority)
	slices.Sort(s.Additional)
}

// Equal compares the records.
func (s Sections) Equal(o Sections) bool {
	return slices.Equal(s.Answer, o.Answer) && slices.Equal(s.Authority, o.Authority) &&
		slices.Equal(s.Additional, o.Additional)
}

func (s Sections) String() string {
	var b strings.Builder
	for _, section := range []struct {
		prefix  string
		records []string
	}{{"", s.Answer}, {"authority: ", s.Authority}, {"additional: ", s.Additional}} {
		for _, record := range section.records {
			b.WriteString(section.prefix + record + "\n")
		}
	}
	return b.String()
}

func (r Reply) String() string { return r.Head + "\n" + r.Sections.String() }

// Permits reports whether the reply is a permitted one.
func (w Want) Permits(r Reply) bool { return w.Form(r) >= 0 }

// Form is which of the forms the reply is, or -1.
func (w Want) Form(r Reply) int {
	if r.Head != w.Head {
		return -1
	}
	if w.Any == 0 {
		return slices.IndexFunc(w.Forms, r.Equal)
	}
	whole := w.Forms[0]
	targets := targetsOf(r.Answer)
	// Glue is that of the targets that are shown, all of it.
	glue := slices.DeleteFunc(slices.Clone(whole.Additional), func(record string) bool {
		owner, _, _ := strings.Cut(record, " ")
		return !slices.Contains(targets, owner)
	})
	if len(r.Answer) == w.Any && slices.Equal(slices.Compact(slices.Clone(r.Answer)), r.Answer) &&
		!slices.ContainsFunc(r.Answer, func(record string) bool { return !slices.Contains(whole.Answer, record) }) &&
		slices.Equal(r.Authority, whole.Authority) && slices.Equal(r.Additional, glue) {
		return 0
	}
	return -1
}

// targetsOf are the targets of SRV and NS records, which stand last in their text.
func targetsOf(records []string) (targets []string) {
	for _, record := range records {
		targets = append(targets, record[strings.LastIndexByte(record, ' ')+1:])
	}
	return targets
}

func (w Want) equal(o Want) bool {
	return w.Head == o.Head && w.Any == o.Any && slices.EqualFunc(w.Forms, o.Forms, Sections.Equal)
}

func (w Want) String() string {
	b := w.Head + "\n"
	if w.Any > 0 {
		b += fmt.Sprintf("any %d of\n", w.Any)
	}
	for i, form := range w.Forms {
		if i > 0 {
			b += "or\n"
		}
		b += form.String()
	}
	return b
}

// Seen is what to want after these replies to one question: one form for each that differs.
func Seen(replies []Reply) (Want, error) {
	w := Want{Head: replies[0].Head}
	for _, r := range replies {
		if r.Head != w.Head {
			return Want{}, fmt.Errorf("replies %q and %q to one question: want one rcode", w.Head, r.Head)
		}
		if w.Form(r) < 0 {
			w.Forms = append(w.Forms, r.Sections)
		}
	}
	slices.SortFunc(w.Forms, func(a, b Sections) int { return strings.Compare(a.String(), b.String()) })
	return w, nil
}

// lines are those of text that say something.
func lines(text string) (list []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list
}

// parseWant reads what stands behind a question. Nothing at all is a question that has no answer yet: it permits none.
func parseWant(text string) (w Want, err error) {
	all := lines(text)
	if len(all) == 0 {
		return w, nil
	}
	w.Head, w.Forms = all[0], make([]Sections, 1)
	for _, line := range all[1:] {
		if line == "or" {
			w.Forms = append(w.Forms, Sections{})
			continue
		}
		if n, ok := strings.CutPrefix(line, "any "); ok {
			if w.Any, err = strconv.Atoi(strings.TrimSuffix(n, " of")); err != nil {
				return w, fmt.Errorf("line %q: want %q", line, "any N of")
			}
			continue
		}
		if err := w.Forms[len(w.Forms)-1].add(line); err != nil {
			return w, err
		}
	}
	for i := range w.Forms {
		w.Forms[i].sort()
	}
	slices.SortFunc(w.Forms, func(a, b Sections) int { return strings.Compare(a.String(), b.String()) })
	if w.Any > 0 && len(w.Forms) > 1 {
		return w, fmt.Errorf("any %d of %d forms: want one", w.Any, len(w.Forms))
	}
	return w, nil
}

func (s *Sections) add(line string) error {
	section := &s.Answer
	if text, ok := strings.CutPrefix(line, "authority: "); ok {
		section, line = &s.Authority, text
	} else if text, ok := strings.CutPrefix(line, "additional: "); ok {
		section, line = &s.Additional, text
	}
	rr, err := dns.NewRR(line)
	if err != nil || rr == nil {
		return fmt.Errorf("line %q: want a record: %w", line, err)
	}
	*section = append(*section, recordText(rr))
	return nil
}

// ParseDig reads what "dig +noall +comments +answer +authority +additional" printed, one reply after the other.
func ParseDig(output string) ([]Reply, error) {
	var replies []Reply
	var section string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		status, isHeader := strings.CutPrefix(line, ";; ->>HEADER<<- opcode: QUERY, status: ")
		flags, isFlags := strings.CutPrefix(line, ";; flags: ")
		switch {
		case isHeader:
			status, _, _ = strings.Cut(status, ",")
			replies, section = append(replies, Reply{Head: status}), ""
		case isFlags && len(replies) > 0:
			flags, _, _ = strings.Cut(flags, ";")
			for _, flag := range strings.Fields(flags) {
				if flag == "aa" || flag == "tc" {
					replies[len(replies)-1].Head += " " + flag
				}
			}
		case strings.HasSuffix(line, " SECTION:"):
			section = strings.TrimSuffix(strings.TrimPrefix(line, ";; "), " SECTION:")
		case line == "" || strings.HasPrefix(line, ";"):
		case len(replies) == 0:
			return nil, fmt.Errorf("dig: line %q: want a header before", line)
		default:
			prefix := map[string]string{"ANSWER": "", "AUTHORITY": "authority: ", "ADDITIONAL": "additional: "}[section]
			if err := replies[len(replies)-1].add(prefix + line); err != nil {
				return nil, fmt.Errorf("dig: %w", err)
			}
		}
	}
	for i := range replies {
		replies[i].sort()
	}
	return replies, nil
}
