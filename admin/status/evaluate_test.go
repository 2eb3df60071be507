package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset/admin/networks"
	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// docs/spec/controller.md 3.4: exports that lack addresses are a problem, and named.
func TestStatusNamesUndeclaredAddresses(t *testing.T) {
	cluster := &ClusterState{Exports: ExportState{}}
	for i := range 12 {
		e := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("db-%02d", i),
			Generation: 1}}
		e.Status.Conditions = []metav1.Condition{{
			Type: string(mcsv1beta1.ServiceExportConditionReady), Status: metav1.ConditionTrue, ObservedGeneration: 1,
			Reason: wellknown.ReasonUndeclaredAddresses,
		}}
		if i == 0 {
			e.Status.Conditions[0].Reason = string(mcsv1beta1.ServiceExportReasonExported)
		}
		cluster.Exports.add(e)
	}
	state := State{Cluster: cluster}
	evaluation{State: &state, now: time.Now()}.evaluateMember(cluster, nil)
	hasProblem(
		t, state,
		"endpoints of shop/db-01, shop/db-02, shop/db-03, shop/db-04, shop/db-05, shop/db-06, shop/db-07, shop/db-08, "+
			"shop/db-09, shop/db-10 and 1 more have addresses in none of the networks that this cluster declared")
	if cluster.Exports.Ready != 12 {
		t.Errorf("%d of 12 exports are ready, want all", cluster.Exports.Ready)
	}
}

// docs/spec/install.md 3: a network without Pods is a warning where no part of it can be declared on purpose.
func TestStatusNamesUndeclaredNetworks(t *testing.T) {
	for _, tt := range []struct {
		name     string
		network  networks.Declared
		declared []string
		want     bool
	}{
		{"a new IPPool", networks.Declared{CIDR: "10.5.0.0/16", Source: "IPPool b"}, []string{"10.4.0.0/16", "fd00::/48"}, true},
		{"a part is declared", networks.Declared{CIDR: "10.4.0.0/15", Source: "IPPool b"}, []string{"10.4.0.0/16"}, false},
		{"of a Node, in part declared", networks.Declared{CIDR: "10.4.0.0/15", Source: "Nodes", PerNode: true},
			[]string{"10.4.0.0/16"}, true},
		// which is a warning of its own
		{"nothing is declared", networks.Declared{CIDR: "10.5.0.0/16", Source: "IPPool b"}, nil, false},
	} {
		var state State
		evaluation{State: &state, now: time.Now()}.evaluateOutside(&OutsideState{Networks: []networks.Declared{tt.network},
			declared: tt.declared})
		if got := strings.Contains(strings.Join(state.Warnings, "\n"),
			"network "+tt.network.CIDR+" ("+tt.network.Source+") is not declared: "); got != tt.want {
			t.Errorf("%s: warnings %q, want one: %t", tt.name, state.Warnings, tt.want)
		}
	}
}

// Exports that are not ready are problems, so that the command ends with 2, and are named; of many the first ones.
func TestStatusNamesExports(t *testing.T) {
	cluster := &ClusterState{}
	for i := range 12 {
		e := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("db-%02d", i)}}
		e.Status.Conditions = []metav1.Condition{{Type: "Valid", Status: metav1.ConditionFalse, Reason: "NoService",
			Message: "There is no Service."}}
		cluster.Exports.add(e)
	}
	state := State{Cluster: cluster}
	evaluation{State: &state, now: time.Now()}.evaluateMember(cluster, nil)
	hasProblem(t, state, "export shop/db-00 is not ready, NoService: There is no Service\nexport shop/db-01 is not ready")
	hasProblem(t, state, "export shop/db-09 is not ready, NoService: There is no Service\n2 more exports are not ready")
	if len(state.Warnings) > 1 {
		t.Errorf("warnings %q, want that of the networks alone", state.Warnings)
	}
}

// docs/spec/operations.md 1: an import that waits is normal at first, and a problem after that.
func TestStatusNamesImports(t *testing.T) {
	now := time.Now()
	imp := func(name string, status metav1.ConditionStatus, reason mcsv1beta1.ServiceImportConditionReason,
		age time.Duration) *mcsv1beta1.ServiceImport {
		i := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		if status != "" {
			i.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: status, Reason: string(reason), Message: "Why.",
				LastTransitionTime: metav1.NewTime(now.Add(-age))}}
		}
		return i
	}
	deleted := imp("deleted", metav1.ConditionFalse, mcsv1beta1.ServiceImportReasonPending, time.Hour)
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	imports := importList{ours: []*mcsv1beta1.ServiceImport{
		imp("ready", metav1.ConditionTrue, mcsv1beta1.ServiceImportReasonReady, 0), imp("new", "", "", 0), deleted,
		imp("waits", metav1.ConditionFalse, mcsv1beta1.ServiceImportReasonPending, wellknown.PendingImport-1),
		imp("quota", metav1.ConditionFalse, mcsv1beta1.ServiceImportReasonPending, wellknown.PendingImport),
		imp("families", metav1.ConditionFalse, mcsv1beta1.ServiceImportReasonIPFamilyNotSupported, 0),
	}}
	cluster := &ClusterState{NotReadyImports: imports.notReady(now), CredentialExpires: new(now.Add(time.Hour)),
		Leader: "pod-1", LeaderRenewed: &now}
	state := State{Cluster: cluster}
	evaluation{State: &state, now: now}.evaluateMember(cluster, nil)
	if got, want := strings.Join(
		state.Problems, "\n"),
		"import shop/quota is not ready, Pending: Why\nimport shop/families is not ready, IPFamilyNotSupported: Why"; got != want {
		t.Errorf("problems\n%s\nwant\n%s", got, want)
	}
}

