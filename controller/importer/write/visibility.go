package write

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset/controller/desired"
)

// A visibility orders the updates of slices with hidden ones among them, so that proxies have an endpoint at any time
// (docs/spec/selection.md 4). The zero value belongs to an import without selected clusters.
//
// The effect of an update on proxies decides when it is written:
//
//	              | shows nothing | shows something
//	--------------+---------------+------------------------------------------------------------------------
//	hides nothing | other         | show
//	hides         | hide          | both: first as [visible] says, which hides nothing; the next comparison
//	something     |               | asks for the update again, which is then a hide
//
//	show, both ---> deletions, creations, other, deletions of old slices ---> hide
//
// A hide also waits until proxies see all that they should. That wait may be in vain: a slice is rejected as invalid,
// its name is taken, or a webhook changes it. Then others stay visible for as long.
type visibility struct {
	chosen  []*discoveryv1.EndpointSlice          // the desired slices, those of clusters that are not in use hidden
	offered map[string][]discoveryv1.EndpointPort // their ports by name of the slice, hidden or not
}

// visibilityOf returns the visibility of desired slices before any is hidden.
func visibilityOf(wanted []*discoveryv1.EndpointSlice) visibility {
	v := visibility{chosen: wanted, offered: make(map[string][]discoveryv1.EndpointPort, len(wanted))}
	for _, e := range wanted {
		v.offered[e.Name] = slices.Clone(e.Ports)
	}
	return v
}

// A sequence has updates of slices by when they are written: see [visibility].
type sequence struct {
	show, both, other, hide []*discoveryv1.EndpointSlice
}

// sequence orders updates. isFutile reports whether it is known that the API server does not keep an update as it is
// until others are shown: one that also shows something is then written as it should be in the end.
func (v visibility) sequence(updates []*discoveryv1.EndpointSlice, os *objects,
	isFutile func(*discoveryv1.EndpointSlice) bool) (s sequence) {
	if len(v.chosen) == 0 {
		return sequence{other: updates}
	}
	for _, o := range updates {
		existing := os.slice(o.Name)
		switch shows, hides := shows(o, existing), hides(o, existing); {
		case shows && hides && isFutile(o):
			s.other = append(s.other, o)
		case shows && hides && differs(v.intermediate(o, os), existing):
			s.both = append(s.both, o)
		case hides:
			s.hide = append(s.hide, o)
		case shows:
			s.show = append(s.show, o)
		default:
			s.other = append(s.other, o)
		}
	}
	return s
}

// heldBack returns the updates that wait: they hide something while proxies do not see all that they should, and no
// change is coming that shows it.
func (v visibility) heldBack(c desired.Changes, os *objects,
	isFutile func(*discoveryv1.EndpointSlice) bool) (held []*discoveryv1.EndpointSlice) {
	coming := namesIn(slices.Concat(c.Create.Slices, c.Update.Slices))
	if !slices.ContainsFunc(v.chosen, func(o *discoveryv1.EndpointSlice) bool {
		return isMissing(o, os) && !coming[o.Name]
	}) {
		return nil
	}
	for _, o := range c.Update.Slices {
		existing := os.slice(o.Name)
		if hides(o, existing) && (isFutile(o) || !differs(v.intermediate(o, os), existing)) {
			held = append(held, o)
		}
	}
	return held
}

// complete reports whether proxies see all that they should.
func (v visibility) complete(os *objects) bool {
	return !slices.ContainsFunc(v.chosen, func(o *discoveryv1.EndpointSlice) bool { return isMissing(o, os) })
}

// intermediate returns an update as it is until others are shown: see [visible].
func (v visibility) intermediate(o *discoveryv1.EndpointSlice, os *objects) *discoveryv1.EndpointSlice {
	return visible(o, os.slice(o.Name), v.offered[o.Name])
}

// isMissing reports whether proxies do not see all that they should of a desired slice.
func isMissing(o *discoveryv1.EndpointSlice, os *objects) bool {
	e := os.slice(o.Name)
	return !desired.IsHidden(o) && (e == nil || !desired.IsImported(e) || shows(o, e))
}

// shows reports whether an update makes something of a slice visible to proxies that was not.
func shows(update, existing *discoveryv1.EndpointSlice) bool {
	return !desired.IsHidden(update) && (desired.IsHidden(existing) || lacksPort(existing, update))
}

// hides reports whether an update hides something of a slice that proxies see. It may show something else of it.
func hides(update, existing *discoveryv1.EndpointSlice) bool {
	return !desired.IsHidden(existing) && (desired.IsHidden(update) || lacksPort(update, existing))
}

// lacksPort reports whether a slice lacks a port that another one has.
func lacksPort(e, other *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(other.Ports, func(p discoveryv1.EndpointPort) bool {
		return !desired.HasPort(e, desired.PortOf(other, p))
	})
}

// differs reports whether an update has anything to write.
func differs(update, existing *discoveryv1.EndpointSlice) bool {
	c := desired.Diff(desired.Objects{Slices: []*discoveryv1.EndpointSlice{update}},
		desired.Objects{Slices: []*discoveryv1.EndpointSlice{existing}})
	return !c.Empty()
}

// visible returns an update of a slice that proxies see, without what it hides: all that it shows, and what they see
// now of the ports that its cluster offers, under any name. A slice has each name once: a port that changes its
// protocol is hidden as the new one is shown.
func visible(update, existing *discoveryv1.EndpointSlice,
	offered []discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	v := update.DeepCopy()
	desired.Show(v)
	v.Ports = slices.DeleteFunc(slices.Clone(existing.Ports), func(p discoveryv1.EndpointPort) bool {
		key := desired.PortOf(existing, p)
		clashes := slices.ContainsFunc(update.Ports, func(q discoveryv1.EndpointPort) bool {
			return desired.PortOf(update, q) != key && desired.PortOf(update, q).Name == key.Name
		})
		return clashes || !slices.ContainsFunc(offered, func(q discoveryv1.EndpointPort) bool {
			return desired.PortOf(update, q).Protocol == key.Protocol && sameNumber(q, p)
		})
	})
	for _, p := range update.Ports {
		same := func(q discoveryv1.EndpointPort) bool { return desired.PortOf(existing, q) == desired.PortOf(update, p) }
		if at := slices.IndexFunc(v.Ports, same); at >= 0 {
			v.Ports[at] = p
		} else if !desired.IsHidden(update) { // else it has all ports, and shows no others
			v.Ports = append(v.Ports, p)
		}
	}
	return v
}

// sameNumber reports whether two ports have equal numbers, or both no number.
func sameNumber(p, q discoveryv1.EndpointPort) bool {
	return p.Port == nil && q.Port == nil || p.Port != nil && q.Port != nil && *p.Port == *q.Port
}
