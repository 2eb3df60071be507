package v1alpha1

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/api/broker"
)

// Validate returns why an export record counts for nothing, or nil. It rejects all that the CRD rejects, as a broker
// may have lost its CRD or have one of another version; but only the CRD can compare the name of the object with its
// contents.
func (s *ExportedServiceSpec) Validate() error {
	for _, check := range []func(*ExportedServiceSpec) error{
		checkNames, checkPorts, checkPolicies, checkMetadata, checkFamilies, checkSelectors, checkSlices,
	} {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

// Validate returns why importers accept no record of these contents, or nil: it has to have a stamp, too.
func (r *ExportedService) Validate() error {
	if err := r.Spec.Validate(); err != nil {
		return err
	}
	if r.Spec.Stamp == 0 || r.Spec.ExportUID == "" {
		return errors.New("want a stamp and the UID of the export")
	}
	return nil
}

// ValidateNames compares name and labels with the spec and with the id of the member that owns the namespace.
func (r *ExportedService) ValidateNames(cluster string) error {
	if want := broker.RecordName(r.Spec.Namespace, r.Spec.Name); r.Name != want {
		return fmt.Errorf("record %.80q: want %s, by its spec", r.Name, want)
	}
	return ValidateLabels(r.Labels, r.Spec.Namespace, r.Spec.Name, cluster)
}

// ValidateLabels compares the labels of a record or slice with its service and its member.
func ValidateLabels(labels map[string]string, namespace, name, cluster string) error {
	for _, want := range [][2]string{
		{mcsv1beta1.LabelSourceCluster, cluster},
		{mcsv1beta1.LabelServiceName, name},
		{broker.LabelSourceNamespace, namespace},
	} {
		if got := labels[want[0]]; got != want[1] {
			return fmt.Errorf("label %s %.80q: want %s", want[0], got, want[1])
		}
	}
	return nil
}

func checkSelectors(s *ExportedServiceSpec) error {
	if err := ValidateSelectors(s.ClusterSelectors); err != nil {
		return fmt.Errorf("cluster selectors: %w", err)
	}
	if s.ToClusters != nil && len(s.ToClusters) == 0 {
		return errors.New("to clusters: an empty list: want a selector, or no list for all clusters")
	}
	if err := ValidateSelectors(s.ToClusters); err != nil {
		return fmt.Errorf("to clusters: %w", err)
	}
	return nil
}

func checkSlices(s *ExportedServiceSpec) error {
	if len(s.Slices) > broker.MaxSlices {
		return fmt.Errorf("%d slices: want at most %d", len(s.Slices), broker.MaxSlices)
	}
	for _, hash := range s.Slices {
		if !broker.IsSliceHash(hash) {
			return fmt.Errorf("slice %.80q: want 16 hexadecimal digits", hash)
		}
	}
	switch {
	case s.Stamp < 0 || s.Stamp >= 1<<53:
		return fmt.Errorf("stamp %d: want 0 to 2^53-1", s.Stamp)
	case s.ExportUID != "" && !isUID(s.ExportUID):
		return fmt.Errorf("exportUID %.80q: want a lower-case UUID", s.ExportUID)
	}
	return nil
}

func checkNames(s *ExportedServiceSpec) error {
	switch {
	case !broker.IsLabel(s.Namespace):
		return fmt.Errorf("namespace %.80q: want one RFC 1123 label", s.Namespace)
	case !broker.IsLabel(s.Name):
		return fmt.Errorf("name %.80q: want one RFC 1123 label", s.Name)
	case s.Type != ClusterSetIP && s.Type != Headless:
		return fmt.Errorf("type %.80q: want ClusterSetIP or Headless", s.Type)
	case s.ExportCreated.IsZero():
		return errors.New("exportCreated: want a time")
	case s.ExportCreated.Year() < 0 || s.ExportCreated.Year() > 9999:
		return fmt.Errorf("exportCreated in the year %d: want one that RFC 3339 can say", s.ExportCreated.Year())
	case s.ExportGeneration < 0:
		return fmt.Errorf("exportGeneration %d: want none below 0", s.ExportGeneration)
	}
	return nil
}

func checkPorts(s *ExportedServiceSpec) error {
	if len(s.Ports) > broker.MaxPorts {
		return fmt.Errorf("%d ports: want at most %d", len(s.Ports), broker.MaxPorts)
	}
	for i, p := range s.Ports {
		switch {
		case p.Name != "" && !broker.IsLabel(p.Name):
			return fmt.Errorf("port name %.80q: want one RFC 1123 label", p.Name)
		case !isProtocol(p.Protocol):
			return fmt.Errorf("protocol %.80q: want TCP, UDP or SCTP", p.Protocol)
		case p.Port < 1 || p.Port > 65535:
			return fmt.Errorf("port %d: want 1 to 65535", p.Port)
		case p.AppProtocol != nil && !broker.IsLabelKey(*p.AppProtocol):
			return fmt.Errorf("appProtocol %.80q: want a word, with or without the prefix of a domain", *p.AppProtocol)
		}
		for _, q := range s.Ports[:i] {
			if p.Name == q.Name || p.Protocol == q.Protocol && p.Port == q.Port {
				return fmt.Errorf("ports %s and %s: want another name, and another protocol or number", q, p)
			}
		}
	}
	return nil
}

func isProtocol(p corev1.Protocol) bool {
	return p == corev1.ProtocolTCP || p == corev1.ProtocolUDP || p == corev1.ProtocolSCTP
}

func checkPolicies(s *ExportedServiceSpec) error {
	switch s.SessionAffinity {
	case "", corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP:
	default:
		return fmt.Errorf("session affinity %.80q: want None or ClientIP", s.SessionAffinity)
	}
	if c := s.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		if t := *c.ClientIP.TimeoutSeconds; t < 1 || t > 86400 {
			return fmt.Errorf("session affinity of %d s: want 1 to 86400", t)
		}
	}
	if p := s.InternalTrafficPolicy; p != nil && *p != corev1.ServiceInternalTrafficPolicyCluster &&
		*p != corev1.ServiceInternalTrafficPolicyLocal {
		return fmt.Errorf("internal traffic policy %.80q: want Cluster or Local", *p)
	}
	if d := s.TrafficDistribution; d != nil && !broker.IsLabelKey(*d) {
		return fmt.Errorf("traffic distribution %.80q: want a word, with or without the prefix of a domain", *d)
	}
	if len(s.Endpoints) > 63 {
		return fmt.Errorf("endpoints %.80q: want at most 63 characters", s.Endpoints)
	}
	return nil
}

func checkMetadata(s *ExportedServiceSpec) error {
	if len(s.Labels) > broker.MaxMetadata || len(s.Annotations) > broker.MaxMetadata {
		return fmt.Errorf("%d labels and %d annotations: want at most %d of each",
			len(s.Labels), len(s.Annotations), broker.MaxMetadata)
	}
	keys := make(map[string]bool)
	for _, l := range s.Labels {
		if !broker.IsLabelValue(l.Value) {
			return fmt.Errorf("label value %.80q: want at most 63 letters, digits, '-', '_' and '.'", l.Value)
		}
		if err := checkKey(l.Key, keys); err != nil {
			return err
		}
	}
	clear(keys)
	size := 0
	for _, a := range s.Annotations {
		size += len(a.Key) + utf8.RuneCountInString(a.Value)
		if utf8.RuneCountInString(a.Value) > broker.MaxValue {
			return fmt.Errorf("annotation %.80q: want a value of at most %d characters", a.Key, broker.MaxValue)
		}
		if err := checkKey(a.Key, keys); err != nil {
			return err
		}
	}
	if size > broker.MaxAnnotations {
		return fmt.Errorf("annotations of %d characters: want at most %d together", size, broker.MaxAnnotations)
	}
	return nil
}

func checkKey(key string, seen map[string]bool) error {
	switch {
	case !broker.IsLabelKey(key):
		return fmt.Errorf("key %.80q: want that of a label or annotation", key)
	case broker.IsRejectedKey(key):
		return fmt.Errorf("key %.80q: want one without a reserved prefix", key)
	case seen[key]:
		return fmt.Errorf("key %.80q: want it once", key)
	}
	seen[key] = true
	return nil
}

func checkFamilies(s *ExportedServiceSpec) error {
	if len(s.IPFamilies) < 1 || len(s.IPFamilies) > 2 {
		return fmt.Errorf("%d IP families: want one or two", len(s.IPFamilies))
	}
	for i, f := range s.IPFamilies {
		if f != corev1.IPv4Protocol && f != corev1.IPv6Protocol || slices.Contains(s.IPFamilies[:i], f) {
			return fmt.Errorf("IP family %.80q: want IPv4 or IPv6, each once", f)
		}
	}
	return checkIPs(s.ClusterIPs)
}

// checkIPs rejects anything but at most one usable address of each family, in canonical form.
func checkIPs(ips []string) error {
	if len(ips) > 2 {
		return fmt.Errorf("%d addresses: want at most one for each family", len(ips))
	}
	var first netip.Addr
	for i, s := range ips {
		addr, err := broker.ParseAddress(s)
		switch {
		case err != nil:
			return err
		case addr.String() != s:
			return fmt.Errorf("address %.80q: want it as %s", s, addr)
		case i == 1 && addr.Is4() == first.Is4():
			return fmt.Errorf("addresses %s and %s: want at most one for each family", first, addr)
		}
		first = addr
	}
	return nil
}

// Validate returns why a Member counts for nothing, or nil. Beyond what the CRD rejects, the namespace has to end in
// the hash of the cluster id.
func (m *Member) Validate() error {
	switch {
	case m.Spec.Protocol < 0 || m.Spec.Protocol > broker.Protocol:
		return fmt.Errorf("protocol %d of %.80q: want at most %d, or a newer controller here", m.Spec.Protocol, m.Name,
			broker.Protocol)
	case !broker.IsClusterID(m.Name):
		return fmt.Errorf("member %.80q: want a cluster id, one RFC 1123 label, or two joined by one dot", m.Name)
	case !isUID(m.Spec.KubeSystemUID):
		return fmt.Errorf("kube-system UID %.80q: want a lower-case UUID", m.Spec.KubeSystemUID)
	case max(len(m.Spec.PodCIDRs), len(m.Spec.ServiceCIDRs), len(m.Spec.LoadBalancerCIDRs)) > broker.MaxCIDRs:
		return fmt.Errorf("%d pod CIDRs, %d service CIDRs and %d load balancer CIDRs: want at most %d of each",
			len(m.Spec.PodCIDRs), len(m.Spec.ServiceCIDRs), len(m.Spec.LoadBalancerCIDRs), broker.MaxCIDRs)
	}
	hash := broker.NamespaceName("", m.Name)
	prefix, ok := strings.CutSuffix(m.Spec.Namespace, hash)
	if !ok || !broker.IsLabel(m.Spec.Namespace) || broker.NamespaceName(prefix, m.Name) != m.Spec.Namespace {
		return fmt.Errorf("namespace %.80q: want a prefix of 1 to 40 octets and %s", m.Spec.Namespace, hash)
	}
	for _, c := range slices.Concat(m.Spec.CIDRs(), m.Spec.VIPCIDRs) {
		if _, err := broker.ParsePrefix(c); err != nil {
			return err
		}
	}
	vips := broker.Prefixes(m.Spec.VIPCIDRs)
	if len(vips) > 2 || len(vips) == 2 && vips[0].Addr().Is4() == vips[1].Addr().Is4() {
		return fmt.Errorf("VIP CIDRs %.100q: want at most one of each IP family", strings.Join(m.Spec.VIPCIDRs, ","))
	}
	return nil
}

// ValidProperties returns the properties of a member that count, by name, and why others do not: each is rejected by
// itself.
func (s *MemberStatus) ValidProperties() (valid map[string]string, rejected []error) {
	valid = make(map[string]string, min(len(s.Properties), broker.MaxProperties))
	var size int
	for _, p := range s.Properties {
		_, again := valid[p.Name]
		more := len(p.Name) + len(p.Value)
		switch {
		case !broker.IsSubdomain(p.Name):
			rejected = append(rejected, fmt.Errorf("property %.80q: want the name of a ClusterProperty", p.Name))
		case !broker.IsPropertyValue(p.Value):
			rejected = append(rejected, fmt.Errorf("property %s has value %.80q: want 1 to %d characters", p.Name, p.Value,
				broker.MaxPropertyValue))
		case again:
			rejected = append(rejected, fmt.Errorf("property %s: want it once", p.Name))
		case len(valid) == broker.MaxProperties || size+more > broker.MaxPropertySize:
			rejected = append(rejected, fmt.Errorf("property %s: want at most %d with %d octets together", p.Name,
				broker.MaxProperties, broker.MaxPropertySize))
		default:
			valid[p.Name], size = p.Value, size+more
		}
	}
	return valid, rejected
}

// RejectedExport returns the rejected export with this name, or nil. Invalid entries do not count: a broker may have
// lost its CRD.
func (s *MemberStatus) RejectedExport(name string) *RejectedExport {
	special := func(r rune) bool { return r < ' ' || r > '~' }
	for i := range s.Rejected[:min(len(s.Rejected), broker.MaxRejected)] {
		if r := &s.Rejected[i]; r.Name == name && len(r.Reason) <= broker.MaxRejectedReason &&
			len(r.Message) <= broker.MaxRejectedMessage && strings.IndexFunc(r.Reason+r.Message, special) < 0 {
			return r
		}
	}
	return nil
}

// isUID reports whether s is a UUID in the one form that API servers write. uuid.Parse accepts other forms of it, too:
// upper case, braces, the prefix urn:uuid: and no hyphens. UIDs are compared as text, so two forms of one UID would be
// two clusters.
func isUID(s string) bool {
	groups := strings.Split(s, "-")
	if len(s) != 36 || len(groups) != 5 || strings.Trim(s, "0123456789abcdef-") != "" {
		return false
	}
	for i, digits := range []int{8, 4, 4, 4, 12} {
		if len(groups[i]) != digits {
			return false
		}
	}
	return true
}

// String shows a port as "http/TCP/80", or "TCP/80" if it has no name.
func (p ServicePort) String() string {
	text := fmt.Sprintf("%s/%d", p.Protocol, p.Port)
	if p.Name != "" {
		text = p.Name + "/" + text
	}
	return text
}
