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
	s := &collector{options: o, brokerConfig: onBroker}
	if s.options.Now == nil {
		s.options.Now = time.Now
	}
	if onBroker == nil {
		s.brokerConfig, err = BrokerOf(ctx, onMember, o.Namespace)
	}
	if err == nil {
		all, err = s.listMembers(ctx)
	}
	if err != nil {
		return all, fmt.Errorf("members: %w", err)
	}
	return all, nil
}

// BrokerOf returns the access of a member to its broker, by the credential in the namespace of its controller.
func BrokerOf(ctx context.Context, member *rest.Config, namespace string) (*rest.Config, error) {
	c, err := open(RoleMember, member, WriteOptions{})
	if err != nil {
		return nil, err
	}
	secret, err := c.secret(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if secret == nil {
		return nil, errors.New("this cluster has no broker credential: want --broker-kubeconfig or --broker-context, or a cluster that has joined")
	}
	config, _, err := credentialConfig(secret)
	return config, err
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
