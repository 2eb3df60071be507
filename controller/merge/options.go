package merge

import (
	"net/netip"
)

// Options decide where the sources disagree (docs/spec/controller.md 11). The zero value is the
// default.
type Options struct {
	Mode Mode
	VIP  VIPMode

	// VIPNetworks are the networks that contain the VIP CIDRs of all members, and VIPs what decides on a service, with
	// [CIDR].
	VIPNetworks VIPNetworks
	VIPs        VIPs
	// Reserved are the networks of the Pods and Services of the importing cluster. It accepts no clusterset IP in them:
	// the derived Service would take the traffic to the owner of the address.
	Reserved []netip.Prefix
}

// Mode is the option "merge": which document decides where exports disagree. The zero value is [KEP]. In each mode the
// oldest export has precedence.
type Mode string

// The values of "merge".
const (
	// KEP-1645 as it is: the oldest export decides, ports are united, endpoints of the other type count
	KEP Mode = "kep"
	// first Lighthouse document: ports that all exports have, and no export of the other type
	Lighthouse Mode = "lighthouse"
	First      Mode = "first" // first version of KEP-1645: no import until the exports agree
)

// Modes are all modes, the default first.
var Modes = []Mode{KEP, Lighthouse, First}

func (m Mode) withholds() bool  { return m == First }
func (m Mode) intersects() bool { return m == Lighthouse }
func (m Mode) excludes() bool   { return m == Lighthouse }

// VIPMode is the source of the addresses of a ClusterSetIP import.
type VIPMode string

// The values of "vip".
const (
	Derived VIPMode = "derived" // cluster IPs of a Service that is derived from the import
	CIDR    VIPMode = "cidr"    // allocated by an exporter from its VIP CIDR (second Lighthouse document)
	NoVIP   VIPMode = "none"    // no addresses
)
