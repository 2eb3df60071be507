package importer

import (
	"encoding/json"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/controller/member"
	"github.com/clusterset-dns/clusterset/controller/protocol"
)

// A note is what a ServiceImport notes of the export record of one cluster.
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

// notes are those of a ServiceImport, by cluster.
type notes map[string]note

// notesOf returns the notes of an import, none if it is not ours or they do not decode.
func notesOf(imp *mcsv1beta1.ServiceImport) notes {
	var all notes
	if !member.IsOurs(imp) || json.Unmarshal([]byte(imp.Annotations[apibroker.AnnotationSources]), &all) != nil {
		return nil
	}
	return all
}

// importedFrom returns the clusters that an import has in its status or, which is written last, will have there. None if it is not ours.
func importedFrom(imp *mcsv1beta1.ServiceImport) (clusters []string) {
	if !member.IsOurs(imp) {
		return nil
	}
	for cluster := range notesOf(imp) {
		clusters = append(clusters, cluster)
	}
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

// sourceOf returns what an imported slice was made from, by its note.
func sourceOf(e *discoveryv1.EndpointSlice) (protocol.Slice, bool) {
	words := strings.Split(e.Annotations[apibroker.AnnotationSource], " ")
	if len(words) != 4 {
		return protocol.Slice{}, false
	}
	stamp, err := strconv.ParseInt(words[3], 10, 64)
	return protocol.Slice{Name: words[0], UID: types.UID(words[1]), Stamp: protocol.Stamp(stamp)}, err == nil
}
