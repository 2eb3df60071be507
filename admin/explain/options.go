package explain

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

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
	Type    uint16 // of DNS
	Zone    string
	Servers []string // "<address>:<port>" of DNS servers to ask in place of the Pods
	NoAsk   bool     // no DNS server of the cluster is asked

	Namespace string // of the controller in the member
	// DNSNamespace is the namespace of the cluster's DNS server, and DNSService the Service of that of the clusterset.
	// Without a namespace, what resolvers do with the zone is not looked at.
	DNSNamespace string
	DNSService   types.NamespacedName

	TTL     time.Duration // age at which a heartbeat, and the Lease of a leader, has expired
	Timeout time.Duration // of all that is read and asked, together
	Now     func() time.Time
}

// Defaults returns the default options.
func Defaults() Options {
	dns := dns.Defaults()
	return Options{
		Zone: dns.Zone, Namespace: wellknown.ControllerNamespace, DNSNamespace: dns.Namespace, DNSService: dns.Service,
		TTL: time.Minute, Timeout: 5 * time.Second, Now: time.Now,
	}
}