// docs/spec/controller.md 5.3: a missing CRD is the cause of what the controller no longer does, as far as it waits.
func TestStatusNamesCRDs(t *testing.T) {
	now := time.Now()
	const frozen, exports = "the controller is frozen (lost_members): gone; suspended: all",
		"export shop/db is not ready, NotReconciled: None"
	for _, tt := range []struct {
		name    string
		own     *MemberState
		cluster ClusterState
		want    string
	}{
		{"the controller waits", &MemberState{This: true, Expired: true}, ClusterState{ClusterSet: "set"},
			"no CRD; until then the controller waits and sends no heartbeat, so other members remove what this cluster exports"},
		{"the kind ClusterProperty is missing", &MemberState{This: true, Expired: true}, ClusterState{},
			"no CRD; until then the controller waits and sends no heartbeat, so other members remove what this cluster exports"},
		{"the controller runs", &MemberState{This: true}, ClusterState{ClusterSet: "set"},
			"no CRD\n" + frozen + "\n" + exports},
		{"no access to the broker", nil, ClusterState{ClusterSet: "set"}, "no CRD"},
	} {
		c := &tt.cluster
		c.CRDs, c.Leader, c.LeaderRenewed, c.CredentialExpires = []string{"no CRD"}, "pod-1", &now, new(now.Add(time.Hour))
		c.Frozen = []wellknown.Freeze{{Reason: "lost_members", Detail: "gone", Suspends: "all"}}
		c.Exports = ExportState{NotReady: 1, NotReadyExports: []ServiceState{{"shop", "db", "NotReconciled", "None."}}}
		state := State{Cluster: c, Broker: &BrokerState{}}
		if tt.own != nil {
			state.Members = []MemberState{*tt.own}
		}
		evaluation{State: &state, now: now, memberRead: true, brokerRead: tt.own != nil}.evaluate()
		if got := strings.Join(state.Problems, "\n"); got != tt.want {
			t.Errorf("%s: problems\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// Controllers of different versions are a warning, whether they run inside of CoreDNS or not.
func TestStatusVersions(t *testing.T) {
	for _, tt := range []struct {
		versions []string
		want     string
	}{
		{[]string{"v1.0.0", "1.14.2+clusterset-v1.0.0", ""}, ""},
		{[]string{"v1.1.0", "1.14.2+clusterset-v1.0.0", "1.14.1+clusterset-v1.0.0"}, "different versions, v1.0.0, v1.1.0: "},
	} {
		var state State
		for _, v := range tt.versions {
			state.Members = append(state.Members, MemberState{Version: v})
		}
		evaluation{State: &state}.evaluateVersions()
		if got := strings.Join(state.Warnings, "\n"); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("versions %q: warnings %q, want %q", tt.versions, got, tt.want)
		}
	}
}

// docs/spec/controller.md 7.9: status names the members with other options than those of the clusterset.
func TestStatusComparesSettings(t *testing.T) {
	const command = `run "clusterset join --vip=cidr --vip-cidr-pool=10.250.0.0/15"`
	members := []MemberState{{ClusterID: "east", VIP: "cidr 10.250.0.0/15", Merge: "first"},
		{ClusterID: "west", VIP: "derived", Merge: "kep"}, {ClusterID: "old"}}
	const change = " there, or give its controller this option"
	for clusterset, want := range map[BrokerState]string{
		{VIP: "cidr 10.250.0.0/15"}: `member "west" has vip derived, and the clusterset has vip cidr 10.250.0.0/15: ` + command + change,
		{Merge: "first"}:            `member "west" has merge kep, and the clusterset has merge first: run "clusterset join"` + change,
		{}:                          "",
	} {
		state := State{Members: members, Broker: &clusterset}
		evaluation{State: &state}.evaluateSettings()
		if got := strings.Join(state.Problems, "\n"); got != want {
			t.Errorf("clusterset with %+v: problems %q, want %q", clusterset, got, want)
		}
	}
}

// What is outside of the networks is kept for a minute, and not for other networks.
func TestSlowChecksEnd(t *testing.T) {
	now := time.Now()
	k := &SlowChecks{at: now, declared: []string{"10.0.0.0/16"}, outside: &OutsideState{}}
	if k.fresh(k.declared, now) == nil {
		t.Error("what is outside of the networks is not kept")
	}
	if k.fresh(k.declared, now.Add(slowCheckLife)) != nil || k.fresh(nil, now) != nil {
		t.Error("what is outside of the networks is kept for longer than a minute, or for other networks")
	}
}

func hasProblem(t *testing.T, s State, want string) {
	t.Helper()
	if !strings.Contains(strings.Join(s.Problems, "\n"), want) {
		t.Errorf("problems %q, want %s", s.Problems, want)
	}
}
