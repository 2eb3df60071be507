package merge

import (
	"fmt"
	"net/netip"
	"strings"
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
		if s.Mode == CIDR && p.IsValid() && p != DefaultVIPNetworks.Of(p.Addr()) {
			words = append(words, p.String())
		}
	}
	return strings.Join(words, " ")
}
