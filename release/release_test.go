package main

import (
	"archive/tar"
	"debug/buildinfo"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"sigs.k8s.io/yaml"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// example is a release of programs of a few octets, with the Dockerfile, the Corefile and the chart of this repository.
func example(t *testing.T) (release, dockerfile, map[platform]string) {
	t.Helper()
	r := release{source: "..", out: t.TempDir(), version: "v1.2.3", time: time.Unix(1_800_000_000, 0).UTC(), image: "registry.example.org/a"}
	built := make(map[platform]string)
	for _, p := range platforms {
		built[p] = t.TempDir()
		for _, program := range programs {
			must(t, os.WriteFile(filepath.Join(built[p], program), []byte(program+" for "+p.String()), 0o700))
		}
		must(t, r.archives(p, built[p]))
	}
	d, err := readDockerfile("../Dockerfile")
	must(t, err)
	return r, d, built
}

func TestVersion(t *testing.T) {
	for v, want := range map[string]bool{"v1.2.3": true, "v1.2.3-rc.1": true, "v0.0.0-g0a1b2c3": true, "1.2.3": false, "v1.2": false, "v1.2.3+a": false, "": false} {
		if err := checkVersion(v); (err == nil) != want {
			t.Errorf("version %q: %v, want valid: %t", v, err, want)
		}
	}
}

// imagesOf returns the images of a layout by platform. The whole layout must be valid, with all digests and sizes.
func imagesOf(t *testing.T, folder, version string) (images map[string]v1.Image, digest v1.Hash) {
	t.Helper()
	outer, err := layout.ImageIndexFromPath(folder)
	must(t, err)
	must(t, validate.Index(outer))
	manifest, err := outer.IndexManifest()
	must(t, err)
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != version {
		t.Fatalf("index.json has %v, want one image index with the name %s", manifest.Manifests, version)
	}
	digest = manifest.Manifests[0].Digest
	inner, err := outer.ImageIndex(digest)
	must(t, err)
	manifest, err = inner.IndexManifest()
	must(t, err)
	images = make(map[string]v1.Image)
	for _, m := range manifest.Manifests {
		images[m.Platform.String()], err = inner.Image(m.Digest)
		must(t, err)
	}
	if got := slices.Sorted(maps.Keys(images)); !slices.Equal(got, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("platforms of the image = %q, want linux/amd64 and linux/arm64", got)
	}
	return images, digest
}

// rootfs returns the files of an image, each with its mode; of a folder the content is empty.
func rootfs(t *testing.T, image v1.Image) (names []string, modes map[string]int64, content map[string]string) {
	t.Helper()
	modes, content = make(map[string]int64), make(map[string]string)
	stream := mutate.Extract(image)
	defer stream.Close()
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, modes, content
		}
		must(t, err)
		text, err := io.ReadAll(r)
		must(t, err)
		if h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s belongs to %d:%d, want 0:0", h.Name, h.Uid, h.Gid)
		}
		names = append(names, h.Name)
		modes[h.Name], content[h.Name] = h.Mode, string(text)
	}
}

// checkConfig compares an image with the last stage of the Dockerfile.
func checkConfig(t *testing.T, image v1.Image, d dockerfile) {
	t.Helper()
	whole, err := image.ConfigFile()
	must(t, err)
	c := whole.Config
	if c.User != d.config.user || !slices.Equal(c.Entrypoint, d.config.entrypoint) || !slices.Equal(c.Cmd, d.config.cmd) ||
		!maps.Equal(c.Labels, d.config.labels) || !slices.Equal(slices.Sorted(maps.Keys(c.ExposedPorts)), slices.Sorted(slices.Values(d.config.ports))) {
		t.Errorf("config = %+v, want what the Dockerfile says: %+v", c, d.config)
	}
}

func TestImage(t *testing.T) {
	r, d, built := example(t)
	said, err := r.writeImage(d, built)
	must(t, err)
	images, digest := imagesOf(t, r.name("image"), r.version)
	if said != digest.String() {
		t.Errorf("digest = %s, want that of the layout, %s", said, digest)
	}
	for p, image := range images {
		checkConfig(t, image, d)
		if created, err := image.ConfigFile(); err != nil || !created.Created.Equal(r.time) || created.OS+"/"+created.Architecture != p {
			t.Errorf("%s: config %+v, %v: want %s, and the time of the release", p, created, err, p)
		}
		_, modes, content := rootfs(t, image)
		want := map[string]int64{
			"etc": 0o755, "etc/ssl": 0o755, "etc/ssl/certs": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644, "coredns": 0o755, "clusterset": 0o755,
			"etc/coredns": 0o755, "etc/coredns/Corefile": 0o644,
		}
		if !maps.Equal(modes, want) {
			t.Errorf("%s has %v, want %v", p, modes, want)
		}
		if content["coredns"] != "coredns for "+p || !strings.Contains(content["etc/ssl/certs/ca-certificates.crt"], "-----BEGIN CERTIFICATE-----") {
			t.Errorf("%s has %q, want its own program, and certificates", p, content["coredns"])
		}
	}

	again := r
	again.out = t.TempDir()
	_, err = again.writeImage(d, built)
	must(t, err)
	must(t, equal(r.name("image"), again.name("image")))
}

