package join

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterset-dns/clusterset/admin/status"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/merge"
	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/tier"
)

// docs/spec/controller.md 7.9: what decides on the option vip of a member.
func TestChooseVIP(t *testing.T) {
	const pool = "10.250.0.0/15"
	for _, tt := range []struct {
		name, clusterset, given, flag, flagPool, flagCIDR, own string
		want, wantCIDR, wantPool                               string
		told                                                   bool
	}{
		{name: "nothing is said", want: "derived"},
		{name: "the clusterset", clusterset: "none", want: "none", told: true},
		{name: "the clusterset, cidr", clusterset: "cidr " + pool, want: "cidr " + pool, wantCIDR: VIPAuto, wantPool: pool,
			told: true},
		{name: "a flag", clusterset: "cidr", given: "derived", flag: "derived", want: "derived"},
		{name: "a flag, with the pool of the clusterset", clusterset: "cidr " + pool, given: "cidr", flag: "cidr",
			want: "cidr " + pool, wantPool: pool},
		{name: "an earlier join", clusterset: "cidr " + pool, given: "cidr", want: "cidr"},
		{name: "an earlier join, with its pool", clusterset: "cidr", given: "cidr " + pool, want: "cidr " + pool,
			wantPool: pool},
		{name: "its VIP CIDR", clusterset: "none", own: "243.7.0.0/16", want: "cidr"},
		{name: "a network by flag", clusterset: "cidr " + pool, flagCIDR: "10.251.0.0/16", want: "cidr " + pool,
			wantCIDR: "10.251.0.0/16", wantPool: pool, told: true},
		{name: "a pool by flag", clusterset: "cidr", flagPool: pool, want: "cidr " + pool, wantCIDR: VIPAuto, wantPool: pool,
			told: true},
		{name: "no network by flag", clusterset: "cidr", flagCIDR: CIDRNone, want: "derived", wantCIDR: CIDRNone},
	} {
		in := joinInput{options: Options{ClusterID: "east", VIPCIDR: tt.flagCIDR, VIPPool: tt.flagPool,
			Values: Values{VIP: tt.flag}}}
		in.members = []v1alpha1.Member{{ObjectMeta: metav1.ObjectMeta{Name: "east"},
			Spec: v1alpha1.MemberSpec{VIPCIDRs: strings.Fields(tt.own)}}}
		var err error
		if in.clustersetVIP, err = merge.ParseVIPSetting(strings.Fields(tt.clusterset)); err != nil {
			t.Fatal(err)
		}
		if err := in.chooseVIP(tt.given); err != nil || in.vip.String() != tt.want || in.vipFromClusterset != tt.told ||
			in.options.VIPCIDR != tt.wantCIDR {
			t.Errorf("%s: vip %s (of the clusterset %t), VIP CIDR %q, error %v, want %s (%t), %q", tt.name, in.vip,
				in.vipFromClusterset, in.options.VIPCIDR, err, tt.want, tt.told, tt.wantCIDR)
		}
		if want := tt.wantPool; want != "" && !strings.HasPrefix(in.options.VIPPool, want+",") || want == "" &&
			in.options.VIPPool != merge.DefaultVIPNetworks.String() {
			t.Errorf("%s: pool %s, want that of %q", tt.name, in.options.VIPPool, want)
		}
	}
	for given, want := range map[string]string{"maybe": `"maybe": want one of derived, cidr, none`, "derived 10.0.0.0/8": "want a network only after cidr"} {
		if err := (&joinInput{}).chooseVIP(given); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", given, err, want)
		}
	}
}

// docs/spec/controller.md 7.9: join warns of an option vip that is not that of the clusterset.
func TestOtherSettings(t *testing.T) {
	clusterset, err := merge.ParseVIPSetting([]string{"cidr", "10.250.0.0/15"})
	if err != nil {
		t.Fatal(err)
	}
	in := joinInput{clustersetVIP: clusterset, vip: merge.VIPSetting{Mode: merge.NoVIP}}
	if got, want := strings.Join(in.vipWarnings(v1alpha1.MemberSpec{}), "\n"),
		"this cluster has vip none, and the clusterset has vip cidr 10.250.0.0/15: "+
			`run "clusterset join --vip=cidr --vip-cidr-pool=10.250.0.0/15"`; !strings.HasPrefix(got, want) {
		t.Errorf("join warns %q, want %q", got, want)
	}
}

