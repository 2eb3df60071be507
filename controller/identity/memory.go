package identity

import (
	"context"
	"fmt"

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
}

// LoadMemory reads the note. namespace is that of the controller.
func LoadMemory(ctx context.Context, m *member.Cluster, log logging.Logger, namespace string, of types.UID) (*Memory, wellknown.Noted, error) {
	memory := &Memory{
		note:   member.LeaseNote{Cluster: m, Namespace: namespace, Lease: wellknown.MembersLease, Key: wellknown.AnnotationMembers},
		broker: of,
	}
	text, err := memory.note.Await(ctx, log)
	if err != nil {
		return nil, wellknown.Noted{}, fmt.Errorf("note of the members: %w", err)
	}
	return memory, wellknown.ParseNoted(text, of), nil
}

// save notes what changed. A nil Memory is that of a test.
func (m *Memory) save(ctx context.Context, b *broker.Broker) error {
	if m == nil {
		return nil
	}
	changes := b.NotedChanges()
	if changes == m.saved || m.broker == "" {
		return nil
	}
	if err := m.note.Save(ctx, b.Noted().String(), wellknown.ManagerController); err != nil {
		return fmt.Errorf("note of the members: %w", err)
	}
	m.saved = changes
	return nil
}
