// Package write applies and deletes objects, in dry runs, too, and reports each step.
package write

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/clusterset-dns/clusterset/admin/read"
)

// DryRun selects what happens to writes. The zero value executes them.
type DryRun string

// The dry runs.
const (
	DryRunNone   DryRun = ""
	DryRunClient DryRun = "client" // sends no write; predicts the result from the objects that exist
	DryRunServer DryRun = "server" // the API server validates each write and discards it
)

// Field returns the field DryRun of a request for a dry run of the API server.
func (d DryRun) Field() []string {
	if d == DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Action is the change of an object, or what a dry run would do.
type Action string

// The actions. Deleting an object that does not exist is [Unchanged].
const (
	Created   Action = "created"
	Updated   Action = "updated"
	Unchanged Action = "unchanged"
	Deleted   Action = "deleted"
)

// A Step is one object that an operation wrote, deleted or found unchanged.
type Step struct {
	Cluster   read.Role `json:"cluster"`
	Action    Action    `json:"action"`
	Group     string    `json:"group,omitempty"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`           // "*" for all objects in the namespace
	Note      string    `json:"note,omitempty"` // details, in a few words
	Diff      string    `json:"diff,omitempty"` // what changes, as a unified diff, with [Options].Diff

	Content *unstructured.Unstructured `json:"-"` // the object; as it should be, if it was applied
}

// Object names the object as kubectl does: "role.rbac.authorization.k8s.io/member".
func (s Step) Object() string {
	kind := strings.ToLower(s.Kind)
	if s.Group != "" {
		kind += "." + s.Group
	}
	return kind + "/" + s.Name
}

// String returns one line: "broker: role.rbac.authorization.k8s.io/member -n clusterset-0f created".
func (s Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s ", s.Cluster, s.Object())
	if s.Namespace != "" {
		fmt.Fprintf(&b, "-n %s ", s.Namespace)
	}
	b.WriteString(string(s.Action))
	if s.Note != "" {
		fmt.Fprintf(&b, " (%s)", s.Note)
	}
	return b.String()
}

// Options are the options of every operation that writes.
type Options struct {
	DryRun DryRun
	Report func(Step) // called after each step; may be nil
	Diff   bool       // fill the field Diff of each step
	// called with one line for each wait of more than two seconds, and by Join for what it found; may be nil
	Progress func(string)
}

const (
	pollInterval  = 50 * time.Millisecond
	progressAfter = 2 * time.Second
	waitTimeout   = 2 * time.Minute // until a new CRD is served, or the broker has emptied a namespace
)

// WaitUntil polls done until it returns true or an error, for at most [waitTimeout]. what completes the phrase "wait
// until".
func (o Options) WaitUntil(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	return o.WaitFor(ctx, waitTimeout, what, done)
}

// WaitFor is waitUntil with a timeout.
func (o Options) WaitFor(ctx context.Context, timeout time.Duration, what string,
	done func(context.Context) (bool, error)) error {
	began, reported := time.Now(), false
	err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		ok, err := done(ctx)
		if errors.Is(err, context.DeadlineExceeded) || err != nil && isPastDeadline(ctx) {
			return false, nil // one request timed out; the next may succeed
		}
		if !ok && err == nil && !reported && o.Progress != nil && time.Since(began) > progressAfter {
			reported = true
			o.Progress(fmt.Sprintf("waiting until %s, for at most %s", what, timeout))
		}
		return ok, err
	})
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("wait until %s: %w", what, ctx.Err())
	case wait.Interrupted(err):
		return fmt.Errorf("wait until %s: not after %s", what, timeout)
	}
	return err
}

// isPastDeadline reports whether the deadline of ctx has passed. The rate limiter of client-go then has an error of its
// own.
func isPastDeadline(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}
