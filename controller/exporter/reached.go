package exporter

import (
	"fmt"
	"strings"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
)

// idText lists ids with commas between them, and says how many more there are if they are too long.
func idText(ids []string) string {
	text := strings.Join(ids, ",")
	if len(text) <= apibroker.MaxExportedTo {
		return text
	}
	end := strings.LastIndexByte(text[:apibroker.MaxExportedTo], ',')
	return fmt.Sprintf("%s,+%d", text[:end], strings.Count(text[end:], ","))
}
