package verify

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/verify/plan"
	"github.com/clusterset-dns/clusterset/api/about"
	"github.com/clusterset-dns/clusterset/api/broker"
)

// A verifier is one call of [Run]. run takes these steps, each of which ends in all members before the next begins:
//
//	createObjects ─► awaitPods ─► exportServices ─► awaitImports ─► askNames ─► withdraw ─► askGone        clean, whatever happened
//
// A step works on the members, or on the paths between them, at the same time (forEachMember, forEachPath). It adds a
// [verify.Check] for each outcome and goes on: only an error of the API that makes further steps impossible ends run.
// Package verify judges the checks, and those of plan that have no result count as not done.
type verifier struct {
	options   Options
	namespace string
	members   []*verifiedMember
	plan      []plan.Check
	left      []string // of earlier runs

	mu      sync.Mutex // guards what follows, and progress
	results []plan.Check
	wants   map[plan.Way][]string // addresses of the imports that were found

	resolved map[plan.Way]bool // in DNS
}

// A verifiedMember is a member and its known state.
type verifiedMember struct {
	Member
	*read.Cluster
	index     int // from 1
	clusterID string
	brokerUID string
	image     string

	created  types.UID // of the namespace; "" if it was not created
	families []corev1.IPFamily
	balanced bool   // it exports load balancers, and no headless Services
	podFault string // why its Pod does not run; "" if it does, or is not to run
}

// serviceNames returns the names of the Services of a member. Each member exports Services of its own, so that an
// import tells its owner.
func (m *verifiedMember) serviceName(kind plan.ServiceKind) string {
	if kind == plan.Headless {
		return fmt.Sprintf("peers-%d", m.index)
	}
	return fmt.Sprintf("web-%d", m.index)
}

func (m *verifiedMember) host() string { return fmt.Sprintf("host-%d", m.index) }

// namePrefix is what the names of namespaces of [Run] begin with.
const namePrefix = "clusterset-verify-"

// kinds begins with the headless Service: its export shows whether the member exports load balancers.
var kinds = []plan.ServiceKind{plan.Headless, plan.ClusterSetIP}

// newVerifier reads the members, and writes nothing.
func newVerifier(ctx context.Context, clusters []Member, o Options) (*verifier, error) {
	v := &verifier{options: o, namespace: namePrefix + strings.ToLower(rand.Text()[:8]), wants: map[plan.Way][]string{},
		resolved: map[plan.Way]bool{}}
	if len(clusters) < 2 {
		return nil, fmt.Errorf("%d members: want 2 or more (--contexts), to verify the way from each to each other", len(clusters))
	}
	var planned []plan.Member
	for i, c := range clusters {
		m := &verifiedMember{Member: c, index: i + 1, image: o.Image}
		if err := m.open(ctx, o); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		for _, other := range v.members {
			switch {
			case other.clusterID == m.clusterID:
				return nil, fmt.Errorf("%s and %s are the same member, %s: want different ones", other.Name, m.Name, m.clusterID)
			case other.brokerUID != m.brokerUID:
				return nil, fmt.Errorf("%s and %s have different brokers: want members of one clusterset", other.Name, m.Name)
			}
		}
		v.members = append(v.members, m)
		planned = append(planned, plan.Member{Name: m.Name, Asks: o.Pods || m.DNSServer != ""})
	}
	v.plan = plan.Plan(planned, o.Pods)
	return v, nil
}

func (m *verifiedMember) open(ctx context.Context, o Options) (err error) {
	if m.Cluster, err = read.OpenWithin(m.Config, o.Timeout, grantsVerify); err != nil {
		return err
	}
	id, set := m.Property(ctx, about.ClusterIDName), m.Property(ctx, about.ClusterSetName)
	if why := cmp.Or(id.Why, set.Why); why != "" {
		return errors.New(why)
	}
	m.clusterID, m.brokerUID = id.Value.Value, set.Value.Annotations[broker.AnnotationBrokerUID]
	if m.clusterID == "" || set.Value.Value == "" {
		return errors.New("it is not a member of a clusterset: want clusters that have joined")
	}
	if o.Pods && m.image == "" {
		m.image, err = m.installedImage(ctx, o.Namespace)
	}
	return err
}

// installedImage returns the image of what runs in the member already, which its Nodes can have.
func (m *verifiedMember) installedImage(ctx context.Context, namespace string) (string, error) {
	for _, name := range []string{"clusterset-controller", "clusterset", "clusterset-dns"} {
		d, err := m.Get(ctx, read.Deployments, namespace, name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", err
		}
		containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
		for _, c := range containers {
			if fields, ok := c.(map[string]any); ok {
				if image, _, _ := unstructured.NestedString(fields, "image"); image != "" {
					return image, nil
				}
			}
		}
	}
	return "", fmt.Errorf(
		"namespace %s has no Deployment of clusterset: want --image, with an image that has the program clusterset, or --no-pods", namespace)
}

// forEachMember calls do for all members at once, and returns all errors.
func (v *verifier) forEachMember(do func(*verifiedMember) error) error {
	errs := make([]error, len(v.members))
	var all []func()
	for i, m := range v.members {
		all = append(all, func() {
			if err := do(m); err != nil {
				errs[i] = fmt.Errorf("%s: %w", m.Name, err)
			}
		})
	}
	read.Parallel(all...)()
	return errors.Join(errs...)
}

// maxDuration is how long a run takes at most.
func (v *verifier) maxDuration() time.Duration { return phases * v.options.Timeout }

func way(from, to *verifiedMember, kind plan.ServiceKind) plan.Way {
	return plan.Way{From: from.Name, To: to.Name, Kind: kind}
}

// forEachPath calls do for each way from a member to another one, all at once.
func (v *verifier) forEachPath(do func(from, to *verifiedMember, kind plan.ServiceKind)) {
	var all []func()
	for _, from := range v.members {
		for _, to := range v.members {
			for _, kind := range kinds {
				if from != to && (kind != plan.Headless || !from.balanced) {
					all = append(all, func() { do(from, to, kind) })
				}
			}
		}
	}
	read.Parallel(all...)()
}

func (v *verifier) progress(what string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.options.Progress(what)
}

func (v *verifier) addChecks(all ...plan.Check) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.results = append(v.results, all...)
}

// pollPeriod is the time between two looks at an API server.
const pollPeriod = 250 * time.Millisecond

// await calls check until it returns nil, and after the timeout returns its last error.
func (v *verifier) await(ctx context.Context, check func(context.Context) error) (err error) {
	_ = wait.PollUntilContextTimeout(ctx, pollPeriod, v.options.Timeout, true, func(context.Context) (bool, error) {
		err = check(ctx)
		return err == nil, nil
	}) // check has its error
	return err
}

const grantsVerify = "deploy/verify/verify.yaml"

// grantedBy completes the error about a missing right with who grants it.
func grantedBy(err error) error {
	return read.WithGrant(err, grantsVerify+" has that right")
}
