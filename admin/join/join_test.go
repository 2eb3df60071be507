package join

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

const strangerUID = "11111111-2222-3333-4444-555555555555"

// A badJoin is a join that returns an error.
type badJoin struct {
	name   string
	change func(*Options)
	want   string
}

func (r badJoin) test(t *testing.T, onBroker, member *controlplane.ControlPlane) {
	t.Run(r.name, func(t *testing.T) {
		o := options("east")
		if r.change != nil {
			r.change(&o)
		}
		before := snapshot(t, versions, onBroker, member)
		_, err := Join(t.Context(), onBroker.Config(), member.Config(), o)
		if err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("error %v, want %s", err, r.want)
		}
		sameObjects(t, r.name, snapshot(t, versions, onBroker, member), before)
	})
}

// joinInputs is a cluster without a name and a broker with another member, "stranger".
func joinInputs() *joinInput {
	return &joinInput{
		options: options("east"), local: read.Local{UID: "east-uid"}, brokerUID: "hub-uid",
		found: networks.Found{Services: []networks.Network{{Prefix: netip.MustParsePrefix("10.102.0.0/16")}}},
		members: []v1alpha1.Member{{
			ObjectMeta: metav1.ObjectMeta{Name: "stranger", Annotations: map[string]string{broker.AnnotationClusterSet: "demo"}},
			Spec: v1alpha1.MemberSpec{
				KubeSystemUID: strangerUID, PodCIDRs: []string{"10.9.0.0/16"}, ServiceCIDRs: []string{"10.102.0.0/16"},
				VIPCIDRs: []string{"243.0.0.0/16"},
			},
		}},
	}
}

// joined makes the cluster a member, with the id east, of a broker.
func (in *joinInput) joined(brokerUID string) {
	in.local.ID = in.local.Property(about.ClusterIDName, "east")
	in.local.Membership = in.local.MembershipProperty("demo", map[string]string{broker.AnnotationBrokerUID: brokerUID})
	in.members = append(in.members, v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "east"}, Spec: v1alpha1.MemberSpec{
		KubeSystemUID: string(in.local.UID), Namespace: broker.NamespaceName(DefaultPrefix, "east"),
	}})
}

// admit decides as a join does, from what it has read.
func (in *joinInput) admit() (Admission, error) {
	a, err := in.admission()
	if err == nil {
		err = in.declareNetworks(a.ClusterID)
	}
	if err == nil {
		err = in.admitNetworks(&a)
	}
	return a, err
}

