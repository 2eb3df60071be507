package identity

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/apiserver"
	"github.com/clusterset-dns/clusterset/controller/member"
)

// statusPeriod is the time between two checks of the Member's status.
const statusPeriod = 10 * time.Second

// statusBackoff returns the pauses after failed writes, of at most a minute: a person has to grant rights or update the
// CRD.
func statusBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: retry, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 40 * time.Second}
}

// A Publication keeps the status of this cluster's Member on the broker current while the cluster is a member
// (docs/spec/controller.md 2.1). A failed write does not affect heartbeats. The fields are set before Run and do not
// change. Run is called once.
type Publication struct {
	Membership *Membership
	Status     v1alpha1.MemberStatus // without properties
	Log        logging.Logger

	leftOut logging.OnChange[string] // used by Run alone
}

// Run publishes until ctx ends; it then returns nil.
func (p *Publication) Run(ctx context.Context) error {
	var failing logging.Failure[bool]
	backoff := statusBackoff()
	for ctx.Err() == nil {
		pause := retry
		if m := p.Membership; m.mayWrite() && m.Status().isMember() && m.Broker.Synced() {
			err := p.publish(ctx)
			if failing.Changed(err != nil, err) && err != nil && ctx.Err() == nil {
				p.Log.Warningf("the status of this member is not published: %v; %s", err, remedy(err))
			}
			if pause = statusPeriod; err != nil {
				pause = backoff.Step()
			} else {
				backoff = statusBackoff()
			}
		}
		_ = apiserver.Sleep(ctx, pause)
	}
	return nil
}

// remedy returns what to do about a status that cannot be written.
func remedy(err error) string {
	if apiserver.IsUnknownField(err) {
		return "update the CRDs of the broker with clusterset broker init"
	}
	return "trying again"
}

// publish writes the status if the broker has another one.
func (p *Publication) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statusPeriod)
	defer cancel()
	m := p.Membership
	before := m.Broker.Members.Get(m.Identity.ClusterID)
	properties, leftOut := Published(m.Member, before)
	if text := strings.Join(slices.Sorted(maps.Values(leftOut)), "; "); p.leftOut.Changed(text) && text != "" {
		p.Log.Warningf("ClusterProperties that are not published: %s", text)
	}
	status := p.Status
	status.Properties = properties
	if status.Rejected = rejectedExports(m.Member, m.Broker.Own); before != nil && !m.Member.ExportsKnown() {
		status.Rejected = before.Status.Rejected
	}
	err := m.Broker.Members.SetStatus(ctx, status)
	if apiserver.IsUnknownField(err) && len(status.Rejected) > 0 { // other clusters need the properties more
		status.Rejected = nil
		return errors.Join(err, m.Broker.Members.SetStatus(ctx, status))
	}
	return err
}

// Published returns the ClusterProperties of this cluster for the selectors of other members, sorted by name, and why
// others, by name, are left out (docs/spec/selection.md 2). Its Member has its id and clusterset. If a property never
// decoded since this process began, its value in before, the Member of this cluster or nil, counts.
func Published(c *member.Cluster, before *v1alpha1.Member) (properties []v1alpha1.Property,
	leftOut map[string]string) {
	var all v1alpha1.MemberStatus
	for _, p := range c.Properties() {
		if p.Name != about.ClusterIDName && p.Name != about.ClusterSetName {
			all.Properties = append(all.Properties, v1alpha1.Property{Name: p.Name, Value: p.Spec.Value})
		}
	}
	all.Properties = append(all.Properties, unreadable(c, all.Properties, before)...)
	slices.SortFunc(all.Properties, func(a, b v1alpha1.Property) int { return cmp.Compare(a.Name, b.Name) })
	valid, rejected := all.ValidProperties()
	leftOut = make(map[string]string, len(rejected))
	for _, p := range all.Properties {
		if _, ok := valid[p.Name]; ok {
			properties = append(properties, p)
		} else {
			leftOut[p.Name] = rejected[len(leftOut)].Error()
		}
	}
	return properties, leftOut
}

// unreadable returns what before has of the ClusterProperties that do not decode and that known lacks.
func unreadable(c *member.Cluster, known []v1alpha1.Property, before *v1alpha1.Member) (all []v1alpha1.Property) {
	names := c.UnreadableProperties()
	if len(names) == 0 || before == nil {
		return nil
	}
	for _, p := range before.Status.Properties {
		same := func(q v1alpha1.Property) bool { return q.Name == p.Name }
		if slices.Contains(names, p.Name) && !slices.ContainsFunc(known, same) {
			all = append(all, p)
		}
	}
	return all
}
