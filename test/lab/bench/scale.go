package main

import (
	"context"
	"errors"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

// scaleSection measures one member of a clusterset of a hundred.
func (b *bench) scaleSection(ctx context.Context) (_ part, err error) {
	s, err := b.startScale(ctx, fullScale)
	defer func() { err = errors.Join(err, s.stop()) }()
	if err != nil {
		return nil, err
	}
	g, ctx := errgroup.WithContext(ctx)
	beating, quit := context.WithCancel(ctx)
	g.Go(func() error { return s.others.beat(beating, scaleBeat) })
	g.Go(func() error {
		defer quit()
		return s.measure(ctx)
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return s.part, nil
}

// startScale starts a broker and a member. The caller has to stop the result, also after an error.
func (b *bench) startScale(ctx context.Context, size scaleSize) (*scaleRun, error) {
	s := &scaleRun{b: b, part: &scalePart{Size: size}}
	b.progress.say("scale: starting a broker and a member")
	var err error
	if s.clusterset, err = testclusterset.Start(ctx, testclusterset.Options{IDs: []string{"importer"}}); err != nil {
		return s, err
	}
	s.importer, s.others = s.clusterset.Members[0], &simulation{broker: s.clusterset.Broker, size: size}
	if err := joinWith(ctx, s.importer, size.Namespaces, scaleNamespace); err != nil {
		return s, err
	}
	if s.broker, err = kubernetes.NewForConfig(s.clusterset.Broker.Config()); err != nil {
		return s, err
	}
	if _, s.held, err = held(ctx, s.importer); err != nil {
		return s, err
	}
	kubeconfig, err := s.importer.ServiceAccountKubeconfig(ctx, wellknown.ControllerNamespace, "clusterset-dns")
	if err != nil {
		return s, err
	}
	soa := question{owner: zone, qtype: dns.TypeSOA, want: answer{records: 1}}
	if s.dns, err = b.startServer(ctx, ourPeer, source{kubeconfig: kubeconfig}, []question{soa}); err != nil {
		return s, err
	}
	s.control, err = b.newControl(ctx, s.importer)
	return s, err
}

func (s *scaleRun) stop() error {
	var errs []error
	if s.control != nil {
		errs = append(errs, s.control.close())
	}
	if s.dns != nil {
		s.dns.stop()
	}
	if s.clusterset != nil {
		errs = append(errs, s.clusterset.Stop())
	}
	return errors.Join(errs...)
}

func (s *scaleRun) measure(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		s.load, s.firstImport, s.idle, s.changing, s.restartBroker, s.restartController,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
