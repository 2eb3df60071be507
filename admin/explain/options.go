package explain

import (
	"time"

	"github.com/clusterset-dns/clusterset/admin/dns"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// The manifests with the rights that [Run] needs. A member reads the broker with the rights of all members.
const (
	grantsMember     = "deploy/explain/member.yaml"
	grantsBroker     = "deploy/explain/broker.yaml"
	grantsCredential = "deploy/broker/broker.yaml"
)

// Options are the options of [Run]. Start from [Defaults].
type Options struct {
	Name    string
	Type    uint16   // of DNS
	Servers []string // "<address>:<port>" of DNS servers to ask in place of the Pods
	NoAsk   bool     // no DNS server of the cluster is asked

	Namespace string      // of the controller in the member
	DNS       dns.Options // without a Namespace, what resolvers do with the zone is not looked at

	TTL     time.Duration // age at which a heartbeat, and the Lease of a leader, has expired
	Timeout time.Duration // of all that is read and asked, together
}

// Defaults returns the default options.
func Defaults() Options {
	return Options{
		Namespace: wellknown.ControllerNamespace, DNS: dns.Defaults(), TTL: time.Minute, Timeout: 5 * time.Second,
	}
}
