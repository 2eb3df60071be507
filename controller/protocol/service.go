package protocol

import "slices"

// A Service is the knowledge of one member's export of one service: the newest copy of each object, and whether the
// broker still has it. The zero value knows nothing.
type Service struct {
	Entry  Entry
	Record Record
	Slices []Slice // in any order

	without rule // left out by the search; 0 in the product
}

// Noted is stored with an import in the importing cluster and outlives the process. The zero value is no import.
type Noted struct {
	// Ended is the stamp of the newest inventory by which something ended, of the part that the service belongs to.
	Ended  Stamp
	Record Record  // Stamp and UID of the record, Partial; the zero value if the member has no part in the import
	From   Stamp   // of the entry that the import was made by
	Listed Stamp   // of an inventory that listed the export; 0 before the first
	Slices []Slice // Name, Stamp and UID of the imported slices
}

// Restore returns what a new process knows from the import alone.
func Restore(n Noted) Service { return Service{Record: n.Record, Slices: slices.Clone(n.Slices)} }

// seeEntry applies an inventory. Without an inventory nothing changes.
func (s *Service) seeEntry(e Entry) {
	if e.Stamp != 0 && (e.Stamp >= s.Entry.Stamp || s.without&stamps != 0) {
		s.Entry = e
	}
}

// seeRecord applies a record. The zero value means that the broker has no record.
func (s *Service) seeRecord(r Record) {
	switch {
	case r.Stamp == 0 && s.without&inventory != 0:
		s.Record = Record{}
	case r.Stamp == 0:
		s.Record.Gone = s.Record.Stamp != 0
	case r.Stamp >= s.Record.Stamp || s.without&stamps != 0:
		s.Record = r
	default:
		s.Record.Gone = false
	}
}

// seeSlice applies a slice, or with Gone its loss.
func (s *Service) seeSlice(v Slice) {
	i := slices.IndexFunc(s.Slices, func(known Slice) bool { return known.Name == v.Name })
	switch {
	case i < 0 && !v.Gone:
		s.Slices = append(s.Slices, v)
	case i < 0:
	case v.Gone && s.without&inventory != 0:
		s.Slices = slices.Delete(s.Slices, i, i+1)
	case v.Gone:
		s.Slices[i].Gone = true
	case v.Stamp >= s.Slices[i].Stamp || s.without&stamps != 0:
		s.Slices[i] = v
	default:
		s.Slices[i].Gone = false
	}
}

// See applies the state of the broker. found lists all of its slices.
func (s *Service) See(e Entry, r Record, found []Slice) {
	s.seeEntry(e)
	s.seeRecord(r)
	for _, v := range slices.Clone(s.Slices) {
		if find(found, v.Name).Stamp == 0 {
			s.seeSlice(Slice{Name: v.Name, Gone: true})
		}
	}
	for _, v := range found {
		s.seeSlice(v)
	}
}

// Relist applies a consistent list of the member's objects, which ends its silence: only its contents count, and no
// copy older than the importer knew. found has the slices of the list.
func (s *Service) Relist(e Entry, r Record, found []Slice) {
	if s.without&clearOld == 0 {
		// The newer copy is lost, and the older one is of before the silence: the member writes it anew.
		if s.Record.Stamp > r.Stamp {
			s.Record.UID = ""
		}
		for i, v := range s.Slices {
			if k := find(found, v.Name); v.Stamp > k.Stamp {
				s.Slices[i].UID = ""
			}
		}
	}
	s.See(e, r, found)
}

// find returns the slice of that name, or the zero value.
func find(all []Slice, name string) Slice {
	for _, v := range all {
		if v.Name == name {
			return v
		}
	}
	return Slice{}
}

// Counted is the import of a Service.
type Counted struct {
	// Noted goes into the import, Ended before anything ends. If only stamps differ, the old note may stay: of a slice
	// with the same content, and of the record unless Due. No stamp may be lower than From.
	Noted
	Due bool // note the stamp of the record before slices are removed: an older record lists other slices
}