// TestBadJoins: if a cluster cannot join, the error has the reason and the remedy.
func TestBadJoins(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*joinInput)
		want   string
	}{
		{"no id", func(in *joinInput) { in.options.ClusterID = "" },
			"no cluster id: want --cluster-id; --cluster-id=kube-system-uid uses the UID"},
		{"id of no form", func(in *joinInput) { in.options.ClusterID = "East" }, `cluster id "East": want one RFC 1123 label, or two joined by a dot`},
		{
			"id is taken", func(in *joinInput) { in.options.ClusterID = "stranger" },
			`cluster id "stranger" is taken by the cluster with kube-system UID ` + strangerUID +
				`: run "clusterset leave" in that cluster first ("clusterset broker remove stranger" if it no longer exists), or choose another id`,
		},
		{
			"clusterset of no other member", func(in *joinInput) { in.options.ClusterSet = "x" },
			`clusterset "x": member "stranger" of this broker is in clusterset "demo"; want that name, or no --clusterset`,
		},
		{"prefix", func(in *joinInput) { in.options.Prefix = "a.b" }, `namespace prefix "a.b": want an RFC 1123 label of at most 40 octets`},
		{"pod CIDR", func(in *joinInput) { in.options.PodCIDRs = []string{"10.0.0.7/8"} }, `CIDR "10.0.0.7/8": want a network`},
		{
			"service CIDRs overlap", func(in *joinInput) { in.options.AllowOverlap, in.options.Endpoints = false, "service_ip" },
			`service CIDR 10.102.0.0/16 overlaps with 10.102.0.0/16 of member "stranger": want networks that no other member has`,
		},
		{
			"pod CIDRs overlap", func(in *joinInput) {
				in.options.AllowOverlap, in.options.PodCIDRs = false,
					[]string{"10.8.0.0/15"}
			},
			`pod CIDR 10.8.0.0/15 overlaps with 10.9.0.0/16 of member "stranger": want networks that no other member has`,
		},
		{
			"VIP CIDR outside of the pool", func(in *joinInput) { in.options.VIPCIDR = "10.7.0.0/16" },
			"vip CIDR 10.7.0.0/16 is not in 243.0.0.0/8: want a part of --vip-cidr-pool",
		},
		{
			"VIP CIDR of another", func(in *joinInput) { in.options.VIPCIDR = "243.0.128.0/17" },
			`vip CIDR 243.0.128.0/17 overlaps with 243.0.0.0/16 of member "stranger"`,
		},
		{
			"no VIP CIDR is free", func(in *joinInput) { in.options.VIPCIDR, in.options.VIPPool = VIPAuto, "243.0.0.0/16" },
			"no /16 in 243.0.0.0/16 is free: want a larger --vip-cidr-pool",
		},
		{"the broker itself", func(in *joinInput) { in.local.UID = "hub-uid" }, "broker and member are the same cluster"},
		{
			"another id after a crash", func(in *joinInput) {
				in.joined("hub-uid")
				in.local = read.Local{UID: "east-uid"}
				in.options.ClusterID = "west"
			},
			`cluster id "west": this cluster has the id "east" on the broker`,
		},
		{
			"another id", func(in *joinInput) { in.joined("hub-uid"); in.options.ClusterID = "west" },
			`cluster id "west": this cluster is a member with the id "east"; run "clusterset leave" first`,
		},
		{
			"another prefix", func(in *joinInput) { in.joined("hub-uid"); in.options.Prefix = "x" },
			`namespace prefix "x": the broker namespace of this member is clusterset-`,
		},
		{"another clusterset", func(in *joinInput) { in.joined("hub-uid"); in.options.ClusterSet = "x" }, `clusterset "x": this cluster is a member of "demo"`},
		{
			"member elsewhere", func(in *joinInput) { in.joined("old-uid") },
			`run "clusterset leave" with the old broker first (--force if it no longer exists), or join with --replace-broker`,
		},
	} {
		in := joinInputs()
		tt.change(in)
		if _, err := in.admit(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %s", tt.name, err, tt.want)
		}
	}

	for want, config := range map[string]*rest.Config{
		`broker server "http://broker": want a URL such as https://`: {Host: "http://broker"},
		"insecure-skip-tls-verify": {Host: "https://broker",
			TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
	} {
		if _, _, err := memberKubeconfig(config, "", "ns"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("kubeconfig for %s: error %v, want %s", config.Host, err, want)
		}
	}
}

// TestAdmission: the admission of a cluster without values of its own, and of one that moves to another broker.
func TestAdmission(t *testing.T) {
	in := joinInputs()
	in.options.VIPCIDR = VIPAuto
	if a, err := in.admit(); err != nil || strings.Join(a.Spec.VIPCIDRs, ",") != "243.1.0.0/16" || a.ClusterSet != "demo" {
		t.Errorf("VIP CIDRs %s, clusterset %s, error %v; want the first that is free, 243.1.0.0/16, and that of the other member, demo", a.Spec.VIPCIDRs, a.ClusterSet, err)
	}
	in = joinInputs()
	in.joined("old-uid")
	in.options.ReplaceBroker = true
	in.members[0].Annotations[broker.AnnotationClusterSet] = "other"
	a, err := in.admit()
	if warnings := strings.Join(in.warnings(a), "\n"); err != nil || a.ClusterID != "east" ||
		!strings.Contains(warnings, `this cluster is in clusterset "demo", but member "stranger" of this broker is in "other"`) {
		t.Errorf("joined as %s with error %v, warnings %q, want east, and a warning of the other clusterset", a.ClusterID,
			err, warnings)
	}
}

