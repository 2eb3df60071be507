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

// A Memory keeps what must be known of the clusters of the clusterset in a Lease of this cluster (docs/spec/controller.md 7.4). [Heartbeat] saves it.
type Memory struct {
	note   member.LeaseNote
	broker types.UID // that was joined
	saved  int       // changes, as last saved

	log     logging.Logger
	failing logging.Failure[bool]
}

// LoadMemory reads the note. namespace is that of the controller.
func LoadMemory(ctx context.Context, m *member.Cluster, log logging.Logger, namespace string, of types.UID) (*Memory, wellknown.Noted, error) {
	memory := &Memory{
		note:   member.LeaseNote{Cluster: m, Namespace: namespace, Lease: wellknown.MembersLease, Key: wellknown.AnnotationMembers},
		broker: of, log: log,
	}
	text, err := memory.note.Await(ctx, log)
	if apierrors.IsForbidden(err) { // rights of before this note
		log.Errorf("note of the members: %v; going on without it", err)
	} else if err != nil {
		return nil, wellknown.Noted{}, err
	}
	return memory, wellknown.ParseNoted(text, of), nil
}

// save notes what changed, and logs why it cannot. Nothing waits for it: the note matters after a restore and a restart. A nil Memory is that of a test.
func (m *Memory) save(ctx context.Context, b *broker.Broker) {
	if m == nil || m.broker == "" || b.NotedChanges() == m.saved {
		return
	}
	changes := b.NotedChanges()
	err := m.note.Save(ctx, b.Noted().String(), wellknown.ManagerController)
	if m.failing.Changed(err != nil, err) && err != nil && ctx.Err() == nil {
		m.log.Warningf("note of the members: %v; trying again", err)
	}
	if err == nil {
		m.saved = changes
	}
}
