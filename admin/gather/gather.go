// Package gather writes an archive of the objects, logs and metrics of clusters, without credentials.
package gather

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset/admin/read"
	"github.com/clusterset-dns/clusterset/admin/redact"
)

// Run writes objects, logs, metrics and versions of clusters to w, as a tar archive compressed by gzip, without
// credentials (docs/spec/operations.md 3 and docs/spec/operations.md 4). The index lists missing data, and the rest is
// gathered nevertheless, also when ctx ends. An error means that the archive could not be written.
func Run(ctx context.Context, w io.Writer, clusters []Cluster, o Options) (Index, error) {
	index := Index{Version: o.Version, Time: time.Now().UTC()}
	var mu sync.Mutex
	progress := o.Progress
	o.Progress = func(what string) {
		mu.Lock()
		defer mu.Unlock()
		progress(what)
	}
	var all []*gatherer
	var reads []func()
	for _, c := range clusters {
		g := newGatherer(c, o)
		all, reads = append(all, g), append(reads, func() { g.gather(ctx) })
	}
	// A credential of one cluster may appear in another one, so nothing is written before all have been read.
	read.Parallel(reads...)()
	var secret []string
	for _, g := range all {
		secret = append(secret, g.secret...)
	}
	r := redact.Known(secret...)
	for _, g := range all {
		for i := range g.state.Missing {
			g.state.Missing[i] = r.Text(g.state.Missing[i])
		}
		g.state.Files = len(g.files)
		index.Clusters = append(index.Clusters, g.state)
	}
	if err := writeArchive(w, index, all, r); err != nil {
		return index, fmt.Errorf("gather: %w", err)
	}
	return index, nil
}

// writeArchive writes index.json and a folder for each cluster, below one folder.
func writeArchive(w io.Writer, index Index, all []*gatherer, r redact.Redactor) error {
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	write := func(name string, content []byte) error {
		h := &tar.Header{Name: "clusterset-gather/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: index.Time,
			Format: tar.FormatPAX}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		_, err := archive.Write(content)
		return err
	}
	text, err := json.MarshalIndent(index, "", "  ")
	if err == nil {
		err = write("index.json", append(text, '\n'))
	}
	for _, g := range all {
		for _, f := range g.files {
			if err == nil {
				err = write(g.from.Name+"/"+f.name, f.redacted(r))
			}
		}
	}
	if err == nil {
		err = archive.Close()
	}
	if err == nil {
		err = zip.Close()
	}
	return err
}
