//go:build image && release && linux

package docs

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

var releaseVersion = flag.String("version", "", "version of the release in the folder dist")

// TestReleasedImage starts the image for this machine in the layout that make release has written, as [TestImage] does with what the
// Dockerfile describes.
func TestReleasedImage(t *testing.T) {
	need(t)
	dist := filepath.Join(root, "dist", "image")
	index := manifest(t, filepath.Join(dist, "index.json")).Manifests
	if len(index) != 1 || *releaseVersion == "" {
		t.Fatalf("dist/image/index.json has %v, and the version is %q: want one image index, and a version", index, *releaseVersion)
	}
	image := t.TempDir()
	for _, d := range manifest(t, blob(dist, index[0].Digest)).Manifests {
		if d.Platform.Architecture == runtime.GOARCH {
			for _, layer := range manifest(t, blob(dist, d.Digest)).Layers {
				extract(t, blob(dist, layer.Digest), image)
			}
		}
	}
	parseDockerfile(t).starts(t, image, *releaseVersion)
}

// An ociManifest is an image index or an image of OCI.
type ociManifest struct{ Manifests, Layers []ociDescriptor }

type ociDescriptor struct {
	Digest   string
	Platform struct{ Architecture string }
}

func manifest(t *testing.T, name string) (m ociManifest) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

func blob(layout, digest string) string {
	return filepath.Join(layout, "blobs", strings.Replace(digest, ":", "/", 1))
}

// extract unpacks a layer as a container engine does.
func extract(t *testing.T, layer, folder string) {
	t.Helper()
	zipped, err := os.Open(layer)
	if err != nil {
		t.Fatal(err)
	}
	defer zipped.Close()
	stream, err := gzip.NewReader(zipped)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(folder, h.Name)
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(name, h.FileInfo().Mode().Perm()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, content, h.FileInfo().Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}
