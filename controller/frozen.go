package controller

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/clusterset-dns/clusterset/api/logging"
	"github.com/clusterset-dns/clusterset/api/wellknown"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/safety"
)

const (
	// frozenDelay is how long a reason is in force before it is saved: lists are incomplete for a moment after each start.
	frozenDelay = 3 * time.Second
	// frozenAgain is the time after which the saved note is read again: a Lease that was made anew is empty.
	// Details may have changed, too.
	frozenAgain = time.Minute
)

// A frozenNote saves which freeze reasons are in force, so that commands can show them (docs/spec/explain.md 1), and
// beside them which namespaces take part.
type frozenNote struct {
	note    member.LeaseNote
	choice  member.LeaseNote
	chosen  string // the annotation of the namespaces
	freezes *safety.Freezes
	log     logging.Logger

	key     string    // the reasons in force and their codes
	at      time.Time // of the last write; details are as old, since they change with every object
	failing logging.Failure[bool]
}

func newFrozenNote(m *member.Cluster, cfg Config, f *safety.Freezes) *frozenNote {
	return &frozenNote{
		note: member.LeaseNote{Cluster: m, Namespace: cfg.Namespace, Lease: wellknown.ControllerLease,
			Key: wellknown.AnnotationFrozen},
		choice: member.LeaseNote{Cluster: m, Namespace: cfg.Namespace, Lease: wellknown.ControllerLease,
			Key: wellknown.AnnotationNamespaces},
		chosen:  cfg.Namespaces.String(),
		freezes: f, log: cfg.Log,
	}
}

// run saves them until ctx ends. Keep the previous leader's note until this one knows the state.
func (f *frozenNote) run(ctx context.Context) error {
	began := time.Now()
	return every(ctx, reviewPeriod, func() error {
		if time.Since(began) < frozenDelay {
			return nil
		}
		err := f.save(ctx, time.Now())
		if f.failing.Changed(err != nil && !apierrors.IsConflict(err), err) && err != nil && ctx.Err() == nil {
			f.log.Warningf("freeze reasons are not saved: %v; trying again", err)
		}
		return nil
	})
}

// save writes if reasons or codes changed, and otherwise, from time to time, details and what somebody else removed.
func (f *frozenNote) save(ctx context.Context, now time.Time) error {
	key, text := f.inForce(now)
	if key != f.key {
		f.key, f.at = key, time.Time{}
	}
	if now.Sub(f.at) < frozenAgain {
		return nil
	}
	if err := f.note.Save(ctx, text); err != nil {
		return err
	}
	if err := f.choice.Save(ctx, f.chosen); err != nil {
		return err
	}
	f.at = now
	return nil
}

// inForce returns the reasons with their codes, and the annotation.
func (f *frozenNote) inForce(now time.Time) (key, text string) {
	var all []wellknown.Freeze
	for _, in := range f.freezes.InForce() {
		if now.Sub(in.Since) < frozenDelay {
			continue
		}
		key += in.Reason + " " + in.Code + "\n"
		all = append(all, in)
	}
	return key, wellknown.FormatFreezes(all)
}
