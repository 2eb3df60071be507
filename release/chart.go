package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// chartFolder has the chart in the source.
const chartFolder = "deploy/chart"

// replacements are the lines of the chart that a release changes.
func (r release) replacements(digest string) map[string]map[string]string {
	return map[string]map[string]string{
		"Chart.yaml": {
			"version: 0.0.0-dev": "version: " + strings.TrimPrefix(r.version, "v"),
			"appVersion: dev":    "appVersion: " + r.version,
		},
		"values.yaml": {"image: registry.example.org/clusterset:latest": fmt.Sprintf("image: %s:%s@%s", r.image, r.version, digest)},
	}
}

// writeChart packs the chart as "helm package" does, but for the time, which that takes from the clock. Its values name the image of the
// release by digest.
func (r release) writeChart(digest string) error {
	files, err := r.chart(digest)
	if err != nil {
		return err
	}
	return r.writeArchive(r.name("clusterset-"+strings.TrimPrefix(r.version, "v")+".tgz"), files)
}

func (r release) chart(digest string) (files []file, err error) {
	folder := filepath.Join(r.source, chartFolder)
	err = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		text, err := replaced(string(content), r.replacements(digest)[name])
		if err != nil {
			return fmt.Errorf("%s/%s: %w", chartFolder, name, err)
		}
		files = append(files, file{name: "clusterset/" + filepath.ToSlash(name), content: []byte(text)})
		return nil
	})
	return files, err
}

// replaced replaces whole lines, each of which must be there once.
func replaced(text string, lines map[string]string) (string, error) {
	found := make(map[string]int)
	all := strings.Split(text, "\n")
	for i, line := range all {
		if to, ok := lines[line]; ok {
			all[i] = to
			found[line]++
		}
	}
	for line := range lines {
		if found[line] != 1 {
			return "", fmt.Errorf("line %q is there %d times: want it once", line, found[line])
		}
	}
	return strings.Join(all, "\n"), nil
}
