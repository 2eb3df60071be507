package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// A file of an archive. Its owner is root, and its time that of the release.
type file struct {
	name       string
	content    []byte
	executable bool
}

// tarball returns the files, in the order given, as they are on every machine. The folders that they are in come before them: some
// programs that unpack want them.
func tarball(files []file, t time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	known := map[string]bool{".": true}
	var folder func(name string) error
	folder = func(name string) error {
		if known[name] {
			return nil
		}
		known[name] = true
		if err := folder(filepath.Dir(name)); err != nil {
			return err
		}
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: t, Format: tar.FormatUSTAR})
	}
	for _, f := range files {
		mode := int64(0o644)
		if f.executable {
			mode = 0o755
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.content)), Mode: mode, ModTime: t, Format: tar.FormatUSTAR}
		if err := errors.Join(folder(filepath.Dir(f.name)), w.WriteHeader(header)); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// compressed is the gzip of content, without name and time.
func compressed(content []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err := w.Close()
	return b.Bytes(), err
}

// writeArchive writes files as .tar.gz.
func (r release) writeArchive(name string, files []file) error {
	tarred, err := tarball(files, r.time)
	if err != nil {
		return err
	}
	zipped, err := compressed(tarred)
	if err != nil {
		return err
	}
	return write(name, zipped)
}

// archives writes one archive for each program of a platform, with the license.
func (r release) archives(p platform, dir string) error {
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return err
	}
	for _, program := range programs {
		content, err := os.ReadFile(filepath.Join(dir, program))
		if err != nil {
			return err
		}
		files := []file{{name: program, content: content, executable: true}, {name: "LICENSE", content: license}}
		if err := r.writeArchive(r.archive(program, p), files); err != nil {
			return err
		}
	}
	return nil
}

func (r release) archive(program string, p platform) string {
	return r.name(program, r.version, p.os, p.arch+".tar.gz")
}
