package wiring

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// A serving is how a Corefile treats a zone without our block.
type serving struct {
	what   string // a clause; "" if the zone is not mentioned
	wanted bool   // it is as desired
	here   bool   // by the plugin clusterset in this process
}

// serving finds what serves or forwards the zone, apart from our block.
func (c corefile) serving(w Desired) serving {
	for _, b := range c.blocks {
		if s := b.serving(w); s.what != "" {
			return s
		}
	}
	return serving{}
}

func (b serverBlock) serving(w Desired) serving {
	own := b.serves(w.Zone)
	for _, d := range b.body {
		names := slices.ContainsFunc(d.words[1:], func(word string) bool { return sameName(word, w.Zone) })
		switch {
		case d.words[0] == "clusterset" && (names || own && len(d.words) == 1):
			return serving{what: fmt.Sprintf("the plugin clusterset serves the zone in this process (line %d)", d.line),
				wanted: true, here: true}
		case d.words[0] == "kubernetes" && (names || own && len(d.words) == 1) &&
			serverBlock{body: d.body}.find("multicluster") != nil:
			return serving{what: fmt.Sprintf("the plugin kubernetes serves the zone, by its option multicluster (line %d)",
				d.line)}
		case d.words[0] == "forward" && len(d.words) > 2 && (names && sameName(d.words[1], w.Zone) || own):
			to := d.words[2:]
			return serving{
				what: fmt.Sprintf("what is not managed by clusterset forwards the zone to %s (line %d)", strings.Join(to, " "),
					d.line),
				wanted: !w.InProcess && sameAddresses(to, w),
			}
		}
	}
	if own {
		return serving{what: fmt.Sprintf("there is a server block for the zone already (line %d)", b.line)}
	}
	return serving{}
}

// diverted returns the server blocks of deeper zones, and the exceptions of a forward for the zone.
func (c corefile) diverted(zone string) (all []string) {
	for _, b := range c.blocks {
		for _, k := range b.keys {
			if strings.HasSuffix(k.zone, "."+zone) {
				all = append(all, fmt.Sprintf("the server block of %s takes its names (line %d)", k.zone, b.line))
			}
		}
		for _, d := range b.body {
			if d.words[0] != "forward" || len(d.words) < 2 || !b.serves(zone) && !sameName(d.words[1], zone) {
				continue
			}
			for _, option := range d.body {
				for _, word := range option.words[1:] {
					if name := strings.TrimSuffix(strings.ToLower(word), "."); option.words[0] == "except" &&
						(name == zone || strings.HasSuffix(name, "."+zone)) {
						all = append(all, fmt.Sprintf("forward excepts %s (line %d)", name, option.line))
					}
				}
			}
		}
	}
	return all
}

// ServedZones returns the zones that a Corefile serves by the plugin clusterset, and nil for a text that is not
// understood.
func ServedZones(text string) (zones []string) {
	c, err := parseCorefile(text)
	if err != nil {
		return nil
	}
	for _, b := range c.blocks {
		d := b.find("clusterset")
		switch {
		case d == nil:
		case len(d.words) > 1:
			for _, word := range d.words[1:] {
				zones = append(zones, strings.TrimSuffix(strings.ToLower(word), "."))
			}
		default:
			for _, k := range b.keys {
				zones = append(zones, k.zone)
			}
		}
	}
	return zones
}

// Bound reports whether a server block of a Corefile binds addresses without those of loopback: it rejects connections
// that the kubelet forwards.
func Bound(text string) bool {
	c, err := parseCorefile(text)
	return err == nil && slices.ContainsFunc(c.blocks, func(b serverBlock) bool {
		bind := b.find("bind")
		return bind != nil && !slices.ContainsFunc(bind.words[1:], func(word string) bool {
			a, err := netip.ParseAddr(word)
			return word == "lo" || err == nil && (a.IsLoopback() || a.IsUnspecified())
		})
	})
}

func sameName(word, zone string) bool { return strings.TrimSuffix(strings.ToLower(word), ".") == zone }

// sameAddresses reports whether queries go to wanted addresses only.
func sameAddresses(to []string, w Desired) bool {
	wanted := w.addresses()
	return len(w.Addresses) > 0 && len(to) > 0 && !slices.ContainsFunc(to, func(address string) bool {
		for _, a := range wanted {
			if address == a || address == a+":53" || address == "["+a+"]:53" || address == "dns://"+a {
				return false
			}
		}
		return true
	})
}

// route is that of an entry of ours, with the zone or another one, and its addresses.
func (w Desired) route(zone bool, to []string) Route {
	switch {
	case !zone:
		return RouteNone
	case sameAddresses(to, w):
		return RouteWanted
	}
	return RouteElsewhere
}

// setTaken sets the state for a zone that is served or forwarded already.
func (r *Resolver) setTaken(s serving) {
	r.InProcess, r.Route = s.here, RouteOther
	if s.wanted {
		r.State, r.Route = Wired, RouteWanted
		r.Evidence = append(r.Evidence, s.what)
		return
	}
	r.State, r.Reason = Taken, s.what
}
