//go:build release

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"debug/macho"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"sigs.k8s.io/yaml"
)

// The release is in the folder dist of the repository: make test-release has built it.
var releaseVersion = flag.String("version", "", "version that was built")

func built(t *testing.T) release {
	t.Helper()
	must(t, checkVersion(*releaseVersion))
	return release{out: "../dist", version: *releaseVersion}
}

// TestReleaseSums: the sums are right, and there is one for each file.
func TestReleaseSums(t *testing.T) {
	r := built(t)
	text, err := os.ReadFile(r.name(sumsFile))
	must(t, err)
	all, err := sums(r.out)
	must(t, err)
	delete(all, sumsFile)
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if all[name] != sum {
			t.Errorf("%s has the sum %q, want %s", name, all[name], sum)
		}
		delete(all, name)
	}
	if len(all) > 0 {
		t.Errorf("%s lacks %v", sumsFile, all)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--quiet", sumsFile)
	check.Dir = r.out
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum --check: %v\n%s", err, out)
	}
}

// unpack returns the files of an archive of a release.
func unpack(t *testing.T, name string) map[string][]byte {
	t.Helper()
	zipped, err := os.Open(name)
	must(t, err)
	defer zipped.Close()
	stream, err := gzip.NewReader(zipped)
	must(t, err)
	files := make(map[string][]byte)
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		files[h.Name], err = io.ReadAll(r)
		must(t, err)
	}
}

// TestReleasePrograms: each archive has a static program for its platform, and those for this one say their version.
func TestReleasePrograms(t *testing.T) {
	r := built(t)
	for _, p := range platforms {
		for _, program := range programs {
			files := unpack(t, r.archive(program, p))
			if len(files["LICENSE"]) == 0 || len(files) != 2 {
				t.Errorf("%s has %d files, want %s and LICENSE", r.archive(program, p), len(files), program)
			}
			checkProgram(t, p, files[program])
			if p.String() == runtime.GOOS+"/"+runtime.GOARCH {
				runs(t, r, program, files[program])
			}
		}
	}
}

func checkProgram(t *testing.T, p platform, content []byte) {
	t.Helper()
	machines := map[platform]any{
		{"linux", "amd64"}: elf.EM_X86_64, {"linux", "arm64"}: elf.EM_AARCH64, {"darwin", "amd64"}: macho.CpuAmd64, {"darwin", "arm64"}: macho.CpuArm64,
	}
	if p.os == "darwin" {
		file, err := macho.NewFile(bytes.NewReader(content))
		must(t, err)
		if file.Cpu != machines[p] {
			t.Errorf("program of %s is for %s", p, file.Cpu)
		}
		return
	}
	file, err := elf.NewFile(bytes.NewReader(content))
	must(t, err)
	if file.Machine != machines[p] {
		t.Errorf("program of %s is for %s", p, file.Machine)
	}
	for _, s := range file.Progs {
		if s.Type == elf.PT_INTERP || s.Type == elf.PT_DYNAMIC {
			t.Errorf("program of %s has a %s segment, want a static one", p, s.Type)
		}
	}
}

func runs(t *testing.T, r release, program string, content []byte) {
	t.Helper()
	name := filepath.Join(t.TempDir(), program)
	must(t, os.WriteFile(name, content, 0o700))
	argument := map[string]string{"clusterset": "version", "coredns": "-version"}[program]
	out, err := exec.CommandContext(t.Context(), name, argument).CombinedOutput()
	if err != nil || !strings.Contains(string(out), r.version+"\n") {
		t.Errorf("%s %s: %v, %s\nwant %s", program, argument, err, out, r.version)
	}
}

// TestReleaseImage: the layout is valid, and as the Dockerfile says; its programs are those of the archives.
func TestReleaseImage(t *testing.T) {
	r := built(t)
	d, err := readDockerfile("../Dockerfile")
	must(t, err)
	images, _ := imagesOf(t, r.name("image"), r.version)
	for _, p := range platforms[:2] {
		checkConfig(t, images[p.String()], d)
		_, _, content := rootfs(t, images[p.String()])
		for _, c := range d.copies {
			if content[c.to] == "" {
				t.Errorf("image of %s: no %s", p, c.to)
			}
		}
		for _, program := range programs {
			if content[program] != string(unpack(t, r.archive(program, p))[program]) {
				t.Errorf("image of %s: %s is not that of %s", p, program, r.archive(program, p))
			}
		}
	}
}

// TestReleaseSBOM: it names what the go command says the programs are compiled from.
func TestReleaseSBOM(t *testing.T) {
	r := built(t)
	text, err := os.Open(r.name("clusterset", r.version, "sbom.cdx.json"))
	must(t, err)
	defer text.Close()
	var bom cyclonedx.BOM
	must(t, cyclonedx.NewBOMDecoder(text, cyclonedx.BOMFileFormatJSON).Decode(&bom))
	has := map[string]bool{bom.Metadata.Component.Name + "@": true} // this module has no version in a checkout
	for _, c := range *bom.Components {
		has[c.Name+"@"+c.Version] = true
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-pgo=off", "-f", "{{with .Module}}{{.Path}}@{{.Version}}{{end}}", "./cmd/...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	must(t, err)
	listed := strings.Fields(string(out))
	if len(listed) < 100 || !has["std@"+strings.TrimPrefix(runtime.Version(), "go")] {
		t.Errorf("go list names %d packages of modules, want over 100; or the SBOM lacks the standard library", len(listed))
	}
	for _, m := range listed {
		if !has[m] {
			t.Errorf("SBOM lacks %s", m)
		}
	}
}

// TestReleaseKrew: its sums are those of the archives, which have the files that it names.
func TestReleaseKrew(t *testing.T) {
	r := built(t)
	text, err := os.ReadFile(r.name("krew.yaml"))
	must(t, err)
	var k krewPlugin
	must(t, yaml.UnmarshalStrict(text, &k))
	checkKrew(t, r, k)
	for _, p := range k.Spec.Platforms {
		files := unpack(t, r.name(filepath.Base(p.URI)))
		for _, f := range p.Files {
			if len(files[f["from"]]) == 0 {
				t.Errorf("%s lacks %s, which the krew manifest names", p.URI, f["from"])
			}
		}
	}
}

// TestReleaseChart: Helm renders it with the image of the release.
func TestReleaseChart(t *testing.T) {
	r := built(t)
	_, digest := imagesOf(t, r.name("image"), r.version)
	chart := r.name("clusterset-" + strings.TrimPrefix(r.version, "v") + ".tgz")
	out, err := exec.CommandContext(t.Context(), "../bin/helm", "template", chart, "clusterset-system").CombinedOutput()
	if err != nil || !strings.Contains(string(out), ":"+r.version+"@"+digest.String()) {
		t.Errorf("helm template: %v\n%s\nwant the image of the release, with %s", err, out, digest)
	}
}
