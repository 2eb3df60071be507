package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// A MemberList has the members of a clusterset as the broker has them, sorted by cluster id. An object that does not decode has no state.
type MemberList struct {
	Objects []unstructured.Unstructured
	States  []MemberState
}

// Members lists the members of a clusterset. Without onBroker, the broker is read with the credential of the member.
func Members(ctx context.Context, onBroker, onMember *rest.Config, o StatusOptions) (all MemberList, err error) {
	s := &collector{options: o, brokerConfig: onBroker, state: State{Cluster: &ClusterState{}}}
	if s.options.Now == nil {
		s.options.Now = time.Now
	}
	if onBroker == nil {
		err = s.readLocalCredential(ctx, onMember)
	}
	if err == nil {
		all, err = s.listMembers(ctx)
	}
	if err != nil {
		return all, fmt.Errorf("members: %w", err)
	}
	return all, nil
}

// readLocalCredential takes the configuration of the broker from the credential of a cluster.
func (s *collector) readLocalCredential(ctx context.Context, config *rest.Config) error {
	c, err := open(RoleMember, config, WriteOptions{})
	if err != nil {
		return err
	}
	if err := s.readCredential(ctx, c); err != nil {
		return err
	}
	if s.brokerConfig == nil {
		return errors.New("this cluster has no broker credential: want --broker-kubeconfig or --broker-context, or a cluster that has joined")
	}
	return nil
}

func (s *collector) listMembers(ctx context.Context) (all MemberList, err error) {
	c, err := open(RoleBroker, s.brokerConfig, WriteOptions{})
	if err != nil {
		return all, err
	}
	objects, err := c.listObjects(ctx, v1alpha1.Members, "")
	if err != nil {
		return all, err
	}
	slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	for _, o := range objects {
		all.Objects = append(all.Objects, *o)
	}
	records, err := list[v1alpha1.ExportedService](ctx, c, v1alpha1.ExportedServices, "")
	if err != nil {
		return all, err
	}
	err = s.readMembers(ctx, c, decode[v1alpha1.Member](c, objects), records)
	all.States = s.state.Members
	return all, err
}
