package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/deploy"
)

// An UpgradePlan says what has to change, and in which order, until a clusterset has the version of this program (docs/spec/operations.md 5).
type UpgradePlan struct {
	Version  string        `json:"version"` // of this program
	Set      int           `json:"set"`     // version of the CRDs, policies and rights that it brings
	Steps    []UpgradeStep `json:"steps"`   // in the order in which they have to be taken; empty if there is nothing to do
	Warnings []string      `json:"warnings,omitempty"`
}

// An UpgradeStep is one thing to do.
type UpgradeStep struct {
	Where  string   `json:"where"` // "broker" or "member" and its id
	What   string   `json:"what"`
	How    string   `json:"how"`              // a command, or what to do by hand
	Reason []string `json:"reason,omitempty"` // what is not as this program wants it
}

// UpgradeOptions are the options of [UpgradeCheck].
type UpgradeOptions struct {
	StatusOptions
	Version string // of this program
}

// UpgradeCheck compares a clusterset with this program. It only reads. Without onBroker, the broker is read with the credential of the
// member. An error means that there is no plan: something could not be read, or the clusterset is newer than this program.
func UpgradeCheck(ctx context.Context, onBroker, onMember *rest.Config, o UpgradeOptions) (plan UpgradePlan, err error) {
	plan = UpgradePlan{Version: o.Version, Set: deploy.Version, Steps: []UpgradeStep{}}
	if onBroker == nil {
		if onBroker, err = BrokerOf(ctx, onMember, o.Namespace); err != nil {
			return plan, fmt.Errorf("upgrade: %w", err)
		}
	}
	u := &upgrader{plan: &plan, namespace: o.Namespace}
	for _, step := range []func() error{
		func() error { return u.open(onBroker, onMember) },
		func() error { return u.checkBroker(ctx) },
		func() error { return u.checkMember(ctx) },
		func() error { return u.checkPrograms(ctx, onBroker, o) },
	} {
		if err := step(); err != nil {
			return plan, fmt.Errorf("upgrade: %w", err)
		}
	}
	return plan, nil
}

// An upgrader is one call of [UpgradeCheck]. Its steps run in the order of their declaration.
type upgrader struct {
	broker, member *cluster
	namespace      string // of the controller
	plan           *UpgradePlan
}

func (u *upgrader) open(onBroker, onMember *rest.Config) (err error) {
	if u.broker, err = open(RoleBroker, onBroker, WriteOptions{}); err != nil {
		return err
	}
	u.member, err = open(RoleMember, onMember, WriteOptions{})
	return err
}

// add adds a step if there is a reason for it.
func (u *upgrader) add(where, what, how string, reasons []string) {
	if len(reasons) > 0 {
		u.plan.Steps = append(u.plan.Steps, UpgradeStep{Where: where, What: what, How: how, Reason: reasons})
	}
}

func (u *upgrader) checkBroker(ctx context.Context) error {
	reasons, err := u.differences(ctx, u.broker, brokerSet())
	u.add("broker", "update CRDs, policies and rights", "clusterset broker init", reasons)
	return err
}

func (u *upgrader) checkMember(ctx context.Context) error {
	local, err := u.member.localState(ctx)
	if err != nil {
		return err
	}
	where := "member " + local.clusterID()
	crds := slices.Clone(local.olderCRDs)
	for _, err := range local.invalidCRDs {
		crds = append(crds, err.Error())
	}
	u.add(where, "update CRDs of the MCS API, which other programs may use, too", "kubectl apply, of the CRDs of the release of mcs-api that is named", crds)
	for _, mode := range []deploy.Mode{deploy.OnlyController, deploy.OnlyDNS, deploy.AllInOne} {
		if err := u.checkRights(ctx, where, mode); err != nil {
			return err
		}
	}
	policies := deploy.Member
	if local.aboutVersion == "v1alpha1" {
		policies = deploy.MemberV1alpha1()
	}
	reasons, err := u.differences(ctx, u.member, stamped(parse(policies)))
	if err != nil {
		return err
	}
	for _, d := range memberCRDs() {
		existing, err := u.member.find(ctx, d)
		if err != nil {
			return err
		}
		if existing == nil {
			reasons = append(reasons, describe(d)+" does not exist")
		}
	}
	u.add(where, "update policies, rights and quota", "clusterset join, with the flags of the first join", reasons)
	return nil
}

