package broker

// The rules for labels, keys and values are those of k8s.io/apimachinery/pkg/util/validation, and a test compares them.
// Its functions match regular expressions, which takes about 30 times as long, and each endpoint of each slice is
// checked more than once. They also accept a prefix of a key with a part of more than 63 octets, which the CRDs of this
// group reject.

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"
)

// IsLabel reports whether s is a lower-case RFC 1123 label: 1 to 63 letters, digits and, not at an end, hyphens.
func IsLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if s[i] != '-' && !isLowerAlnum(s[i]) {
			return false
		}
	}
	return true
}

// IsClusterID reports whether s is a cluster id: one RFC 1123 label, or two joined by one dot, of at most 63 octets
// (KEP-2149; docs/spec/dns.md 1.4).
func IsClusterID(s string) bool {
	first, second, dotted := strings.Cut(s, ".")
	return len(s) <= 63 && IsLabel(first) && (!dotted || IsLabel(second))
}

// IsSubdomain reports whether s is an RFC 1123 subdomain, such as the name of a ClusterProperty: at most 253 octets of
// labels (see [IsLabel]) with dots between them.
func IsSubdomain(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !IsLabel(label) {
			return false
		}
	}
	return true
}

// IsLabelKey reports whether s can be the key of a label or annotation, with or without a prefix.
func IsLabelKey(s string) bool {
	prefix, name, prefixed := strings.Cut(s, "/")
	if !prefixed {
		return isQualified(s)
	}
	return IsSubdomain(prefix) && isQualified(name)
}

// IsLabelValue reports whether s can be the value of a label.
func IsLabelValue(s string) bool { return s == "" || isQualified(s) }

// IsPropertyValue reports whether s can be the value of a ClusterProperty that travels.
func IsPropertyValue(s string) bool {
	return s != "" && utf8.ValidString(s) && utf8.RuneCountInString(s) <= MaxPropertyValue
}

// Domains of keys that do not travel. The first ones have a meaning to Kubernetes, to Lighthouse or to us: the CRD
// rejects a record with such a key. The others have one to controllers that many clusters run; records of older members
// may have them.
var (
	rejectedDomains = []string{"kubernetes.io", "k8s.io", "clusterset-dns.io", "submariner.io"}
	leftOutDomains  = []string{"cilium.io", "istio.io", "argoproj.io", "fluxcd.io", "helm.sh"}
)

// IsRejectedKey reports whether a record with this key of a label or annotation is rejected whole.
func IsRejectedKey(key string) bool { return isBelow(key, rejectedDomains) }

// IsReservedKey reports whether the key of a label or annotation does not travel: it would let an exporter act in the
// name of a controller of every importing cluster. Exporters and importers leave it out.
func IsReservedKey(key string) bool { return IsRejectedKey(key) || isBelow(key, leftOutDomains) }

func isBelow(key string, domains []string) bool {
	prefix, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return false
	}
	for _, domain := range domains {
		if prefix == domain || strings.HasSuffix(prefix, "."+domain) {
			return true
		}
	}
	return false
}

// ParseAddress returns the address in s, or an error if a service must not have it (docs/spec/controller.md 9.3,
// docs/spec/dns.md 1.2). A name never points a client at itself, at its link, at a group, or at an IPv4
// address in disguise: of those that stand in an IPv6 address, the ones that it would not point at by themselves.
func ParseAddress(s string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Errorf("address %.80q: want an IP address", s)
	case addr.Zone() != "":
		return netip.Addr{}, fmt.Errorf("address %.80q: want one without a zone", s)
	case addr.Is4In6():
		return netip.Addr{}, fmt.Errorf("address %.80q: want no IPv4-mapped one", s)
	case !isUnicast(addr):
		return netip.Addr{}, fmt.Errorf("address %.80q: want a unicast one that is neither loopback nor link-local", s)
	}
	if inner, ok := Embedded(addr); ok && !isUnicast(inner) {
		return netip.Addr{}, fmt.Errorf("address %.80q: want one that does not stand for %s", s, inner)
	}
	return addr, nil
}

// isUnicast reports whether an address is that of a host elsewhere. All of 0.0.0.0/8 is "this host" (RFC 1122 section
// 3.2.1.3): Linux takes 0.0.0.0 for loopback.
func isUnicast(addr netip.Addr) bool { return addr.IsGlobalUnicast() && !thisHost.Contains(addr) }

var (
	thisHost   = netip.MustParsePrefix("0.0.0.0/8")
	compatible = netip.MustParsePrefix("::/96")        // RFC 4291 section 2.5.5.1
	nat64      = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052 section 2.1
	sixToFour  = netip.MustParsePrefix("2002::/16")    // RFC 3056 section 2
)

// Embedded returns the IPv4 address that a translator or a tunnel takes from an IPv6 address. Short addresses such as
// ::2:3 hold no IPv4 address.
func Embedded(addr netip.Addr) (netip.Addr, bool) {
	octets := addr.As16()
	switch {
	case nat64.Contains(addr), compatible.Contains(addr) && octets[12] != 0:
		return netip.AddrFrom4([4]byte(octets[12:])), true
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(octets[2:])), true
	}
	return netip.Addr{}, false
}

// ParsePrefix returns the network in s, in the one spelling without host bits.
func ParsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() || p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("CIDR %.80q: want a network such as 10.0.0.0/16, without bits of a host", s)
	}
	return p, nil
}

// Prefixes returns the texts that are networks: it is never nil. The others are values of a Member that was edited by
// hand.
func Prefixes(texts []string) []netip.Prefix {
	networks := []netip.Prefix{}
	for _, text := range texts {
		if p, err := ParsePrefix(text); err == nil {
			networks = append(networks, p)
		}
	}
	return networks
}

// isQualified reports whether s is the name part of a label key, which is also the form of a label value.
func isQualified(s string) bool {
	if s == "" || len(s) > 63 || !isAlnum(s[0]) || !isAlnum(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool { return isLowerAlnum(c) || 'A' <= c && c <= 'Z' }

func isLowerAlnum(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' }
