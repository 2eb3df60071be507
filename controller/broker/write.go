package broker

import (
	"context"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// ApplyRecord makes r the export record of its service in the namespace of this member, with a new stamp, for any name
// and namespace in r. A UID or a resource version in r is a precondition.
func (b *Broker) ApplyRecord(ctx context.Context, r *v1alpha1.ExportedService) error {
	r = r.DeepCopy()
	r.Namespace, r.Name = b.cfg.Namespace, broker.RecordName(r.Spec.Namespace, r.Spec.Name)
	r.Spec.Stamp = int64(b.stamps.next())
	if err := b.client.Apply(ctx, r, wellknown.ManagerExporter); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	b.stamps.see(objectID{kindRecord, r.Name}, protocol.Stamp(r.Spec.Stamp))
	b.ownRecords.Wrote(r)
	return nil
}

// DeleteRecord removes the export record with the name of r from the namespace of this member, if it has the UID of r.
func (b *Broker) DeleteRecord(ctx context.Context, r *v1alpha1.ExportedService) error {
	r = r.DeepCopy()
	r.Namespace = b.cfg.Namespace
	if err := b.client.Delete(ctx, r); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	b.stamps.forget(objectID{kindRecord, r.Name})
	b.ownRecords.Deleted(r)
	return nil
}

// ApplySlice makes s a slice in the namespace of this member, with a new stamp. A UID or a resource version in s is a
// precondition. It returns what the broker made of s, which its admission may have changed, and which nothing may
// change.
func (b *Broker) ApplySlice(ctx context.Context, s *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	s = s.DeepCopy()
	s.Namespace = b.cfg.Namespace
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, broker.AnnotationStamp, b.stamps.next().String())
	if err := b.client.Apply(ctx, s, wellknown.ManagerExporter); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	b.stamps.see(objectID{kindSlice, s.Name}, StampOf(s))
	b.ownSlices.Wrote(s)
	return s, nil
}

// DeleteSlice removes the slice with the name of s from the namespace of this member, if it has the UID of s.
func (b *Broker) DeleteSlice(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	s = s.DeepCopy()
	s.Namespace = b.cfg.Namespace
	if err := b.client.Delete(ctx, s); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	b.stamps.forget(objectID{kindSlice, s.Name})
	b.ownSlices.Deleted(s)
	return nil
}

// ApplyInventory makes i a part of the inventory of this member, with a new stamp. A UID or a resource version in i is
// a precondition.
func (b *Broker) ApplyInventory(ctx context.Context, i *v1alpha1.Inventory) error {
	i = i.DeepCopy()
	i.Namespace, i.Spec.Stamp = b.cfg.Namespace, int64(b.stamps.next())
	if err := b.client.Apply(ctx, i, wellknown.ManagerExporter); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	b.ownInventories.Wrote(i)
	b.inventoryChanged(nil, &i, false) // its event may come later, and is no change then
	return nil
}

// SeeStamp raises later stamps above a stamp of an earlier process.
func (b *Broker) SeeStamp(s protocol.Stamp) { b.stamps.clock.See(s) }

// Stamp returns a stamp that is higher than all before.
func (b *Broker) Stamp() protocol.Stamp { return b.stamps.next() }
