// Package dns makes the DNS server of a cluster forward the zone of the clusterset, and takes that back
// (docs/spec/dns-wiring.md).
package dns

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/wiring"
	"github.com/clusterset-dns/clusterset/admin/write"
)

// Status reads how the resolvers of a cluster are wired, and asks through them.
func Status(ctx context.Context, member *rest.Config, o Options) (State, error) {
	w, s, err := openWirer(ctx, member, o)
	if err != nil {
		return s, err
	}
	w.ask(ctx, &s)
	s.evaluate()
	return s, nil
}

// StatusIfInstalled returns the result of Status in a cluster that may lack the clusterset's DNS server. Without one it
// asks nothing and finds nothing. It also knows the Service of an installation in one Deployment.
func StatusIfInstalled(ctx context.Context, member *rest.Config, o Options) (read.Result, error) {
	w, s, err := openWirer(ctx, member, o)
	if err == nil && !s.installed() && o.Service == Defaults().Service {
		w.o.Service.Name = "clusterset"
		s, err = w.state(ctx)
	}
	if err == nil {
		err = s.CheckZone()
	}
	if err != nil || !s.installed() {
		return read.Result{}, err
	}
	w.ask(ctx, &s)
	s.evaluate()
	return s.Result, nil
}

// Diff is DNSStatus without a question.
func Diff(ctx context.Context, member *rest.Config, o Options) (State, error) {
	s, err := Read(ctx, member, o)
	if err == nil {
		s.evaluate()
	}
	return s, err
}

// Apply makes the resolvers of a cluster send the queries for the zone to the DNS server of the clusterset
// (docs/spec/dns-wiring.md 6). The state that it returns is the one afterwards; what it lists as problems is left to do
// by hand.
func Apply(ctx context.Context, member *rest.Config, o Options) (State, error) {
	w, s, err := openWirer(ctx, member, o)
	if err != nil {
		return s, err
	}
	if !o.InProcess {
		if err := s.CheckZone(); err != nil {
			return s, err
		}
	}
	if err := w.awaitReady(ctx, &s); err != nil {
		return s, err
	}
	w.ask(ctx, &s)
	before := s.Answers
	warnings, err := w.writeEdits(ctx, s, func(r *wiring.Resolver) *wiring.Edit { return r.Apply })
	if err != nil {
		return s, err
	}
	if o.DryRun != write.DryRunNone {
		s.Warnings = append(s.Warnings, warnings...)
		s.byHand()
		return s, nil
	}
	if s, err = w.state(ctx); err != nil {
		return s, err
	}
	switch {
	case !o.Wait || len(before) == 0:
	case allWired(s) && (o.Ask != "" || slices.ContainsFunc(before, Answer.replied)):
		err = w.awaitAnswer(ctx, &s)
	default:
		w.ask(ctx, &s)
	}
	s.Warnings = append(s.Warnings, warnings...)
	s.evaluate()
	return s, err
}

// Undo removes what DNSApply has written.
func Undo(ctx context.Context, member *rest.Config, o Options) (State, error) {
	w, s, err := openWirer(ctx, member, o)
	if err != nil {
		return s, err
	}
	warnings, err := w.writeEdits(ctx, s, func(r *wiring.Resolver) *wiring.Edit { return r.Undo })
	if err != nil {
		return s, err
	}
	s.Warnings = append(s.Warnings, warnings...)
	for i := range s.Resolvers {
		if r := &s.Resolvers[i]; r.Edited {
			s.Problems = append(
				s.Problems,
				r.Name()+" is left alone: what clusterset had written was changed by hand since; remove it by hand, too")
		}
	}
	return s, nil
}

// Read is DNSDiff without a judgement of what it finds.
func Read(ctx context.Context, member *rest.Config, o Options) (State, error) {
	_, s, err := openWirer(ctx, member, o)
	return s, err
}

// openWirer also reads the state as it is.
func openWirer(ctx context.Context, member *rest.Config, o Options) (*wirer, State, error) {
	if err := o.Check(); err != nil {
		return nil, State{}, err
	}
	c, err := write.Open(read.RoleMember, member, o.Options)
	if err != nil {
		return nil, State{}, err
	}
	w := &wirer{c, o}
	s, err := w.state(ctx)
	return w, s, err
}

// awaitReady returns an error if there is something to write and nothing to forward to. It waits until an endpoint is
// ready.
func (w *wirer) awaitReady(ctx context.Context, s *State) error {
	if w.o.InProcess || allWired(*s) || s.Server.Ready {
		return nil
	}
	if len(s.Server.Addresses) == 0 {
		return errors.New(s.Server.Problem)
	}
	if !w.o.Wait || w.o.DryRun != write.DryRunNone {
		return nil
	}
	addresses := s.Server.Addresses
	return w.o.WaitFor(ctx, w.o.Timeout, "Service "+s.Server.Service+" has a ready endpoint",
		func(ctx context.Context) (bool, error) {
			server, err := ReadServer(ctx, w.Cluster, w.o.Service)
			s.Server, s.Server.Addresses = server, addresses
			return server.Ready, err
		})
}

func allWired(s State) bool {
	for i := range s.Resolvers {
		if s.Resolvers[i].State != wiring.Wired {
			return false
		}
	}
	return true
}

// awaitAnswer waits until all resolvers give the answer of the DNS server of the clusterset.
func (w *wirer) awaitAnswer(ctx context.Context, s *State) error {
	what := "dns-version." + s.Zone + " resolves (CoreDNS reads its Corefile about every half minute)"
	err := w.o.WaitFor(ctx, w.o.Timeout, what, func(ctx context.Context) (bool, error) {
		w.ask(ctx, s)
		return s.unanswered() == nil, nil
	})
	if a := s.unanswered(); err != nil && ctx.Err() == nil && a != nil {
		return fmt.Errorf("%w: %s; everything is written, and running this again continues", err, a)
	}
	return err
}

// writeEdits writes one edit for each resolver, each from objects that are read anew. It returns the remaining steps.
func (w *wirer) writeEdits(ctx context.Context, s State, which func(*wiring.Resolver) *wiring.Edit) (warnings []string,
	err error) {
	written := map[string]bool{}
	for i := range s.Resolvers {
		var r wiring.Resolver
		changed := false
		err := retry.OnError(retry.DefaultRetry, changedMeanwhile, func() error {
			now, err := w.state(ctx)
			if err != nil || i >= len(now.Resolvers) || now.Resolvers[i].Workload != s.Resolvers[i].Workload {
				return err // the resolver is gone
			}
			r = now.Resolvers[i]
			e := which(&r)
			// Two resolvers may read one ConfigMap. A dry run does not change what the second one reads.
			if e == nil || written[read.Describe(e.Object())] {
				return nil
			}
			if err := w.write(ctx, e); err != nil {
				return err
			}
			changed, written[read.Describe(e.Object())] = true, true
			return nil
		})
		if err != nil {
			return warnings, err
		}
		if r.Restart && (changed || w.o.Restart && s.unanswered() != nil) {
			warning, err := w.restart(ctx, r.Workload)
			if err != nil {
				return warnings, err
			}
			warnings = append(warnings, warning...)
		}
	}
	return warnings, nil
}
