package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	v1tarball "github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// writeImage writes the folder image, an OCI image layout: its index.json has one image index, which has an image for each platform of
// linux. It returns the digest of that image index, which is the one that a registry will have.
func (r release) writeImage(d dockerfile, built map[platform]string) (digest string, err error) {
	var images v1.ImageIndex = empty.Index
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}
		files, err := d.files(r.source, built[p])
		if err != nil {
			return "", err
		}
		image, err := d.config.image(r, p, files)
		if err != nil {
			return "", err
		}
		descriptor := v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}
		images = mutate.AppendManifests(images, mutate.IndexAddendum{Add: image, Descriptor: descriptor})
	}
	name := v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": r.version}}
	if _, err := layout.Write(r.name("image"), mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: images, Descriptor: name})); err != nil {
		return "", fmt.Errorf("image: %w", err)
	}
	hash, err := images.Digest()
	return hash.String(), err
}

// files are those that the last stage copies.
func (d dockerfile) files(source, built string) (files []file, err error) {
	for _, c := range d.copies {
		f := file{name: c.to}
		program, ok := strings.CutPrefix(c.from, compiled)
		switch {
		case c.built && ok:
			f.executable = true
			f.content, err = os.ReadFile(filepath.Join(built, program))
		case c.built && c.from == "/etc/ssl/certs/ca-certificates.crt":
			f.content = certificates()
		case c.built:
			return nil, fmt.Errorf("COPY --from=build %s: a release does not know how that is made", c.from)
		default:
			f.content, err = os.ReadFile(filepath.Join(source, c.from))
		}
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// certificates are those that Mozilla trusts, as a Go module has them, in place of the same in the build image of the Dockerfile. As
// there, those that Mozilla trusts with limits are among them.
func certificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a bytes.Buffer takes everything
	}
	return b.Bytes()
}

// image returns an image of one layer.
func (c config) image(r release, p platform, files []file) (v1.Image, error) {
	tarred, err := tarball(files, r.time)
	if err != nil {
		return nil, err
	}
	layer, err := v1tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(tarred)), nil },
		v1tarball.WithMediaType(types.OCILayer), v1tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: r.time}
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "make release"}})
	if err != nil {
		return nil, err
	}
	whole, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	whole = whole.DeepCopy()
	whole.OS, whole.Architecture, whole.Created = p.os, p.arch, created
	whole.Config = v1.Config{User: c.user, Entrypoint: c.entrypoint, Cmd: c.cmd, Labels: c.labels, ExposedPorts: map[string]struct{}{}}
	for _, port := range c.ports {
		whole.Config.ExposedPorts[port] = struct{}{}
	}
	return mutate.ConfigFile(image, whole)
}
