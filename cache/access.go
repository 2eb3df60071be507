package cache

import (
	"context"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset/api/logging"
)

// An accessFile finds out when a kubeconfig changes. Only run calls its other methods.
type accessFile struct {
	cfg       *Config
	reconnect func(*rest.Config) error // redirects requests
	rejected  chan struct{}            // holds a token once the API server rejected the credential

	seen    stamps // of the file as it was read last
	current *rest.Config
	logged  logging.OnChange[string] // the error of the file
}

// run makes requests use address and credential of the current kubeconfig, until ctx ends. The served state and open
// watches stay meanwhile. client-go itself reads files again that a kubeconfig names.
func (f *accessFile) run(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.rejected:
			f.read(true)
		case <-ticker.C:
			f.check()
		}
	}
}

// check reads the file if it may have changed.
func (f *accessFile) check() {
	current, err := statFiles([]string{f.cfg.Kubeconfig})
	if err == nil && !f.seen.changed(current) {
		return
	}
	f.seen = current
	f.read(false)
}

// read reads the file and uses it. Unchanged content is used anew only if the credential was rejected: the transport
// may have kept an old token of a file or a program.
func (f *accessFile) read(rejected bool) {
	cfg, err := f.cfg.ReadREST()
	changed := err == nil && !sameAccess(cfg, f.current)
	if err == nil && (changed || rejected) {
		if err = f.reconnect(cfg); err == nil {
			f.current = cfg
		}
	}
	switch logged := f.logged.Changed(logging.Text(err)); {
	case err == nil && changed:
		f.cfg.Log.Infof("%s: the kubeconfig has changed; it is used from now on", f.cfg.Name)
	case err == nil && logged:
		f.cfg.Log.Infof("%s: the kubeconfig is valid again", f.cfg.Name)
	case logged:
		f.cfg.Log.Errorf("%s: the last valid kubeconfig stays in use: %s", f.cfg.Name, logging.Line(err))
	}
}