// A Dockerfile is rejected if it says more than the image of a release would follow.
func TestDockerfile(t *testing.T) {
	const start = "FROM golang AS build\nRUN go build -o /out/ ./cmd/...\nFROM scratch\n"
	d, err := parseDockerfile("# comment\nFROM golang AS build\nRUN GOOS=$TARGETOS go build -o /out/ ./cmd/...\n\nFROM scratch\n" +
		"COPY --from=build /out/a /a\nCOPY b /etc/b\nUSER 1:2\nEXPOSE 53 53/udp\nENTRYPOINT [\"/a\"]\nCMD [\"-x\"]\nLABEL c=\"d e\"\n")
	must(t, err)
	if !slices.Equal(d.copies, []copied{{true, "/out/a", "a"}, {false, "b", "etc/b"}}) || d.config.user != "1:2" ||
		!slices.Equal(d.config.ports, []string{"53/tcp", "53/udp"}) || d.config.labels["c"] != "d e" || d.config.entrypoint[0] != "/a" || d.config.cmd[0] != "-x" {
		t.Errorf("Dockerfile = %+v", d)
	}
	for _, more := range []string{"WORKDIR /a", "VOLUME /a", "ENV A=b", "COPY --chown=1 a /a", "COPY a b /c", "LABEL a=$B", "LABEL a", "ENTRYPOINT a", "FROM alpine"} {
		if _, err := parseDockerfile(start + more + "\n"); err == nil {
			t.Errorf("%s in the last stage was accepted, want an error", more)
		}
	}
}

func TestKrew(t *testing.T) {
	r, _, _ := example(t)
	must(t, r.writeKrew())
	text, err := os.ReadFile(r.name("krew.yaml"))
	must(t, err)
	var k krewPlugin
	must(t, yaml.UnmarshalStrict(text, &k))
	if k.Spec.Version != "v1.2.3" || len(k.Spec.Platforms) != len(platforms) {
		t.Fatalf("krew manifest\n%s\nwant v1.2.3 for %d platforms", text, len(platforms))
	}
	checkKrew(t, r, k)
	if one := k.Spec.Platforms[3]; one.URI != "https://github.com/clusterset-dns/clusterset/releases/download/v1.2.3/clusterset_v1.2.3_darwin_arm64.tar.gz" ||
		one.Selector.MatchLabels["os"] != "darwin" || one.Selector.MatchLabels["arch"] != "arm64" {
		t.Errorf("last platform = %+v, want darwin/arm64", one)
	}
}

// checkKrew compares the sums with the archives.
func checkKrew(t *testing.T, r release, k krewPlugin) {
	t.Helper()
	all, err := sums(r.out)
	must(t, err)
	for _, p := range k.Spec.Platforms {
		if sum := all[filepath.Base(p.URI)]; sum == "" || sum != p.SHA256 {
			t.Errorf("krew manifest: sha256 of %s = %s, want %q", p.URI, p.SHA256, sum)
		}
	}
}

func TestChart(t *testing.T) {
	r, _, _ := example(t)
	files, err := r.chart("sha256:0a")
	must(t, err)
	content := make(map[string]string)
	for _, f := range files {
		content[f.name] = string(f.content)
	}
	for name, want := range map[string]string{
		"clusterset/Chart.yaml": "\nversion: 1.2.3\nappVersion: v1.2.3\n", "clusterset/values.yaml": "\nimage: registry.example.org/a:v1.2.3@sha256:0a\n",
		"clusterset/templates/dns.yaml": "clusterset.server", "clusterset/values.schema.json": "{",
	} {
		if !strings.Contains(content[name], want) {
			t.Errorf("%s = %s\nwant %q in it", name, content[name], want)
		}
	}
	for _, text := range []string{"", "a: b\na: b\n", "xa: b\n"} {
		if got, err := replaced(text, map[string]string{"a: b": "a: c"}); err == nil {
			t.Errorf("replaced(%q) = %q, want an error: not one line", text, got)
		}
	}
}

func TestModules(t *testing.T) {
	info := &buildinfo.BuildInfo{GoVersion: "go1.26.8", Deps: []*debug.Module{{Path: "example.org/a", Version: "v2.0.0+incompatible", Sum: "h1:b="}}}
	all := modules(info)
	if len(all) != 2 || all[0].PackageURL != "pkg:golang/std@1.26.8" || all[1].PackageURL != "pkg:golang/example.org/a@v2.0.0%2Bincompatible" ||
		(*all[1].Properties)[0].Value != "h1:b=" {
		t.Errorf("modules = %+v", all)
	}
}

// Two builds that differ in one file, or of which one lacks a file, are not the same.
func TestEqual(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	for _, dir := range []string{a, b} {
		must(t, write(filepath.Join(dir, "same"), []byte("same")))
	}
	must(t, equal(a, b))
	must(t, write(filepath.Join(a, "one"), nil))
	if err := equal(a, b); err == nil || !strings.Contains(err.Error(), "one: sha256") || strings.Contains(err.Error(), "same:") {
		t.Errorf("equal = %v, want an error that names the file", err)
	}
}
