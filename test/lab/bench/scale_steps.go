package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// load makes the simulated members export.
func (s *scaleRun) load(ctx context.Context) error {
	s.b.progress.say("scale: admitting %d members", s.others.size.Members)
	if err := s.others.admit(ctx); err != nil {
		return err
	}
	var written atomic.Int64
	defer s.b.progress.every(10*time.Second, func() string {
		return fmt.Sprintf("scale: %d of %d records written, each with a slice", written.Load(), s.others.size.exports())
	})()
	return s.others.export(ctx, &written)
}

func (s *scaleRun) firstImport(ctx context.Context) error {
	s.b.progress.say("scale: starting the controller")
	before, err := s.look(ctx)
	if err != nil {
		return err
	}
	if err := s.control.start(); err != nil {
		return err
	}
	size := s.others.size
	err = s.control.alive(ctx, func(ctx context.Context) error {
		if err := s.b.awaitHeld(ctx, s.importer, size.Services, size.exports()+s.held); err != nil {
			return err
		}
		s.part.Import = time.Since(before.at).Seconds()
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.synced(ctx); err != nil {
		return err
	}
	s.part.Synced = time.Since(before.at).Seconds()
	if err := s.drained(ctx); err != nil {
		return err
	}
	if err := s.dns.awaitAnswers(ctx, some(s.others.askSteady(1), 100*checked)); err != nil {
		return err
	}
	after, err := s.look(ctx)
	if err != nil {
		return err
	}
	s.part.Phases = append(s.part.Phases, phase("first import", before, after))
	s.part.Watches = grown(before.watches, after.watches)
	return s.weigh(ctx, "after the first import")
}

// synced waits until the controller knows all records and has nothing left to do.
func (s *scaleRun) synced(ctx context.Context) error {
	known := wanted{"exported_services", s.others.size.exports()}
	return s.control.alive(ctx, func(ctx context.Context) error { return s.control.await(ctx, append(idle, known)...) })
}

// drained waits until nothing but Leases was written for a while: Events come later than the change that they describe,
// at a rate of their own.
func (s *scaleRun) drained(ctx context.Context) error {
	s.b.progress.say("scale: all is imported, Events are still written")
	ctx, cancel := context.WithTimeoutCause(ctx, scalePatience,
		fmt.Errorf("controller: still writes after %s", scalePatience))
	defer cancel()
	return s.control.alive(ctx, func(ctx context.Context) error {
		for last := -1.0; ; {
			m, err := s.control.scrape(ctx)
			if err != nil {
				return err
			}
			others, _ := writes(m)
			now := total(others)
			if now == last {
				return nil
			}
			last = now
			if err := pause(ctx, scaleSettle/2); err != nil {
				return err
			}
		}
	})
}

// weigh notes the memory of both programs.
func (s *scaleRun) weigh(ctx context.Context, when string) (err error) {
	m := scaleMemory{When: when}
	if m.Control, m.ControlPeak, err = resident(s.control.process.Pid()); err != nil {
		return err
	}
	scraped, err := s.control.scrape(ctx)
	if err != nil {
		return err
	}
	m.ControlInUse = int64(scraped.Named("go_memstats_heap_alloc_bytes").Sum())
	if m.DNS, m.DNSPeak, err = resident(s.dns.process.Pid()); err != nil {
		return err
	}
	if m.DNSHeap, err = s.dns.liveHeap(ctx); err != nil {
		return err
	}
	s.part.Memory = append(s.part.Memory, m)
	return nil
}

// idle waits while nothing but heartbeats changes.
func (s *scaleRun) idle(ctx context.Context) error {
	s.b.progress.say("scale: nothing but %d heartbeats for %s", s.others.size.Members, scaleIdle)
	return s.during(ctx, "idle", func(ctx context.Context) error { return pause(ctx, scaleIdle) })
}

// during adds a phase that is as long as do.
func (s *scaleRun) during(ctx context.Context, what string, do func(context.Context) error) error {
	before, err := s.look(ctx)
	if err != nil {
		return err
	}
	if err := s.control.alive(ctx, do); err != nil {
		return err
	}
	after, err := s.look(ctx)
	if err != nil {
		return err
	}
	p := phase(what, before, after)
	p.Watches = after.watches
	s.part.Phases = append(s.part.Phases, p)
	return nil
}

// changing has members change endpoints, and looks for each change in DNS.
func (s *scaleRun) changing(ctx context.Context) error {
	s.b.progress.say("scale: %d changes of endpoints a second for %s", scaleRate, scaleChanging)
	var mu sync.Mutex
	var delays []time.Duration
	began := time.Now()
	err := s.during(ctx, fmt.Sprintf("%d changes/s", scaleRate), func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, scaleChanging)
		defer cancel()
		p := pace{rate: scaleRate, things: s.others.size.exports(), outstanding: scaleOutstanding}
		_, err := p.run(ctx, limited.Done(), func(ctx context.Context, n int) error {
			took, err := s.shown(ctx, n)
			mu.Lock()
			defer mu.Unlock()
			delays = append(delays, took)
			return err
		})
		return err
	})
	if err != nil {
		return err
	}
	s.part.Delays = newCrossResult("endpoint", delays, time.Since(began))
	return nil
}

// shown changes the n-th export and returns how long it took from the broker's answer to that of DNS.
func (s *scaleRun) shown(ctx context.Context, n int) (time.Duration, error) {
	host, addr, err := s.others.change(ctx, n)
	if err != nil {
		return 0, err
	}
	written := time.Now()
	for {
		at, err := awaitAddr(ctx, s.dns.port.String(), host, addr, crossPoll)
		if err == nil {
			return at.Sub(written), nil
		}
		if ctx.Err() != nil || time.Since(written) > crossPatience {
			return 0, err
		}
	}
}
