package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// restartBroker kills the API server of the broker and starts it again. It cannot close the connections of its clients.
func (s *scaleRun) restartBroker(ctx context.Context) error {
	s.b.progress.say("scale: restarting the broker")
	p, err := s.askedWhile(ctx, "broker restart", func(ctx context.Context) error {
		return s.control.alive(ctx, func(ctx context.Context) error { return s.brokerAway(ctx) })
	})
	if err != nil {
		return err
	}
	// The one change by which its end is noticed.
	p.Writes = grown(map[string]float64{"local EndpointSlice patch": 1}, p.Writes)
	return s.unchanged(ctx)
}

// askedWhile makes a phase of work that is done while DNS is asked.
func (s *scaleRun) askedWhile(ctx context.Context, what string, do func(context.Context) error) (*scalePhase, error) {
	before, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	asked, wrong, err := s.whileAsked(ctx, do)
	if err != nil {
		return nil, err
	}
	after, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	p := phase(what, before, after)
	p.Asked, p.Wrong = asked, wrong
	s.part.Phases = append(s.part.Phases, p)
	return p, nil
}

// brokerAway returns when the broker is back, a change got through, and whatever else is to be written has been.
func (s *scaleRun) brokerAway(ctx context.Context) error {
	s.others.away.Store(true)
	s.clusterset.Broker.KillAPIServer()
	if err := pause(ctx, scaleAway); err != nil {
		return err
	}
	if err := s.clusterset.Broker.StartAPIServer(ctx); err != nil {
		return err
	}
	s.others.away.Store(false)
	began := time.Now()
	if _, err := s.shown(ctx, 0); err != nil {
		return err
	}
	s.part.BrokerBack = time.Since(began).Seconds()
	if err := s.synced(ctx); err != nil {
		return err
	}
	return pause(ctx, scaleSettle)
}

// restartController stops the controller and starts it again.
func (s *scaleRun) restartController(ctx context.Context) error {
	s.b.progress.say("scale: restarting the controller")
	if err := s.control.stop(); err != nil {
		return err
	}
	began := time.Now()
	if _, err := s.askedWhile(ctx, "controller restart", func(ctx context.Context) error {
		if err := s.control.start(); err != nil {
			return err
		}
		if err := s.synced(ctx); err != nil {
			return err
		}
		s.part.ControllerBack = time.Since(began).Seconds()
		return pause(ctx, scaleSettle)
	}); err != nil {
		return err
	}
	if err := s.unchanged(ctx); err != nil {
		return err
	}
	return s.weigh(ctx, "after the restart of the controller")
}

// unchanged returns an error unless the member holds what was imported.
func (s *scaleRun) unchanged(ctx context.Context) error {
	imports, slices, err := held(ctx, s.importer)
	if err != nil {
		return err
	}
	if size := s.others.size; imports != size.Services || slices != size.exports()+s.held {
		return fmt.Errorf("the member has %d imports and %d slices, want %d and %d",
			imports, slices, size.Services, size.exports()+s.held)
	}
	return nil
}

// whileAsked asks DNS for hosts whose addresses stay the same until do returns. It returns how many questions there
// were, and how many had another answer or none.
func (s *scaleRun) whileAsked(ctx context.Context, do func(context.Context) error) (asked, wrong int, err error) {
	g, ctx := errgroup.WithContext(ctx)
	asking, quit := context.WithCancel(ctx)
	g.Go(func() error {
		defer quit()
		return do(ctx)
	})
	g.Go(func() error {
		questions := s.others.askSteady(7)
		for pause(asking, scaleAsk) == nil {
			q := questions[asked%len(questions)]
			if err := check(asking, s.dns.port.String(), []question{q}); err != nil && asking.Err() == nil {
				if wrong++; wrong == 1 {
					s.b.progress.say("scale: %v", err)
				}
			}
			asked++
		}
		return nil
	})
	err = g.Wait()
	return asked, wrong, err
}
