package controller

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/controller/queue"
)

// views are the merged imports that this member publishes in its broker namespace, of those services of which it has the
// oldest export (section 2, "aggregate_view"). They are for people to read: nobody imports them, so nobody watches them.
type views struct {
	s *session

	mu        sync.Mutex
	listed    bool
	published map[types.NamespacedName]*mcsv1beta1.ServiceImport // as they were listed, or written since
}

func newViews(s *session) *views {
	return &views{s: s, published: make(map[types.NamespacedName]*mcsv1beta1.ServiceImport)}
}

// publish makes the broker have the view of a service, or none. One service is published by one goroutine at a time.
func (v *views) publish(ctx context.Context, svc types.NamespacedName) error {
	if err := v.list(ctx); err != nil {
		return err
	}
	v.mu.Lock()
	got := v.published[svc]
	v.mu.Unlock()
	want := v.of(svc)
	switch {
	case want == nil && got == nil:
		return nil
	case want == nil:
		if err := v.s.broker.DeleteImport(ctx, got); err != nil {
			return err
		}
	case got == nil || !sameView(want, got):
		// Part of it may be there even if that fails.
		v.note(svc, &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: want.Namespace, Name: want.Name}})
		if err := v.s.broker.ApplyImport(ctx, want); err != nil {
			return err
		}
	}
	v.note(svc, want)
	return nil
}

// list reads what earlier instances left behind, and has those services looked at. While the views are off it is tried,
// without the right to read them nobody has written any.
func (v *views) list(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.listed {
		return nil
	}
	left, err := v.s.broker.OwnImports(ctx)
	if err != nil && v.s.cfg.AggregateView {
		return err
	}
	v.listed = true
	for svc, imp := range left {
		v.published[svc] = imp
		v.s.exports.Add(svc, queue.Backlog)
	}
	return nil
}

// note says what the broker has of a service, nil if nothing.
func (v *views) note(svc types.NamespacedName, imp *mcsv1beta1.ServiceImport) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.published[svc] = imp; imp == nil {
		delete(v.published, svc)
	}
}

// of returns the merged import of a service, without what each member finds for itself: derived addresses and conditions. It
// is nil if it is not for this cluster to publish.
func (v *views) of(svc types.NamespacedName) *mcsv1beta1.ServiceImport {
	s := v.s
	if !s.cfg.AggregateView {
		return nil
	}
	r, _ := s.exported(svc)
	if r.Record == nil {
		return nil
	}
	merged := merge.Merge(svc, s.recordsWith(svc, r.Record), s.mergeOptions(svc))
	if merged.Oldest != s.member.id {
		return nil
	}
	return merged.Import
}

func sameView(want, got *mcsv1beta1.ServiceImport) bool {
	same := equality.Semantic.DeepEqual
	return same(want.Labels, got.Labels) && same(want.Annotations, got.Annotations) &&
		same(want.Spec, got.Spec) && same(want.Status.Clusters, got.Status.Clusters)
}
