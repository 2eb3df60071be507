package dns

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterset-dns/clusterset/admin/wiring"
	"github.com/clusterset-dns/clusterset/admin/write"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// Options select the DNS servers to wire (docs/spec/dns-wiring.md).
type Options struct {
	write.Options
	Zone string
	// Namespace of the cluster's DNS server.
	Namespace string
	// Service of the DNS server of the clusterset.
	Service types.NamespacedName
	// InProcess means that the image of the cluster's DNS server has the plugin clusterset.
	InProcess bool
	// Ask is the address of a resolver to ask, "HOST" or "HOST:PORT"; empty for the addresses of the cluster's DNS server.
	Ask string
	// Restart lets DNSApply and DNSUndo start the Pods of a resolver anew that does not read its configuration again.
	Restart bool
	// Wait until the DNS server is ready before the first write, and until the resolver answers after the last, at most
	// Timeout each.
	Wait    bool
	Timeout time.Duration
}

// Defaults returns the defaults of the flags.
func Defaults() Options {
	return Options{
		Zone: wiring.DefaultZone, Namespace: metav1.NamespaceSystem,
		Service: types.NamespacedName{Namespace: wellknown.ControllerNamespace, Name: "clusterset-dns"},
		Wait:    true, Timeout: 5 * time.Minute,
	}
}

// Check returns an error for options that cannot be meant, and completes the others.
func (o *Options) Check() error {
	o.Zone = strings.ToLower(strings.TrimSuffix(o.Zone, "."))
	if problems := validation.IsDNS1123Subdomain(o.Zone); len(problems) > 0 || o.Zone == "cluster.local" {
		return fmt.Errorf("zone %q: want the name of a zone, such as %s, other than the domain of the cluster", o.Zone,
			wiring.DefaultZone)
	}
	if o.Ask == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(o.Ask)
	if err != nil {
		host, port = strings.Trim(o.Ask, "[]"), "53"
	}
	if host == "" || slices.Contains([]string{"", "0"}, port) {
		return fmt.Errorf("address %q to ask: want HOST or HOST:PORT", o.Ask)
	}
	o.Ask = net.JoinHostPort(host, port)
	return nil
}
