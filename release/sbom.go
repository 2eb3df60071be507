package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes what the programs are made of, in the format of CycloneDX: the modules that the Go toolchain recorded in them, of all
// platforms together. It has no serial number, which would be another one each time.
func (r release) writeSBOM(built map[platform]string) error {
	used := make(map[string][]string) // by program: references of components
	components := make(map[string]cyclonedx.Component)
	for _, p := range platforms {
		for _, program := range programs {
			info, err := buildinfo.ReadFile(filepath.Join(built[p], program))
			if err != nil {
				return err
			}
			for _, c := range modules(info) {
				components[c.BOMRef] = c
				used[program] = append(used[program], c.BOMRef)
			}
		}
	}
	var b bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&b, cyclonedx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.EncodeVersion(r.sbom(components, used), cyclonedx.SpecVersion1_6); err != nil {
		return err
	}
	return write(r.name("clusterset", r.version, "sbom.cdx.json"), b.Bytes())
}

// sbom returns the bill: the release consists of programs, and each depends on components.
func (r release) sbom(components map[string]cyclonedx.Component, used map[string][]string) *cyclonedx.BOM {
	all := make([]cyclonedx.Component, 0, len(components)+len(used))
	var graph []cyclonedx.Dependency
	for _, program := range slices.Sorted(maps.Keys(used)) {
		ref := module + "/cmd/" + program
		all = append(all, cyclonedx.Component{BOMRef: ref, Type: cyclonedx.ComponentTypeApplication, Name: program, Version: r.version})
		on := slices.Compact(slices.Sorted(slices.Values(used[program])))
		graph = append(graph, cyclonedx.Dependency{Ref: ref, Dependencies: &on})
	}
	for _, ref := range slices.Sorted(maps.Keys(components)) {
		all = append(all, components[ref])
	}
	whole := component(module, r.version)
	whole.Type = cyclonedx.ComponentTypeApplication
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &whole}
	bom.Components, bom.Dependencies = &all, &graph
	return bom
}

// modules are those that a program was compiled from, and the standard library.
func modules(info *buildinfo.BuildInfo) []cyclonedx.Component {
	all := []cyclonedx.Component{component("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component(m.Path, m.Version)
		// The sum is that of go.sum: a hash of hashes, which CycloneDX has no name for.
		c.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: m.Sum}}
		all = append(all, c)
	}
	return all
}

func component(path, version string) cyclonedx.Component {
	purl := fmt.Sprintf("pkg:golang/%s@%s", path, strings.ReplaceAll(version, "+", "%2B"))
	return cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
}
