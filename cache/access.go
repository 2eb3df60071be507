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
	f := accessFile{
		file: s.cfg.Kubeconfig, readREST: s.cfg.ReadREST, reconnect: s.client.Reconnect, name: s.cfg.Name, log: s.cfg.Log,
		current: s.cfg.REST, seen: stamps{},
	}
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

// An accessFile finds out when a kubeconfig changes. Only followAccess calls its methods.
type accessFile struct {
	file      string
	readREST  func() (*rest.Config, error) // reads the file
	reconnect func(*rest.Config) error     // makes requests go where a configuration says
	name      string                       // of the source, for the log
	log       logging.Logger

	seen    stamps // of the file as it was read last
	current *rest.Config
	logged  logging.OnChange[string] // what is wrong with the file
}

// check reads the file if it may have changed.
func (f *accessFile) check() {
	now, err := statFiles([]string{f.file})
	if err == nil && !f.seen.changed(now) {
		return
	}
	f.seen = now
	f.read(false)
}

// read reads the file and uses what it says. What it said before is used anew only if the credential was rejected: the
// transport may have kept an old token that a file or a program gave it.
func (f *accessFile) read(rejected bool) {
	cfg, err := f.readREST()
	changed := err == nil && !sameAccess(cfg, f.current)
	if err == nil && (changed || rejected) {
		if err = f.reconnect(cfg); err == nil {
			f.current = cfg
		}
	}
	switch logged := f.logged.Changed(logging.Text(err)); {
	case err == nil && changed:
		f.log.Infof("%s: the kubeconfig has changed; it is used from now on", f.name)
	case err == nil && logged:
		f.log.Infof("%s: the kubeconfig is valid again", f.name)
	case logged:
		f.log.Errorf("%s: the last valid kubeconfig stays in use: %s", f.name, logging.Line(err))
	}
}
