package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// A krewPlugin is what the index of krew has of a plugin of kubectl.
type krewPlugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       krewSpec          `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string              `json:"uri"`
	SHA256 string              `json:"sha256"`
	Bin    string              `json:"bin"`
	Files  []map[string]string `json:"files"`
}

// krew describes the archives of the command, which sums has by platform.
func (r release) krew(sums map[platform]string) krewPlugin {
	k := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]string{"name": "clusterset"},
		Spec: krewSpec{
			Version: r.version, Homepage: "https://" + module,
			ShortDescription: "Join clusters to a clusterset and export services",
			Description: "Makes clusters members of a clusterset (Multi-Cluster Services API, KEP-1645),\n" +
				"exports services to it, and finds out why a name does not resolve.\n",
		},
	}
	for _, p := range platforms {
		archive := filepath.Base(r.archive("clusterset", p))
		one := krewPlatform{
			URI: "https://" + module + "/releases/download/" + r.version + "/" + archive, SHA256: sums[p], Bin: "clusterset",
			Files: []map[string]string{{"from": "clusterset", "to": "."}, {"from": "LICENSE", "to": "."}},
		}
		one.Selector.MatchLabels = map[string]string{"os": p.os, "arch": p.arch}
		k.Spec.Platforms = append(k.Spec.Platforms, one)
	}
	return k
}

// writeKrew writes the manifest for the index of krew.
func (r release) writeKrew() error {
	sums := make(map[platform]string)
	for _, p := range platforms {
		content, err := os.ReadFile(r.archive("clusterset", p))
		if err != nil {
			return err
		}
		sums[p] = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	text, err := yaml.Marshal(r.krew(sums))
	if err != nil {
		return err
	}
	return write(r.name("krew.yaml"), text)
}
