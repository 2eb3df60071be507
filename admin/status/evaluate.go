package status

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/broker"
	apireason "github.com/clusterset-dns/clusterset/api/reason"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/merge"
)

// An evaluation lists the problems and warnings of a state. It contacts no API server.
type evaluation struct {
	*State
	namespace string // of the controller in the member
	now       time.Time

	// Whether all of the member, and all of the broker, could be read. A failed read is not a problem of the
	// clusterset.
	memberRead, brokerRead bool
}

func (e evaluation) evaluate() {
	var own *MemberState
	for i := range e.Members {
		m := &e.Members[i]
		switch {
		case m.This:
			own = m
		case m.Heartbeat == nil:
			e.Problem("member %q has no heartbeat: its controller has never run", m.ClusterID)
		case m.Expired:
			e.Problem(
				"member %q last renewed its heartbeat %s ago: it has expired, and other members use its endpoints as a last resort",
				m.ClusterID, m.HeartbeatAge)
		}
	}
	e.evaluateVersions()
	e.evaluateSettings()
	if c := e.Cluster; c != nil {
		e.evaluateCRDs(c, own)
		switch {
		case c.Leaving:
			// Anything else about the cluster is as expected during a leave.
			e.Problem("this cluster is leaving: run \"clusterset leave\" again to finish, or \"clusterset join\" to stay")
		case c.Removed != "":
			e.Problem(
				"an administrator of the broker removed this cluster at %s, and its imports end: run \"clusterset leave --force\" to clean up, "+
					"or \"clusterset join\" to be a member again", c.Removed)
		case c.ClusterSet == "" && len(c.CRDs) > 0 && c.CredentialExpires != nil:
			// Without the kind ClusterProperty nothing is known of the membership.
		case c.ClusterSet == "" && own != nil:
			e.Problem(
				"ClusterProperty clusterset.k8s.io is missing, but the broker has a Member for this cluster: run \"clusterset join\" " +
					"to restore it, or \"clusterset leave\"")
		case c.ClusterSet == "" && c.broker != "":
			e.Problem("%s: use \"clusterset status --broker-only\", or the kubeconfig of a member", c.broker)
		case c.ClusterSet == "":
			e.Problem("this cluster is not a member of a clusterset: run \"clusterset join\", or choose another one by --context")
		case e.memberRead:
			e.evaluateMember(c, own)
		}
	}
	switch n := len(e.Conflicts); {
	case n == 1:
		e.Warn("1 service has conflicting exports: see the condition Conflict of its ServiceExports")
	case n > 1:
		e.Warn("%d services have conflicting exports: see the condition Conflict of their ServiceExports", n)
	}
}

// evaluateCRDs: a controller without its CRDs sends no heartbeat, and reconciles nothing (docs/spec/controller.md 5.3).
func (e evaluation) evaluateCRDs(c *ClusterState, own *MemberState) {
	waits := ""
	if own != nil && c.waits(own) {
		waits = "; until then the controller waits and sends no heartbeat, so other members remove what this cluster exports"
	}
	for _, crd := range c.CRDs {
		e.Problem("%s%s", crd, waits)
	}
}

// waits reports whether the controller waits for a CRD. Its heartbeat has then expired, if the broker could be read.
func (c *ClusterState) waits(own *MemberState) bool {
	return len(c.CRDs) > 0 && (own == nil || own.Expired)
}

// evaluateVersions: during an upgrade, controllers have different versions. A controller inside of CoreDNS has that of
// CoreDNS before ours.
func (e evaluation) evaluateVersions() {
	var versions []string
	for i := range e.Members {
		_, ours, found := strings.Cut(e.Members[i].Version, "+clusterset-")
		if !found {
			ours = e.Members[i].Version
		}
		if ours != "" && !slices.Contains(versions, ours) {
			versions = append(versions, ours)
		}
	}
	if len(versions) > 1 {
		slices.Sort(versions)
		e.Warn("the controllers of the members have different versions, %s: finish the upgrade in all members",
			strings.Join(versions, ", "))
	}
}

// evaluateSettings compares the options "vip" and "merge" of members with those of the clusterset.
func (e evaluation) evaluateSettings() {
	if e.Broker == nil {
		return
	}
	if vip, err := merge.ParseVIPSetting(strings.Fields(e.Broker.VIP)); err == nil && vip.Mode != "" {
		e.compareSetting("vip", e.Broker.VIP, read.JoinWithVIP(vip), func(m *MemberState) string { return m.VIP })
	}
	e.compareSetting("merge", e.Broker.Merge, "clusterset join", func(m *MemberState) string { return m.Merge })
}

// compareSetting adds a problem for each member whose option differs from the clusterset's option. Empty values are not
// compared: the clusterset has no option, or the member's controller has not run.
func (e evaluation) compareSetting(option, clusterset, command string, of func(*MemberState) string) {
	for i := range e.Members {
		m := &e.Members[i]
		if has := of(m); clusterset != "" && has != "" && has != clusterset {
			e.Problem("member %q has %s %s, and the clusterset has %s %s: run \"%s\" there, or give its controller this option",
				m.ClusterID, option, has, option, clusterset, command)
		}
	}
}

