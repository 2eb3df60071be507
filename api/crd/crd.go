// Package crd holds the generated CustomResourceDefinitions of the types below api, as YAML, to be installed; they
// must not be changed. [Requirement] checks whether the CRDs of a cluster have the fields of ours.
package crd

import _ "embed"

//go:generate go tool -modfile=../../test/tools/generate/go.mod controller-gen object crd paths=../about/... paths=../broker/... output:crd:dir=.

// ClusterProperties is the definition of ClusterProperty (KEP-2149) at v1beta1, which is stored, and v1alpha1.
//
//go:embed about.k8s.io_clusterproperties.yaml
var ClusterProperties []byte

// ExportedServices is the definition of ExportedService, for a broker.
//
//go:embed broker.clusterset-dns.io_exportedservices.yaml
var ExportedServices []byte

// Inventories is the definition of Inventory, for a broker.
//
//go:embed broker.clusterset-dns.io_inventories.yaml
var Inventories []byte

// Members is the definition of Member, for a broker.
//
//go:embed broker.clusterset-dns.io_members.yaml
var Members []byte
