package importer

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset/controller/merge"
)

// withoutKept removes from c the writes that are in vain. All that is left, but for the status, has to be written.
func (w *writer) withoutKept(c merge.Changes) merge.Changes {
	w.slicesWithoutKept(&c)
	if o := c.Update.Import; o != nil && w.requests.kept(o) {
		c.Update.Import = nil
	}
	if w.failure != nil {
		c.Create.Service, c.Update.Service, c.Delete.Service, c.ServiceStatus = nil, nil, nil, nil
	}
	if o := c.Update.Service; o != nil && w.requests.kept(o) {
		c.Update.Service = nil
	}
	if o := c.Create.Service; o != nil {
		w.requests.note(nameOf(o), fingerprint(o))
	}
	return c
}

// slicesWithoutKept is [writer.withoutKept] for slices. What others have of the endpoints of those that are left out stays there (docs/spec/controller.md 5.5).
func (w *writer) slicesWithoutKept(c *merge.Changes) {
	var leftOut []*discoveryv1.EndpointSlice
	kept := func(o *discoveryv1.EndpointSlice) bool {
		if !w.requests.kept(o) {
			return false
		}
		leftOut = append(leftOut, o)
		return true
	}
	missing := func() []*discoveryv1.EndpointSlice { return merge.Unwritten(leftOut, w.now.slice) }
	c.Create.Slices = slices.DeleteFunc(c.Create.Slices, kept)
	var updates []*discoveryv1.EndpointSlice
	for _, o := range merge.LosingLast(c.Update.Slices, w.now.slice) {
		existing := w.now.slice(o.Name)
		retained := merge.Retained(o, existing, missing())
		if (retained == o || differs(retained, existing)) && !kept(retained) {
			updates = append(updates, retained)
		}
	}
	deleted, trimmed := merge.Retired(c.Delete.Slices, missing())
	c.Delete.Slices, c.Update.Slices = deleted, append(updates, slices.DeleteFunc(trimmed, kept)...)
}

// heldBack removes from c what hides a slice in vain: see [visibility.heldBack]. A later comparison asks for it.
func (w *writer) heldBack(c merge.Changes) merge.Changes {
	write, held := w.visibility.heldBack(c, w.now, w.rejects)
	for _, o := range held {
		w.requests.drop(nameOf(o))
	}
	c.Update.Slices = write
	return c
}
