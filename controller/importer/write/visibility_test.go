package write

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/desired"
)

// slicesOf reads imported slices from a text such as "x=ab (y)=c": x has the ports a and b, y is hidden and has the
// port c.
func slicesOf(text string) (all []*discoveryv1.EndpointSlice) {
	for _, field := range strings.Fields(text) {
		name, ports, _ := strings.Cut(field, "=")
		e := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Name: strings.Trim(name, "()"), Labels: map[string]string{discoveryv1.LabelManagedBy: apibroker.ManagedBy},
		}}
		if e.Name != name {
			desired.Hide(e)
		}
		for _, port := range strings.Split(ports, "") {
			e.Ports = append(e.Ports, discoveryv1.EndpointPort{Name: &port})
		}
		all = append(all, e)
	}
	return all
}

// namesOf returns the names of slices, after the name of the operation; "" without slices.
func namesOf(what string, all []*discoveryv1.EndpointSlice) string {
	for _, e := range all {
		what += " " + e.Name
	}
	if len(all) == 0 {
		return ""
	}
	return what + ". "
}

// docs/spec/selection.md 4: the order of writes of slices, and the writes that wait.
func TestVisibilityOrdersUpdates(t *testing.T) {
	for _, tt := range []struct {
		name            string
		desired         string
		offered         string // desired before anything is hidden; the same if empty
		existing, taken string // taken are names of slices that are not ours
		rejects         string // names of slices that are rejected while they show all
		complete        bool   // proxies see all that they should
		want            string
	}{
		{name: "nothing changes", existing: "x=a (y)=a", desired: "x=a (y)=a", complete: true},
		{name: "fail over", existing: "x=a (y)=a", desired: "(x)=a y=a", want: "show y. hide x."},
		{name: "a port each", existing: "x=ab (y)=ab", desired: "x=a y=b", offered: "x=ab y=ab", want: "show y. hide x."},
		{name: "a port comes into use as another one no longer is", existing: "x=a y=b", desired: "x=b y=a",
			offered: "x=ab y=ab", want: "both x y."},
		{name: "all of that is shown", existing: "x=ab y=ab", desired: "x=b y=a", offered: "x=ab y=ab", complete: true,
			want: "hide x y."},
		{name: "what shows all is rejected", existing: "x=a y=b", desired: "x=b y=a", offered: "x=ab y=ab", rejects: "x",
			want: "both y. other x."},
		{name: "what is no longer offered goes at once", existing: "x=a", desired: "x=b", want: "both x."},
		{name: "a new slice is shown", existing: "x=a", desired: "(x)=a y=a", want: "create y. hide x."},
		{name: "the name of the new slice is taken", existing: "x=a", desired: "(x)=a y=a", taken: "y", want: "held x."},
		{name: "that holds back what hides alone", existing: "x=a (z)=a", desired: "(x)=a y=a z=a", taken: "y",
			want: "held x. show z."},
		{name: "and what hides more once all is shown", existing: "x=ab", desired: "x=b y=a", offered: "x=ab y=a",
			taken: "y", want: "held x."},
		{name: "or if that is rejected", existing: "x=a", desired: "x=b y=a", offered: "x=ab y=a", taken: "y", rejects: "x",
			want: "held x."},
		{name: "but not what shows, too", existing: "x=a", desired: "x=b y=a", offered: "x=ab y=a", taken: "y",
			want: "both x."},
		{name: "nor what is hidden before and after", existing: "(x)=a", desired: "(x)=b y=a", taken: "y", want: "other x."},
	} {
		now := newObjects(desired.Objects{Slices: slicesOf(tt.existing)})
		for _, name := range strings.Fields(tt.taken) {
			now.set(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		wanted := slicesOf(tt.desired)
		v := visibilityOf(wanted)
		for _, e := range slicesOf(tt.offered) {
			v.offered[e.Name] = e.Ports
		}
		isFutile := func(o *discoveryv1.EndpointSlice) bool { return slices.Contains(strings.Fields(tt.rejects), o.Name) }
		c := desired.Diff(desired.Objects{Slices: wanted}, now.Objects)
		held := v.heldBack(c, now, isFutile)
		s := v.sequence(without(c.Update.Slices, held), now, isFutile)
		got := namesOf("held", held) + namesOf("show", s.show) + namesOf("both", s.both) + namesOf("create",
			c.Create.Slices) +
			namesOf("other", s.other) + namesOf("hide", s.hide)
		if strings.TrimSpace(got) != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if got := v.complete(now); got != tt.complete {
			t.Errorf("%s: complete = %t, want %t", tt.name, got, tt.complete)
		}
		if !v.complete(newObjects(desired.Objects{Slices: wanted})) {
			t.Errorf("%s: not complete with all that is desired", tt.name)
		}
	}
	if s := (visibility{}).sequence(slicesOf("x=a (y)=a"), newObjects(desired.Objects{Slices: slicesOf("(x)=a y=a")}),
		nil); len(s.other) != 2 {
		t.Errorf("without a selection: %+v, want all together", s)
	}
}

// docs/spec/selection.md 4: what an update shows and hides is a matter of its ports, not of their number.
func TestShowsAndHides(t *testing.T) {
	of := func(hidden bool, ports ...string) *discoveryv1.EndpointSlice {
		e := &discoveryv1.EndpointSlice{}
		e.Labels = map[string]string{}
		for _, name := range ports {
			e.Ports = append(e.Ports, discoveryv1.EndpointPort{Name: &name})
		}
		if hidden {
			desired.Hide(e)
		}
		return e
	}
	const hidden, seen = true, false
	for _, tt := range []struct {
		name             string
		update, existing *discoveryv1.EndpointSlice
		shows, hides     bool
		visible          string // ports, if proxies see some now
	}{
		{"nothing", of(seen, "a"), of(seen, "a"), false, false, "a"},
		{"a port more", of(seen, "a", "b"), of(seen, "a"), true, false, "ab"},
		{"a port less", of(seen, "b"), of(seen, "a", "b"), false, true, "ab"},
		{"another port", of(seen, "b"), of(seen, "a"), true, true, "ab"},
		{"all is hidden", of(hidden, "a", "b"), of(seen, "b"), false, true, "b"},
		{"all is shown", of(seen, "a"), of(hidden, "a"), true, false, ""},
		{"some is shown", of(seen, "a"), of(hidden, "a", "b"), true, false, ""},
		{"hidden before and after", of(hidden, "a", "b"), of(hidden, "a"), false, false, ""},
	} {
		if s, h := shows(tt.update, tt.existing), hides(tt.update, tt.existing); s != tt.shows || h != tt.hides {
			t.Errorf("%s: shows %t, hides %t; want %t, %t", tt.name, s, h, tt.shows, tt.hides)
		}
		var got string
		v := visible(tt.update, tt.existing, slices.Concat(tt.update.Ports, tt.existing.Ports))
		for _, p := range v.Ports {
			got += *p.Name
		}
		if tt.visible != "" && (got != tt.visible || desired.IsHidden(v)) {
			t.Errorf("%s: ports %q, hidden %t; want %q until all others are shown", tt.name, got, desired.IsHidden(v),
				tt.visible)
		}
	}
}

// docs/spec/selection.md 4: what a cluster no longer offers goes at once, such as a port with another protocol, beside
// which the API server takes no port of the same name.
func TestVisibleIsOffered(t *testing.T) {
	of := func(protocols ...corev1.Protocol) *discoveryv1.EndpointSlice {
		e := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
		for _, p := range protocols {
			e.Ports = append(e.Ports, discoveryv1.EndpointPort{Name: new("dns"), Protocol: &p})
		}
		return e
	}
	update, existing := of(corev1.ProtocolUDP), of(corev1.ProtocolTCP)
	if !shows(update, existing) || !hides(update, existing) {
		t.Fatal("a port with another protocol is not another port")
	}
	if v := visible(update, existing, update.Ports); len(v.Ports) != 1 || *v.Ports[0].Protocol != corev1.ProtocolUDP {
		t.Errorf("ports = %+v, want that of the update alone", v.Ports)
	}
	if v := visible(of(), existing, nil); len(v.Ports) != 0 {
		t.Errorf("ports = %+v, want none", v.Ports)
	}
	renamed := of(corev1.ProtocolTCP)
	renamed.Ports[0].Name = new("domain")
	if v := visible(renamed, existing, renamed.Ports); len(v.Ports) != 2 {
		t.Errorf("ports = %+v, want that of both names", v.Ports)
	}
}