// TestBadJoin: a join that cannot succeed writes nothing, and replaces no CRD.
func TestBadJoin(t *testing.T) {
	tier.All(t)
	all := startControlPlanes(t, 2)
	onBroker, east := all[0], all[1]
	badJoin{name: "not initialised", want: `the broker is not initialised: CustomResourceDefinition members.broker.clusterset-dns.io does not exist; run "clusterset broker init" first`}.
		test(t, onBroker, east)
	initBroker(t, onBroker)
	badJoin{"id of no form", func(o *Options) { o.ClusterID = "East" }, `cluster id "East": want one RFC 1123 label, or two joined by a dot`}.test(t, onBroker, east)
	old := read.Parse(mcscrd.ServiceImportCRD)[0]
	dropField(old, "ips")
	if err := east.Apply(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	badJoin{name: "a CRD that is too old",
		want: "CRD serviceimports.multicluster.x-k8s.io has no field spec.ips at v1beta1: update it"}.test(t, onBroker, east)
}

func wantWarning(t *testing.T, j Result, want string) {
	t.Helper()
	if !strings.Contains(strings.Join(j.Warnings, "\n"), want) {
		t.Errorf("warnings %q, want %s", j.Warnings, want)
	}
}

// TestPodCIDRsOfNodes: only pod CIDRs that were read from Nodes cause a warning.
func TestPodCIDRsOfNodes(t *testing.T) {
	const none, few = "no pod CIDRs found", "pod CIDRs are those of the current nodes"
	for _, tt := range []struct {
		name               string
		given, pods, nodes string
		want               string // the beginning of the warning; "" for none
	}{
		{name: "none", want: none},
		{name: "of nodes", pods: "10.1.0.0/24", nodes: "10.1.0.0/24", want: few},
		{name: "of nodes, for one family", pods: "10.1.0.0/16 fd00:1::/64", nodes: "fd00:1::/64", want: few},
		{name: "given, and no nodes", given: "10.1.0.0/16", pods: "10.1.0.0/16"},
		{name: "given, and nodes in it", given: "10.1.0.0/16", pods: "10.1.0.0/16", nodes: "10.1.0.0/24"},
		{name: "given, the same as those of nodes", given: "10.1.0.0/24", pods: "10.1.0.0/24", nodes: "10.1.0.0/24"},
		{name: "declared before, and nodes in it", pods: "10.1.0.0/16", nodes: "10.1.0.0/24"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := joinInput{pods: prefixes(t, tt.pods), options: Options{PodCIDRs: strings.Fields(tt.given)}}
			for _, p := range prefixes(t, tt.nodes) {
				in.found.Pods = append(in.found.Pods, networks.Network{Prefix: p, Source: "Nodes", PerNode: true})
			}
			if got := strings.Join(in.warnings(Admission{}), "\n"); !strings.HasPrefix(got, tt.want) ||
				(got == "") != (tt.want == "") {
				t.Errorf("warnings %q, want %q", got, tt.want)
			}
		})
	}
}

// dropField removes a field of spec from all versions of a CRD.
func dropField(crd *unstructured.Unstructured, name string) {
	all, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range all {
		unstructured.RemoveNestedField(v.(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties", name)
	}
	_ = unstructured.SetNestedSlice(crd.Object, all, "spec", "versions")
}

// TestClusterSetName: all members of a broker have one name; a member keeps the name that it has, also after an
// interrupted join.
func TestClusterSetName(t *testing.T) {
	member := func(id, name string) v1alpha1.Member {
		m := v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: id}}
		if name != "" {
			m.Annotations = map[string]string{broker.AnnotationClusterSet: name}
		}
		return m
	}
	for _, tt := range []struct {
		name, given, has string
		members          []v1alpha1.Member
		want, wantErr    string
	}{
		{name: "the first", want: DefaultClusterSet},
		{name: "the first, named", given: "prod", want: "prod"},
		{name: "beside others", members: []v1alpha1.Member{member("west", "prod")}, want: "prod"},
		{name: "beside older ones", members: []v1alpha1.Member{member("west", "")}, given: "prod", want: "prod"},
		{name: "another than others", members: []v1alpha1.Member{member("west", "prod")}, given: "test", wantErr: `is in clusterset "prod"; want that name`},
		{name: "the one it has, beside another", members: []v1alpha1.Member{member("west", "prod")}, given: "test",
			has: "test", want: "test"},
		{name: "after an interrupted join", members: []v1alpha1.Member{member("east", "prod")}, want: "prod"},
	} {
		in := &joinInput{options: Options{ClusterSet: tt.given}, members: tt.members}
		if tt.has != "" {
			in.local.Membership = &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"value": tt.has}}}
		}
		got, err := in.clusterSet("east")
		if got != tt.want || (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
			t.Errorf("%s: %q, %v, want %q, error %q", tt.name, got, err, tt.want, tt.wantErr)
		}
	}
}

