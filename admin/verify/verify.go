// Package verify exports Services in each member, and checks in the others that they are imported, resolve and reply.
package verify

import (
	"context"
	"fmt"

	"github.com/clusterset-dns/clusterset/admin/verify/plan"
)

// Run exports Services in each member, and checks in each other one that they are imported, resolve, can be reached,
// and are gone after that (docs/spec/operations.md 7). It works in a namespace of its own, which it removes in the end,
// also when ctx ends. An error means that it could not begin, or was interrupted.
func Run(ctx context.Context, clusters []Member, o Options) (report plan.Report, err error) {
	v, err := newVerifier(ctx, clusters, o)
	if err != nil {
		return report, fmt.Errorf("verify: %w", grantedBy(err))
	}
	report.Namespace = v.namespace
	defer func() { report.Left = append(report.Left, v.clean(ctx)...) }()
	run, cancel := context.WithTimeout(ctx, v.maxDuration())
	defer cancel()
	err = v.run(run)
	report.Checks = plan.Fill(v.plan, v.results)
	report.Verdict = plan.Judge(report.Checks)
	report.Left = append([]string{}, v.left...)
	if err != nil {
		return report, fmt.Errorf("verify: %w", grantedBy(err))
	}
	return report, nil
}

// run does all steps. An error means that it could not go on.
func (v *verifier) run(ctx context.Context) error {
	left, err := v.removeLeftovers(ctx, false)
	v.left = left
	if err != nil {
		return err
	}
	v.progress("creating namespace " + v.namespace + " in each member")
	for _, step := range []func(context.Context) error{
		v.createObjects, v.awaitPods, v.exportServices, v.awaitImports, v.askNames, v.withdraw, v.askGone,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
