package exporter

import (
	"fmt"
	"strings"

	apibroker "github.com/clusterset-dns/clusterset/api/broker"
)

// idText lists ids with commas between them. A list that is too long ends with the number of the others.
func idText(ids []string) string {
	text := strings.Join(ids, ",")
	if len(text) <= apibroker.MaxExportedTo {
		return text
	}
	end := strings.LastIndexByte(text[:apibroker.MaxExportedTo], ',')
	return fmt.Sprintf("%s,+%d", text[:end], strings.Count(text[end:], ","))
}
