package wiring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// annotationStub on the ConfigMap of kube-dns holds a [stubRecord]: JSON has no comments, so marks cannot stand beside
// the text.
const annotationStub = "clusterset-dns.io/stub-domain"

// A stubRecord remembers what we have written to stubDomains.
type stubRecord struct {
	Zone      string   `json:"zone"`
	Addresses []string `json:"addresses"`
	Original  *string  `json:"original"` // null: there was no stubDomains
	Written   string   `json:"written"`
}

// stubDomains wires a resolver that reads the stub domains of a ConfigMap (docs/spec/dns-wiring.md 4).
func (r *Resolver) stubDomains(p place, w Desired) {
	r.Evidence = append(r.Evidence, "it reads stub domains from "+p.String())
	domains := map[string][]string{}
	if text := p.text(); strings.TrimSpace(text) != "" {
		if err := json.Unmarshal([]byte(text), &domains); err != nil || domains == nil {
			r.setManual(RouteUnknown, fmt.Sprintf("%s is not understood: want a JSON object of lists", p), w.stubText(nil, ""))
			return
		}
	}
	base := p.text() // without ours
	if record := p.stubRecord(); record != nil {
		undo, kept := p.undoStub(record, domains)
		if undo == nil {
			r.Edited = true
			r.State, r.Route, r.Reason = Taken, RouteOther,
				"the stub domain that we had written to "+p.String()+" was changed since"
			return
		}
		to, found := domains[record.Zone]
		r.Undo, r.State, base = undo, Outdated, undo.New
		r.Route = w.route(found && record.Zone == w.Zone, to)
		if found && record.Zone == w.Zone && slices.Equal(record.Addresses, w.addresses()) {
			r.State = Wired
			return
		}
		domains = kept
	}
	if to, ok := domains[w.Zone]; ok {
		r.setTaken(serving{
			what:   fmt.Sprintf("the stub domain %s with %s is not managed by clusterset", w.Zone, strings.Join(to, ", ")),
			wanted: sameAddresses(to, w),
		})
		return
	}
	if why := p.obstacle(); why != "" && r.Undo == nil {
		r.setManual(RouteNone, why, w.stubText(domains, base))
		return
	}
	if r.State != Outdated {
		r.State, r.Route = Missing, RouteNone
	}
	if w.writable() {
		r.Apply = p.stubEdit(w, domains, base)
	}
}

// stubText returns text with the zone as the first member, and the rest as it was.
func (w Desired) stubText(domains map[string][]string, text string) string {
	to, err := json.Marshal(w.addresses())
	if err != nil {
		panic("wiring: addresses are text: " + err.Error())
	}
	member := fmt.Sprintf("%q: %s", w.Zone, to)
	switch _, rest, _ := strings.Cut(text, "{"); {
	case rest == "":
		return "{" + member + "}"
	case len(domains) > 0:
		return text[:strings.IndexByte(text, '{')+1] + member + ", " + rest
	default:
		return text[:strings.IndexByte(text, '{')+1] + member + rest
	}
}

func (p place) stubEdit(w Desired, domains map[string][]string, base string) *Edit {
	record := stubRecord{Zone: w.Zone, Addresses: w.addresses(), Written: w.stubText(domains, base)}
	if old := p.stubRecord(); old != nil && old.Original == nil && base == "" {
		record.Original = nil
	} else if p.exists() {
		record.Original = &base
	}
	e := p.set(record.Written)
	note, err := json.Marshal(record)
	if err != nil {
		panic("wiring: a record is text: " + err.Error())
	}
	annotations := e.After.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationStub] = string(note)
	e.After.SetAnnotations(annotations)
	return e
}

// stubRecord returns nil without the annotation, or if it is not ours.
func (p place) stubRecord() *stubRecord {
	if p.configMap == nil {
		return nil
	}
	var record stubRecord
	note := p.configMap.GetAnnotations()[annotationStub]
	if note == "" || json.Unmarshal([]byte(note), &record) != nil || !p.exists() {
		return nil
	}
	return &record
}

// undoStub returns the edit that removes our stub domain, and the others: the text from before if it has not changed
// since. It returns nil if somebody has changed our stub domain itself.
func (p place) undoStub(record *stubRecord, domains map[string][]string) (*Edit, map[string][]string) {
	kept := map[string][]string{}
	for zone, to := range domains {
		if zone != record.Zone {
			kept[zone] = to
		}
	}
	var e *Edit
	switch to, found := domains[record.Zone]; {
	case p.text() == record.Written && record.Original == nil:
		e = p.remove()
	case p.text() == record.Written:
		e = p.set(*record.Original)
	case found && !slices.Equal(to, record.Addresses):
		return nil, nil
	default:
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(kept); err != nil {
			panic("wiring: stub domains are text: " + err.Error())
		}
		e = p.set(strings.TrimSpace(text.String()))
	}
	if e.After != nil {
		annotations := e.After.GetAnnotations()
		delete(annotations, annotationStub)
		e.After.SetAnnotations(annotations)
	}
	return e, kept
}
