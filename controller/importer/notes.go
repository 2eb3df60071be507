package importer

import (
	"encoding/json"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/desired"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// A note describes the export record of one cluster in an import.
type note struct {
	Record protocol.Stamp `json:"record"`
	Export types.UID      `json:"export"`
	From   protocol.Stamp `json:"from,omitempty"`
	Listed protocol.Stamp `json:"listed,omitempty"`
}

func (n note) noted() protocol.Noted {
	return protocol.Noted{
		Record: protocol.Record{Stamp: n.Record, UID: n.Export, Partial: n.Record != 0}, From: n.From, Listed: n.Listed,
	}
}

// notes of a ServiceImport, by cluster.
type notes map[string]note

// notesOf returns the notes of an import; empty if it is not ours or does not decode.
func notesOf(imp *mcsv1beta1.ServiceImport) notes {
	var all notes
	if !member.IsOurs(imp) || json.Unmarshal([]byte(imp.Annotations[apibroker.AnnotationSources]), &all) != nil {
		return nil
	}
	return all
}

// importedFrom returns the clusters of an import: in its status, and in its notes, since the status is written last.
func importedFrom(imp *mcsv1beta1.ServiceImport, noted notes) []string {
	if !member.IsOurs(imp) {
		return nil
	}
	clusters := slices.Collect(maps.Keys(noted))
	for _, c := range imp.Status.Clusters {
		clusters = append(clusters, c.Cluster)
	}
	return clusters
}

// annotate writes the notes to an import.
func (n notes) annotate(imp *mcsv1beta1.ServiceImport) {
	if len(n) == 0 {
		return
	}
	text, err := json.Marshal(n)
	if err != nil {
		panic("importer: notes that are not JSON: " + err.Error())
	}
	metav1.SetMetaDataAnnotation(&imp.ObjectMeta, apibroker.AnnotationSources, string(text))
}

// sourceOf returns the source of an imported slice, from its note.
func sourceOf(e *discoveryv1.EndpointSlice) (protocol.Slice, bool) {
	source, ok := desired.SourceOf(e)
	return protocol.Slice{Name: source.Hash, UID: types.UID(source.UID), Stamp: protocol.Stamp(source.Stamp)}, ok
}
