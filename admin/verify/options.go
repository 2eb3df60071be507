package verify

import (
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// Options are the options of [Run]. Start from [Defaults].
type Options struct {
	Zone      string
	Namespace string        // of the controller in each member
	Image     string        // of the Pods; "": that of the member's controller or DNS server
	Pods      bool          // run Pods in the members
	Timeout   time.Duration // of each step
	Progress  func(string)
}

// Defaults returns the default options.
func Defaults() Options {
	return Options{
		Zone: "clusterset.local", Namespace: wellknown.ControllerNamespace, Pods: true, Timeout: time.Minute,
		Progress: func(string) {},
	}
}

// phases is how many timeouts a run takes at most. The namespaces of a run say until when it may go on.
const phases = 12

// A Member is a member.
type Member struct {
	Name      string // in the report
	Config    *rest.Config
	DNSServer string // "<address>:<port>"; "": that of Pods, see /etc/resolv.conf
}
