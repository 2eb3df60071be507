package merge

import (
	"fmt"
	"net/netip"
	"strings"
)

// Options decide where the sources disagree (docs/spec/controller.md 11). The zero value is the default.
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

// VIPMode is the source of the addresses of a ClusterSetIP import.
type VIPMode string

// The values of "vip".
const (
	Derived VIPMode = "derived" // cluster IPs of a Service that is derived from the import
	CIDR    VIPMode = "cidr"    // allocated by an exporter from its VIP CIDR (second Lighthouse document)
	NoVIP   VIPMode = "none"    // no addresses
)

// A VIPSetting is the value of the option "vip". The zero value gives no addresses.
type VIPSetting struct {
	Mode     VIPMode
	Networks VIPNetworks // with CIDR
}

// ParseVIPSetting returns the setting that the words of a Corefile name.
func ParseVIPSetting(words []string) (VIPSetting, error) {
	if len(words) == 0 {
		return VIPSetting{}, nil
	}
	mode := VIPMode(words[0])
	switch {
	case mode != Derived && mode != CIDR && mode != NoVIP:
		return VIPSetting{}, fmt.Errorf("%q: want one of derived, cidr, none", words[0])
	case len(words) > 1 && mode != CIDR:
		return VIPSetting{}, fmt.Errorf("%q after %s: want a network only after cidr", words[1], mode)
	}
	networks, err := ParseVIPNetworks(words[1:])
	if err != nil {
		return VIPSetting{}, err
	}
	return VIPSetting{mode, networks}, nil
}

// String returns the words, without networks that are the default: equal settings have equal words.
func (s VIPSetting) String() string {
	words := []string{string(s.Mode)}
	for _, p := range []netip.Prefix{s.Networks.IPv4, s.Networks.IPv6} {
		if s.Mode == CIDR && p.IsValid() && p != DefaultVIPNetworks.ForFamilyOf(p.Addr()) {
			words = append(words, p.String())
		}
	}
	return strings.Join(words, " ")
}
