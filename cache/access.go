package cache

import (
	"context"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// followAccess makes requests go to the address, and with the credential, of the kubeconfig as it is now, until ctx ends. What
// is served stays meanwhile, and so do watches that are open. Files that a kubeconfig names, client-go reads again by itself.
func (s *Store) followAccess(ctx context.Context) error {
	f := accessFile{store: s, current: s.cfg.REST, seen: stamps{}}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.rejected:
			f.read(true)
		case <-ticker.C:
			f.check()
		}
	}
}

// An accessFile finds out when a kubeconfig changes.
type accessFile struct {
	store   *Store
	seen    stamps // of the file as it was read last
	current *rest.Config
	logged  logging.OnChange[string] // what is wrong with the file
}

// check reads the file if it may have changed.
func (f *accessFile) check() {
	now, err := statFiles([]string{f.store.cfg.Kubeconfig})
	if err == nil && !f.seen.changed(now) {
		return
	}
	f.seen = now
	f.read(false)
}

// read reads the file and uses what it says. What it said before is used anew only if the credential was rejected: the
// transport may have kept an old token that a file or a program gave it.
func (f *accessFile) read(rejected bool) {
	s := f.store
	cfg, err := s.cfg.ReadREST()
	changed := err == nil && !sameAccess(cfg, f.current)
	if err == nil && (changed || rejected) {
		if err = s.client.Reconnect(cfg); err == nil {
			f.current = cfg
		}
	}
	switch logged := f.logged.Changed(logging.Text(err)); {
	case err == nil && changed:
		s.cfg.Log.Infof("%s: the kubeconfig has changed; it is used from now on", s.cfg.Name)
	case err == nil && logged:
		s.cfg.Log.Infof("%s: the kubeconfig is valid again", s.cfg.Name)
	case logged:
		s.cfg.Log.Errorf("%s: the last valid kubeconfig stays in use: %s", s.cfg.Name, logging.Line(err))
	}
}
