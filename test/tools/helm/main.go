// Command helm does what tests and releases need of Helm, with Helm's own packages:
//
//	helm lint CHART [VALUES]                  prints what is wrong with the chart, and fails if anything is
//	helm template CHART NAMESPACE [VALUES]    prints what Helm would send to the API server, and last the notes
//	helm package CHART FOLDER                 writes the archive of the chart to the folder
//
// VALUES is a file. The whole program of Helm, with its clients of registries and clusters, would take minutes to
// build.
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) >= 2 && args[0] == "lint":
		return check(args[1], args[2:])
	case len(args) >= 3 && args[0] == "template":
		return render(args[1], args[2], args[3:])
	case len(args) == 3 && args[0] == "package":
		return pack(args[1], args[2])
	}
	return fmt.Errorf(
		"arguments %q: want lint CHART [VALUES], template CHART NAMESPACE [VALUES], or package CHART FOLDER", args)
}

func check(chart string, files []string) error {
	given, err := values(files)
	if err != nil {
		return err
	}
	linter := lint.RunAll(chart, given, "clusterset-system")
	failed := false
	for _, m := range linter.Messages {
		fmt.Println(m)
		failed = failed || m.Severity >= support.WarningSev
	}
	if failed {
		return errors.New("the chart has warnings or errors")
	}
	return nil
}

func render(path, namespace string, files []string) error {
	chart, err := loader.Load(path)
	if err != nil {
		return err
	}
	given, err := values(files)
	if err != nil {
		return err
	}
	release := common.ReleaseOptions{Name: "clusterset", Namespace: namespace, IsInstall: true, Revision: 1}
	all, err := util.ToRenderValues(chart, given, release, nil)
	if err != nil {
		return err
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		return err
	}
	notes := filepath.Join(chart.Name(), "templates", "NOTES.txt")
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if name != notes {
			fmt.Printf("---\n# Source: %s\n%s\n", name, rendered[name])
		}
	}
	fmt.Printf("---\n# NOTES:\n%s", rendered[notes])
	return nil
}

func pack(path, folder string) error {
	chart, err := loader.Load(path)
	if err != nil {
		return err
	}
	_, err = chartutil.Save(chart, folder)
	return err
}

func values(files []string) (map[string]any, error) {
	all := map[string]any{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal(text, &all); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return all, nil
}
