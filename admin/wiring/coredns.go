package wiring

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A file is a Corefile, with its known readers.
type file struct {
	place
	work      workload
	container *corev1.Container
	path      string
	subPath   bool
	options   options
	objects   Objects
}

// corefileOf returns the Corefile of a container, at the first of the paths that is in a ConfigMap.
func (o Objects) corefileOf(w workload, c *corev1.Container, paths []string) (file, bool) {
	for _, p := range paths {
		s, ok := w.file(c, p)
		if !ok {
			continue
		}
		at := place{configMap: o.configMap(s.configMap), namespace: w.meta.Namespace, name: s.configMap, key: s.key}
		if at.exists() {
			return file{place: at, work: w, container: c, path: p, subPath: s.subPath, objects: o}, true
		}
	}
	return file{}, false
}

// coreDNS wires a CoreDNS (docs/spec/dns-wiring.md 3).
func (r *Resolver) coreDNS(f file, w Desired) {
	r.Evidence = append(r.Evidence, fmt.Sprintf("%s reads its Corefile from %s", f.work, f.place))
	standard := w.standardBlock(f.options)
	m, err := cutBlock(f.text())
	if err != nil {
		r.setManual(RouteUnknown, fmt.Sprintf("%s is not understood: %v", f.place, err), standard)
		return
	}
	c, err := parseCorefile(m.before + m.after)
	if err != nil {
		r.setManual(RouteUnknown, fmt.Sprintf("%s is not understood: %v", f.place, err), standard)
		return
	}
	r.Bound = Bound(f.text())
	r.Restart = f.subPath || !c.has("reload")
	r.Diverted = c.diverted(w.Zone)
	at := c.listeners()
	custom := r.readImports(f, &c, w)
	taken := c.serving(w)
	if taken.what == "" {
		defer r.noteUnread(c.unreadParts(f, w))
	}
	if custom != nil && !m.found {
		r.Kind, f.place = Custom, *custom
		if m, err = cutBlock(f.text()); taken.what == "" && (err != nil || m.before+m.after != "") {
			r.setManual(RouteNone, fmt.Sprintf("%s has a text that is not ours", f.place), standard)
			return
		}
	}
	if len(at) == 0 && taken.what == "" {
		r.setManual(RouteNone, fmt.Sprintf("%s has no server block for the root zone, and none with kubernetes", f.place), standard)
		return
	}
	if m.found {
		r.compareBlock(f.place, m, w, w.block(at, f.options))
		if taken.what != "" {
			r.Warnings = append(r.Warnings, taken.what+", beside our block")
			if r.Route == RouteNone { // our block is for another zone
				r.Route = RouteOther
			}
		}
		return
	}
	if taken.what != "" {
		r.setTaken(taken)
		return
	}
	if why := f.obstacle(); why != "" {
		r.cannotEdit(why, f, c, w)
		return
	}
	r.State, r.Route = Missing, RouteNone
	if by := f.updater(); by != "" {
		r.Warnings = append(r.Warnings, fmt.Sprintf(
			"%s also writes %s: its next update may revert the edit, unless its configuration has the block, too", by, f.place))
	}
	if w.writable() {
		r.Apply = f.set(markedBlock(w.block(at, f.options)) + f.text())
	}
}

// cannotEdit describes the alternative to an edit.
func (r *Resolver) cannotEdit(why string, f file, c corefile, w Desired) {
	if chart := f.configMap.GetLabels()["helm.sh/chart"]; manager(f.configMap) == "Helm" &&
		strings.Contains(chart, "coredns") {
		r.Kind = Helm
		r.Evidence = append(r.Evidence, "it is of the Helm chart "+chart)
		r.setManual(RouteNone, fmt.Sprintf("%s: upgrade its release %s with these values", why,
			cmp.Or(f.configMap.GetAnnotations()["meta.helm.sh/release-name"],
				f.configMap.GetLabels()["app.kubernetes.io/instance"])), c.values(w, f.options))
		return
	}
	r.setManual(RouteNone, why, w.block(c.listeners(), f.options))
}

// compareBlock compares our block with the one that is wanted.
func (r *Resolver) compareBlock(p place, m markedText, w Desired, want string) {
	r.Evidence = append(r.Evidence, p.String()+" has our block")
	inside, err := parseCorefile(m.content)
	found := inside.serving(w)
	route := RouteElsewhere
	switch {
	case err != nil:
		route = RouteUnknown
	case found.what == "":
		route = RouteNone
	case found.wanted:
		route = RouteWanted
	}
	if r.Edited = !m.intact; r.Edited {
		found.what = "our block in " + p.String() + " was changed by hand"
		if r.setTaken(found); route == RouteUnknown || route == RouteNone {
			r.Route = route
		}
		return
	}
	r.InProcess, r.Route = found.here, route
	if r.Undo = p.set(m.before + m.after); r.Kind == Custom {
		r.Undo = p.remove()
	}
	if r.State = Wired; m.content == want {
		r.Route = RouteWanted
		return
	}
	if r.State = Outdated; w.writable() {
		r.Apply = p.set(m.before + markedBlock(want) + m.after)
	}
}

