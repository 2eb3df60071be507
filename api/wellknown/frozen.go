package wellknown

import (
	"encoding/json"
	"time"

	"github.com/clusterset-dns/clusterset/api/shorten"
)

// AnnotationFrozen on [ControllerLease] has the reasons for which the controller that holds the Lease has suspended
// operations (docs/spec/controller.md 8.7). It counts while that controller renews the Lease.
const AnnotationFrozen = "clusterset-dns.io/frozen"

// A Freeze is one reason in [AnnotationFrozen].
type Freeze struct {
	Reason   string    `json:"reason"`
	Code     string    `json:"code"`              // of package reason; one that this version does not know comes from a newer controller
	Detail   string    `json:"detail"`            // one phrase, as it was a minute ago or later
	Suspends string    `json:"suspends"`          // in words
	Imports  bool      `json:"imports,omitempty"` // suspends what imports are made from: they may lack something because of it
	Since    time.Time `json:"since"`
}

// maxFreezes and maxFreezeText bound the annotation: the election writes the Lease every 2 seconds, with all that it
// holds.
const (
	maxFreezes    = 16
	maxFreezeText = 500 // octets
)

// FormatFreezes returns the annotation, "" without a reason.
func FormatFreezes(all []Freeze) string {
	if len(all) == 0 {
		return ""
	}
	list := make([]Freeze, 0, maxFreezes)
	for _, f := range all[:min(len(all), maxFreezes)] {
		f.Since = f.Since.UTC().Truncate(time.Second)
		cut(&f)
		list = append(list, f)
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic("wellknown: a Freeze that JSON does not take: " + err.Error())
	}
	return string(text)
}

// ParseFreezes returns the content of an annotation, nil if it is malformed: somebody else wrote it, and the controller
// writes it again.
func ParseFreezes(text string) (all []Freeze) {
	if text == "" || json.Unmarshal([]byte(text), &all) != nil || len(all) > maxFreezes {
		return nil
	}
	for i := range all {
		cut(&all[i])
	}
	return all
}

// cut shortens the texts of a Freeze.
func cut(f *Freeze) {
	for _, text := range []*string{&f.Reason, &f.Code, &f.Detail, &f.Suspends} {
		*text = shorten.Text(*text, maxFreezeText)
	}
}
