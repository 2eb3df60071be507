package identity

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// A Memory keeps a [wellknown.Noted] in a Lease of this cluster (docs/spec/controller.md 7.4). [Heartbeat] saves it.
type Memory struct {
	note   member.LeaseNote
	broker types.UID // that was joined
	saved  int       // changes, as last saved

	log     logging.Logger
	failing logging.Failure[bool]
}

// LoadMemory reads the note. namespace is the controller's.
func LoadMemory(ctx context.Context, m *member.Cluster, log logging.Logger, namespace string,
	brokerUID types.UID) (*Memory, wellknown.Noted, error) {
	memory := &Memory{
		note: member.LeaseNote{Cluster: m, Namespace: namespace, Lease: wellknown.MembersLease,
			Key: wellknown.AnnotationMembers},
		broker: brokerUID, log: log,
	}
	text, err := memory.note.Await(ctx, log)
	if apierrors.IsForbidden(err) { // rights of before this note
		log.Errorf("note of the members: %v; going on without it", err)
	} else if err != nil {
		return nil, wellknown.Noted{}, err
	}
	return memory, wellknown.ParseNoted(text, brokerUID), nil
}

// save writes the note if it changed, and logs a failure. The heartbeat does not depend on it: the note matters only
// after a restore and a restart. Tests have a nil Memory.
func (m *Memory) save(ctx context.Context, ms *broker.Members) {
	if m == nil || m.broker == "" || ms.NotedChanges() == m.saved {
		return
	}
	changes := ms.NotedChanges()
	err := m.note.Save(ctx, ms.Noted().String())
	if m.failing.Changed(err != nil, err) && err != nil && ctx.Err() == nil {
		m.log.Warningf("note of the members: %v; trying again", err)
	}
	if err == nil {
		m.saved = changes
	}
}
