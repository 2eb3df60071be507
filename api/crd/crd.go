// Package crd holds the generated CustomResourceDefinitions of the types below api, as YAML, to be installed.
package crd

import _ "embed"

//go:generate go tool -modfile=../../test/generate/go.mod controller-gen object crd paths=../about/... output:crd:dir=.

// ClusterProperties is the definition of ClusterProperty (KEP-2149) at v1beta1, which is stored, and v1alpha1. Nobody
// may write to it.
//
//go:embed about.k8s.io_clusterproperties.yaml
var ClusterProperties []byte