// noteUnread notes that text may have the zone, which was not read.
func (r *Resolver) noteUnread(unread []string) {
	if len(unread) > 0 && r.Route == RouteNone {
		r.Route = RouteUnknown
		r.Warnings = append(r.Warnings, unread...)
	}
}

// unreadParts returns what of a Corefile is not looked at and may have the zone: imports and snippets in server blocks,
// and a zone above.
func (c corefile) unreadParts(f file, w Desired) (all []string) {
	all = c.skipped
	for _, s := range c.snippets {
		if s.mentionsZone(w.Zone) {
			all = append(all, fmt.Sprintf("the snippet %s mentions the zone (line %d)", s.words[0], s.line))
		}
	}
	for _, b := range c.blocks {
		for _, k := range b.keys {
			if k.zone != "." && strings.HasSuffix(w.Zone, "."+k.zone) {
				all = append(all, fmt.Sprintf("the server block for %s has the zone, too (line %d)", k.zone, b.line))
			}
		}
		for _, d := range b.body {
			if d.words[0] != "import" || len(d.words) < 2 || slices.ContainsFunc(c.snippets,
				func(s directive) bool { return s.words[0] == "("+d.words[1]+")" }) {
				continue
			}
			texts, ok := f.imports(d.words[1])
			if !ok || slices.ContainsFunc(texts, func(text string) bool { return mentionsZone(text, w.Zone) }) {
				all = append(all, fmt.Sprintf("what line %d imports may have the zone, and was not read", d.line))
			}
		}
	}
	return all
}

func mentionsZone(text, zone string) bool { return strings.Contains(strings.ToLower(text), zone) }

func (d directive) mentionsZone(zone string) bool {
	return slices.ContainsFunc(d.words, func(word string) bool { return mentionsZone(word, zone) }) ||
		slices.ContainsFunc(d.body, func(inner directive) bool { return inner.mentionsZone(zone) })
}

// imports returns the texts that a pattern of an import names, which is known if they come from a ConfigMap.
func (f file) imports(pattern string) (texts []string, ok bool) {
	s, ok := f.work.file(f.container, f.absolute(pattern))
	if !ok {
		return nil, false
	}
	return slices.Collect(maps.Values(matching(f.objects.configMap(s.configMap), s.key))), true
}

// matching returns the data of a ConfigMap, which may be nil, with keys that match a pattern.
func matching(configMap *unstructured.Unstructured, pattern string) map[string]string {
	if configMap == nil {
		return nil
	}
	data, _, _ := unstructured.NestedStringMap(configMap.Object, "data")
	maps.DeleteFunc(data, func(key, _ string) bool {
		match, err := path.Match(pattern, key)
		return err != nil || !match
	})
	return data
}

// absolute returns where a file is that the Corefile names.
func (f file) absolute(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(path.Dir(f.path), name)
}

// readImports reads what the Corefile imports outside of its blocks into c. It returns the place of a block of ours, if
// the ConfigMap that a pattern names is made for such.
func (r *Resolver) readImports(f file, c *corefile, w Desired) *place {
	var custom *place
	for _, pattern := range c.imports {
		s, ok := f.work.file(f.container, f.absolute(pattern))
		if !ok {
			c.skipped = append(c.skipped, fmt.Sprintf("its Corefile imports %s, which is not in a ConfigMap and was not read",
				pattern))
			continue
		}
		p := place{configMap: f.objects.configMap(s.configMap), namespace: f.namespace, name: s.configMap}
		if strings.Count(s.key, "*") == 1 && custom == nil {
			own := p
			own.key = strings.Replace(s.key, "*", "clusterset", 1)
			custom = &own
			r.Evidence = append(r.Evidence, fmt.Sprintf("its Corefile imports %s from ConfigMap %s", pattern, s.configMap))
		}
		data := matching(p.configMap, s.key)
		for _, key := range slices.Sorted(maps.Keys(data)) {
			var more corefile
			m, err := cutBlock(data[key])
			if err == nil {
				more, err = parseCorefile(m.before + m.after)
			}
			if err != nil {
				text := fmt.Sprintf("ConfigMap %s, key %s is not understood: %v", s.configMap, key, err)
				if mentionsZone(data[key], w.Zone) {
					c.skipped = append(c.skipped, text)
				} else {
					r.Warnings = append(r.Warnings, text)
				}
				continue
			}
			c.blocks = append(c.blocks, more.blocks...)
		}
	}
	return custom
}