// evaluateMember evaluates a cluster that is a member. own is its Member, nil if it does not exist or if the broker
// could not be read.
func (e evaluation) evaluateMember(c *ClusterState, own *MemberState) {
	switch {
	case e.brokerRead && e.Broker != nil && e.Broker.UID != c.BrokerUID:
		e.Problem(
			"the broker has kube-system UID %s, but this cluster joined a broker with UID %s: the controller is frozen; "+
				"run \"clusterset join --replace-broker\" if this broker replaces the old one", e.Broker.UID, c.BrokerUID)
	case e.brokerRead && own == nil:
		e.Problem("the broker has no Member for this cluster: run \"clusterset join\" again")
	case c.Leader == "" || c.LeaderRenewed == nil:
		e.Problem("no leader: no controller holds Lease %s/%s; check that the controller of this cluster runs", e.namespace,
			wellknown.ControllerLease)
	case c.LeaderExpired:
		e.Problem("no leader: Lease %s/%s has expired; check that the controller of this cluster runs", e.namespace,
			wellknown.ControllerLease)
	case e.brokerRead && own.Expired && !c.waits(own):
		e.Problem("the controller runs but does not renew its heartbeat on the broker: it cannot reach the broker")
	}
	e.evaluateCredential(c.CredentialExpires)
	e.evaluateOutside(c.Outside)
	if c.waits(own) {
		return // what the controller has said before does not count
	}
	for _, f := range c.Frozen {
		e.Problem("the controller is frozen (%s): %s; suspended: %s", f.Reason,
			apireason.With(f.Detail, apireason.Code(f.Code)), f.Suspends)
	}
	e.evaluateUndeclared(c.Exports.Undeclared)
	e.nameNotReady(c.NotReadyImports, "import", "ServiceImports")
	if c.Exports.NotReady == 0 {
		return
	}
	e.nameNotReady(c.Exports.NotReadyExports, "export", "ServiceExports")
	if own != nil && len(own.PodCIDRs) == 0 {
		e.Warn("the Member of this cluster declares no pod CIDRs, so other members accept no address of its pods: join again with --pod-cidr")
	}
}

func (e evaluation) evaluateUndeclared(exports []string) {
	const shown = 10
	if len(exports) == 0 {
		return
	}
	text := strings.Join(exports[:min(len(exports), shown)], ", ")
	if more := len(exports) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	e.Problem("endpoints of %s have addresses in none of the networks that this cluster declared, and are not exported: "+
		"see the condition Ready of the ServiceExports, and join again with all networks in --pod-cidr or --load-balancer-cidr", text)
}

// evaluateOutside: Pods with undeclared addresses are a problem, since other members lack their endpoints. A network
// without such a Pod is a warning, since the next Pod may be there, if it is that of a Node or shares no part with the
// declared ones, as a new IPPool. Of other networks the user may have declared a part on purpose.
func (e evaluation) evaluateOutside(o *OutsideState) {
	if o == nil {
		return
	}
	if o.Unread != "" {
		e.Warn("%s", o.Unread)
	}
	if o.Pods.Count > 0 {
		e.Problem("%s: other members do not accept them; run %s",
			o.Pods.Phrase("networks that this cluster declared"), o.command())
		return
	}
	declared := broker.Prefixes(o.declared)
	for _, n := range o.Networks {
		apart := len(declared) > 0 && !slices.ContainsFunc(declared, netip.MustParsePrefix(n.CIDR).Overlaps)
		if n.PerNode || apart {
			e.Warn("network %s (%s) is not declared: other members will not accept Pods in it; run \"clusterset join\" again",
				n.CIDR, n.Source)
		}
	}
}

// command is what declares the addresses of Pods: a join without flags, if that finds networks of all of them.
func (o *OutsideState) command() string {
	var found []netip.Prefix
	for _, n := range o.Networks {
		found = append(found, netip.MustParsePrefix(n.CIDR))
	}
	if slices.ContainsFunc(o.Pods.Examples,
		func(e networks.Example) bool { return !networks.ContainAddress(found, e.Address) }) {
		return o.Pods.JoinWith(o.declared)
	}
	return "\"clusterset join\" again, which finds their networks"
}

func (e evaluation) evaluateCredential(expires *time.Time) {
	switch {
	case expires == nil:
		e.Problem("the broker credential, Secret %s/%s, does not exist: run \"clusterset join\" again", e.namespace,
			broker.SecretName)
	case !expires.After(e.now):
		e.Problem("the broker credential expired at %s: run \"clusterset join\" again", expires.UTC().Format(time.RFC3339))
	}
}

// nameNotReady reports each export or import that is not ready, and counts those that do not fit on a screen.
func (e evaluation) nameNotReady(notReady []ServiceState, kind, objects string) {
	const shown = 10
	for _, s := range notReady[:min(len(notReady), shown)] {
		e.Problem("%s %s/%s is not ready, %s: %s", kind, s.Namespace, s.Name, s.Reason, apireason.Phrase(s.Message))
	}
	if more := len(notReady) - shown; more > 0 {
		e.Problem("%d more %ss are not ready: see the conditions of the %s", more, kind, objects)
	}
}
