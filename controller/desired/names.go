package desired

import (
	"github.com/clusterset-dns/clusterset/api/broker"
)

// DerivedName is the name of the Service that is derived from an import.
func DerivedName(namespace, name string) string { return "derived-" + broker.Hash(16, namespace, name) }

// importedPrefix starts the name of an imported slice.
const importedPrefix = "imported-"