// docs/spec/controller.md 7.9: the setting stands at the broker, where joins and status read it.
func TestClustersetVIP(t *testing.T) {
	tier.All(t)
	all := startControlPlanes(t, 2)
	onBroker, east := all[0], all[1]
	initAs := func(vip, pool string) {
		t.Helper()
		if err := Init(t.Context(), onBroker.Config(), InitOptions{VIP: vip, VIPPool: pool}); err != nil {
			t.Fatal(err)
		}
	}
	initAs("", "")
	if joined := mustJoin(t, onBroker, east, options("east")); joined.VIP != "derived" || joined.VIPCIDRs != nil ||
		strings.Contains(strings.Join(joined.Warnings, "\n"), "vip") {
		t.Errorf("without a setting: vip %s, VIP CIDRs %q, warnings %q, want derived and no more", joined.VIP, joined.VIPCIDRs,
			joined.Warnings)
	}
	initAs("cidr", "10.250.0.0/15")
	if err := Init(t.Context(), onBroker.Config(), InitOptions{Merge: "first"}); err != nil {
		t.Fatal(err)
	}
	initAs("", "") // as an upgrade does
	o := options("east")
	var said []string
	o.Progress = func(line string) { said = append(said, line) }
	if joined := mustJoin(t, onBroker, east, o); joined.VIP != "cidr 10.250.0.0/15" || strings.Join(joined.VIPCIDRs, ",") != "10.250.0.0/16" {
		t.Errorf("vip %s, VIP CIDRs %s, want those of the clusterset", joined.VIP, joined.VIPCIDRs)
	}
	if !slices.Contains(said, "vip cidr 10.250.0.0/15, as the clusterset has it: --vip chooses another one") {
		t.Errorf("join said %q, want where vip is from", said)
	}
	if err := onBroker.AwaitRights(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := statusOf(t, nil, east.Config(), status.Defaults()).Broker; got.VIP != "cidr 10.250.0.0/15" ||
		got.Merge != "first" {
		t.Errorf("status has vip %q and merge %q of the clusterset, want cidr 10.250.0.0/15 and first", got.VIP, got.Merge)
	}
	installedVIP(t, onBroker, east)
	initAs(VIPAny, "")
	if got := statusOf(t, nil, east.Config(), status.Defaults()).Broker.VIP; got != "" {
		t.Errorf("status has vip %q of the clusterset, want none", got)
	}
	for vip, want := range map[string]string{"maybe": "want one of derived, cidr, none", "cidr": "ten"} {
		if err := Init(t.Context(), onBroker.Config(), InitOptions{VIP: vip, VIPPool: "ten"}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("init with vip %s and the pool ten: %v, want %s", vip, err, want)
		}
	}
	if err := Init(t.Context(), onBroker.Config(), InitOptions{Merge: "union"}); err == nil || !strings.Contains(err.Error(), `"union": want one of [kep lighthouse first]`) {
		t.Errorf("init with merge union: %v, want it rejected", err)
	}
}

// installedVIP installs the controller, which gets the option with its network; a later join keeps it.
func installedVIP(t *testing.T, onBroker, east *controlplane.ControlPlane) {
	t.Helper()
	o := options("east")
	o.Components, o.Values.Image, o.Wait = []Component{ComponentController}, "registry.example.org/clusterset:1", false
	for range 2 {
		if joined := mustJoin(t, onBroker, east, o); joined.VIP != "cidr 10.250.0.0/15" || strings.Join(joined.VIPCIDRs, ",") != "10.250.0.0/16" {
			t.Errorf("vip %s, VIP CIDRs %s, want those of the clusterset", joined.VIP, joined.VIPCIDRs)
		}
	}
	deployment, err := east.Dynamic().Resource(schema.GroupVersionResource{Group: "apps", Version: "v1",
		Resource: "deployments"}).
		Namespace(wellknown.ControllerNamespace).Get(t.Context(), "clusterset-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	if !slices.Contains(args, "--vip=cidr 10.250.0.0/15") || !slices.Contains(args, "--merge=first") {
		t.Errorf("args of the controller %q, want the options of the clusterset", args)
	}
}