// checkRights compares the rights of one kind of deployment. A cluster without its ClusterRole does not have that kind.
func (u *upgrader) checkRights(ctx context.Context, where string, mode deploy.Mode) error {
	options := deploy.Options{Mode: mode, Namespace: u.namespace}
	text, err := deploy.Rights(options)
	if err != nil {
		return err
	}
	objects := parse(text)
	role := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "ClusterRole" })
	existing, err := u.member.find(ctx, objects[role])
	if err != nil || existing == nil {
		return err
	}
	creates := createsNamespaces(existing)
	if creates { // someone has chosen that
		options.Values = map[string]any{"createNamespaces": true}
		if text, err = deploy.Rights(options); err != nil {
			return err
		}
		objects = parse(text)
	}
	path := "deploy/" + string(mode) + "/rbac.yaml"
	how := "kubectl apply -f " + path
	switch {
	case isInstalled(existing):
		how = "clusterset join, with the flags of the first join"
	case creates:
		how = "helm upgrade, or apply " + path + " with the verb create for namespaces"
	case u.namespace != wellknown.ControllerNamespace:
		how = "apply " + path + " with the namespace " + u.namespace + ", or helm upgrade"
	}
	reasons, err := u.differences(ctx, u.member, objects)
	u.add(where, "update rights", how, reasons)
	return err
}

// createsNamespaces reports whether a ClusterRole has the right that "import_namespaces create" needs.
func createsNamespaces(role *unstructured.Unstructured) bool {
	rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
	return slices.ContainsFunc(rules, func(rule any) bool {
		fields, _ := rule.(map[string]any)
		resources, _, _ := unstructured.NestedStringSlice(fields, "resources")
		verbs, _, _ := unstructured.NestedStringSlice(fields, "verbs")
		return slices.Contains(resources, "namespaces") && slices.Contains(verbs, "create")
	})
}

// differences lists the objects that are not as this program wants them. A newer one is an error.
func (u *upgrader) differences(ctx context.Context, c *cluster, set []*unstructured.Unstructured) (reasons []string, err error) {
	for _, o := range set {
		existing, err := c.find(ctx, o)
		switch {
		case apierrors.IsForbidden(err):
			u.plan.Warnings = append(u.plan.Warnings, err.Error())
		case err != nil:
			return nil, err
		case existing == nil:
			reasons = append(reasons, describe(o)+" does not exist")
		case versionOf(existing) > deploy.Version:
			return nil, fmt.Errorf("%s: %s is of version %d, and this program has version %d: want a clusterset as new as that",
				c.role, describe(o), versionOf(existing), deploy.Version)
		case versionOf(o) > versionOf(existing):
			reasons = append(reasons, fmt.Sprintf("%s is of version %d, and this program brings version %d", describe(o), versionOf(existing), versionOf(o)))
		case !covers(withoutMetadata(existing), withoutMetadata(o)):
			reasons = append(reasons, describe(o)+" differs from that of this program")
		}
	}
	return reasons, nil
}

func withoutMetadata(o *unstructured.Unstructured) map[string]any {
	content := make(map[string]any, len(o.Object))
	for key, value := range o.Object {
		if key != "metadata" && key != "status" {
			content[key] = value
		}
	}
	return content
}

// checkPrograms names the members whose controller has another version. Members may differ while an upgrade lasts.
func (u *upgrader) checkPrograms(ctx context.Context, onBroker *rest.Config, o UpgradeOptions) error {
	all, err := Members(ctx, onBroker, nil, o.StatusOptions)
	if err != nil {
		return errors.Unwrap(err)
	}
	for _, m := range all.States {
		if m.Version == o.Version {
			continue
		}
		reason := "its controller has never run"
		if m.Version != "" {
			reason = fmt.Sprintf("its controller is of version %s", m.Version)
		}
		u.add("member "+m.ClusterID, "roll out the controller, then DNS", fmt.Sprintf("an image of version %s", o.Version), []string{reason})
	}
	return nil
}