// Count decides the import, with the earlier notes.
func (s *Service) Count(n Noted) Counted {
	out := Counted{Noted: Noted{Ended: n.Ended}}
	floor := max(n.Ended, s.Entry.Stamp)
	begin := s.begin(n)
	if s.without&from != 0 {
		begin = 0
	}
	if r := s.Record; r.Stamp != 0 && s.exported(n) && r.Stamp >= begin {
		out.Record, out.From, out.Listed = Record{Stamp: r.Stamp, UID: r.UID, Partial: true}, begin, s.listed(n)
		out.Slices = s.counted(n, begin)
	} else if n.Record.Stamp != 0 && s.without&ended == 0 {
		out.Ended = floor
	}
	for _, v := range n.Slices {
		out.Due = out.Due || find(out.Slices, v.Name).Stamp == 0
	}
	for _, v := range out.Slices {
		stamp := v.Stamp
		if noted := find(n.Slices, v.Name); noted.Stamp != 0 {
			stamp = noted.Stamp
		}
		out.Due = out.Due || stamp > n.Record.Stamp && slices.Contains(s.Record.Slices, v.Name)
	}
	out.Due = out.Due && s.Record.Stamp > n.Record.Stamp
	return out
}

// listed returns the stamp of the inventory that lists the export now, or else of one that was noted, or 0.
func (s *Service) listed(n Noted) Stamp {
	switch {
	case !s.outdated(n) && s.Entry.UID == s.Record.UID:
		return s.Entry.Stamp
	case n.Record.UID == s.Record.UID:
		return n.Listed
	}
	return 0
}

// outdated reports whether the inventory is older than a noted one, which ended something or listed the export. It then
// neither ends nor confirms anything.
func (s *Service) outdated(n Noted) bool {
	return s.Entry.Stamp == 0 || s.Entry.Stamp < max(n.Ended, n.Listed)
}

// begin returns the stamp from which on objects count.
func (s *Service) begin(n Noted) Stamp {
	switch {
	case s.outdated(n) && n.Record.Stamp != 0 && n.Record.UID == s.Record.UID:
		return n.From
	case s.outdated(n):
		return max(n.Ended, s.Entry.Stamp)
	case s.Entry.UID == "":
		return s.Entry.Stamp
	}
	return s.Entry.From
}

// exported reports whether the record belongs to an export that goes on.
func (s *Service) exported(n Noted) bool {
	r := s.Record
	if r.UID == "" {
		return false // of before a silence
	}
	if s.outdated(n) {
		if n.Record.UID == r.UID && n.Listed != 0 {
			return true
		}
	} else if s.Entry.UID == r.UID {
		return true
	}
	// A record that is not listed yet counts as long as it is there.
	return r.Stamp > max(n.Ended, s.Entry.Stamp) && !r.Gone && s.without&newer == 0
}

// counted returns the slices that count, of a record that does.
func (s *Service) counted(n Noted, begin Stamp) (all []Slice) {
	r, missing := s.Record, false
	valid := func(v Slice) bool { return v.Stamp != 0 && v.UID == r.UID && v.Stamp >= begin }
	if !r.Partial && s.Entry.Behind == 0 { // the broker may reject listed slices of an export that is behind
		for _, name := range r.Slices {
			missing = missing || !valid(find(s.Slices, name))
		}
	}
	for _, v := range s.Slices {
		if !valid(v) {
			continue
		}
		imported := find(n.Slices, v.Name).Stamp != 0
		listed := slices.Contains(r.Slices, v.Name)
		switch {
		case listed, r.Partial && imported:
		case v.Stamp > r.Stamp && (r.Partial || !v.Gone) && s.without&newer == 0:
		// An endpoint that moves to a slice that is not seen yet must not be missing meanwhile.
		case missing && imported && (!v.Gone || v.Stamp <= r.Stamp) && s.without&hold == 0:
		default:
			continue
		}
		all = append(all, v)
	}
	return all
}