// TestOverlap: which networks of two clusters must not overlap depends on what each exports.
func TestOverlap(t *testing.T) {
	west := v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Name: "west"}, Spec: v1alpha1.MemberSpec{
		PodCIDRs: []string{"10.2.0.0/16", "not a network"}, ServiceCIDRs: []string{"10.96.0.0/16"},
		LoadBalancerCIDRs: []string{"192.0.2.0/24"},
	}}
	for _, tt := range []struct {
		name, pods, services, balancers, endpoints string
		want                                       string
	}{
		{name: "none", pods: "10.1.0.0/16", services: "10.97.0.0/16"},
		{name: "services of clusters that export Pods", pods: "10.1.0.0/16", services: "10.96.0.0/16"},
		{name: "services of clusters that export them", pods: "10.1.0.0/16", services: "10.96.0.0/12",
			endpoints: "service_ip",
			want:      `service CIDR 10.96.0.0/12 overlaps with 10.96.0.0/16 of member "west"`},
		{name: "pods", pods: "10.1.0.0/16 10.2.7.0/24", want: `pod CIDR 10.2.7.0/24 overlaps with 10.2.0.0/16 of member "west"`},
		{name: "pods of a cluster that does not export them", pods: "10.2.0.0/16", services: "10.97.0.0/16",
			endpoints: "service_ip"},
		{name: "all networks of clusters that export load balancers", pods: "10.2.0.0/16", services: "10.96.0.0/16",
			balancers: "192.0.2.0/24", endpoints: "load_balancer"},
		{name: "load balancers and its pods", balancers: "10.2.0.0/24", endpoints: "load_balancer",
			want: `load balancer CIDR 10.2.0.0/24 overlaps with 10.2.0.0/16 of member "west"`},
		{name: "pods and its load balancers", pods: "192.0.0.0/16", endpoints: "load_balancer",
			want: `pod CIDR 192.0.0.0/16 overlaps with 192.0.2.0/24 of member "west"`},
		{name: "pods and its services", pods: "10.96.7.0/24", want: `pod CIDR 10.96.7.0/24 overlaps with 10.96.0.0/16 of member "west"`},
		{name: "services and its pods", services: "10.2.0.0/16", want: `service CIDR 10.2.0.0/16 overlaps with 10.2.0.0/16 of member "west"`},
	} {
		in := joinInput{options: Options{Endpoints: tt.endpoints}, members: []v1alpha1.Member{west}}
		in.pods, in.services, in.balancers = prefixes(t, tt.pods), prefixes(t, tt.services), prefixes(t, tt.balancers)
		if got := in.overlapping("east"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		err := in.checkNetworks("east")
		if (err != nil) != (tt.want != "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
		if got := in.overlapping("west"); got != "" {
			t.Errorf("%s: %q with itself", tt.name, got)
		}
		in.options.AllowOverlap = true
		if err := in.checkNetworks("east"); err != nil {
			t.Errorf("%s, allowed: %v", tt.name, err)
		}
		if warned := strings.Contains(strings.Join(in.warnings(Admission{ClusterID: "east"}), "\n"),
			"overlaps"); warned != (tt.want != "") {
			t.Errorf("%s, allowed: warned %t", tt.name, warned)
		}
	}
}
