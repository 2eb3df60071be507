package export

import (
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/clusterset-dns/clusterset/api/broker"
	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

// exportedLabels returns spec.exportedLabels, sorted by key, without those that no import could have: every importer
// would reject the whole record for one of them.
func (x *exporter) exportedLabels() []v1alpha1.Label {
	var labels []v1alpha1.Label
	for _, key := range x.keys("Label", x.exp.Spec.ExportedLabels) {
		value := x.exp.Spec.ExportedLabels[key]
		if !broker.IsLabelValue(value) {
			x.drop("Label %.80q is not exported: its value is not valid for a label.", key)
			continue
		}
		labels = append(labels, v1alpha1.Label{Key: key, Value: value})
	}
	return labels
}

// exportedAnnotations is exportedLabels for spec.exportedAnnotations.
func (x *exporter) exportedAnnotations() []v1alpha1.Annotation {
	var annotations []v1alpha1.Annotation
	var size int
	for _, key := range x.keys("Annotation", x.exp.Spec.ExportedAnnotations) {
		value := x.exp.Spec.ExportedAnnotations[key]
		if !utf8.ValidString(value) || utf8.RuneCountInString(value) > broker.MaxValue {
			x.drop("Annotation %.80q is not exported: its value is longer than %d characters.", key, broker.MaxValue)
			continue
		}
		if size+len(key)+len(value) > broker.MaxAnnotations {
			x.drop("Annotation %.80q is not exported: together they are longer than %d octets.", key, broker.MaxAnnotations)
			continue
		}
		size += len(key) + len(value)
		annotations = append(annotations, v1alpha1.Annotation{Key: key, Value: value})
	}
	return annotations
}

// keys returns the keys of m that may travel, sorted; of too many the first ones.
func (x *exporter) keys(what string, m map[string]string) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		switch {
		case key == broker.AnnotationCiliumAffinity: // see [preferences]
		case !broker.IsLabelKey(key):
			x.drop("%s %.80q is not exported: its key is not valid for a label.", what, key)
		case broker.IsReservedKey(key):
			x.drop("%s %.80q is not exported: its prefix is reserved.", what, key)
		case len(keys) == broker.MaxMetadata:
			x.drop("%s %.80q is not exported: there are more than %d.", what, key, broker.MaxMetadata)
		default:
			keys = append(keys, key)
		}
	}
	return keys
}
