package redact

import (
	"slices"
	"strings"
)

// Object replaces credentials in the content of an API object, in place.
func (r Redactor) Object(o map[string]any) {
	kind, _ := o["kind"].(string)
	if metadata, ok := o["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
	}
	switch kind {
	case "Secret":
		hideAll(o, "data", "stringData")
	case "ConfigMap":
		hideAll(o, "binaryData")
		r.configMap(o)
	}
	for key, value := range o {
		o[key] = r.value(key, value)
	}
}

// hideAll replaces the values of maps. The keys stay.
func hideAll(o map[string]any, fields ...string) {
	for _, field := range fields {
		values, _ := o[field].(map[string]any)
		for key, v := range values {
			text, _ := v.(string)
			values[key] = hiddenOctets(len(text))
		}
	}
}

// configMap keeps the configuration of DNS servers. Any other value may be a kubeconfig or anything else.
func (r Redactor) configMap(o map[string]any) {
	data, _ := o["data"].(map[string]any)
	for key, v := range data {
		text, _ := v.(string)
		if isDNSConfig(key) {
			data[key] = r.Corefile(text)
		} else {
			data[key] = hiddenOctets(len(text))
		}
	}
}

func isDNSConfig(key string) bool {
	return slices.Contains([]string{"Corefile", "Corefile.base", "stubDomains", "upstreamNameservers"}, key) ||
		strings.HasSuffix(key, ".server") || strings.HasSuffix(key, ".override")
}

// repeatsObject reports whether an annotation holds an object once more, or a part of it.
func repeatsObject(key string) bool {
	return strings.HasSuffix(key, "/last-applied-configuration") || key == "objectset.rio.cattle.io/applied"
}

// value returns the value of a field without credentials.
func (r Redactor) value(key string, value any) any {
	switch value := value.(type) {
	case string:
		return r.text(key, value)
	case []any:
		if key == "args" || key == "command" {
			return r.arguments(value)
		}
		for i := range value {
			value[i] = r.value(key, value[i])
		}
	case map[string]any:
		// Environment variables, headers of probes, parameters: a name, and a value that may be anything.
		if _, named := value["name"].(string); named {
			if text, ok := value["value"].(string); ok {
				value["value"] = hiddenOctets(len(text))
			}
		}
		for k, v := range value {
			value[k] = r.value(k, v)
		}
	}
	return value
}

func (r Redactor) text(key, value string) string {
	switch {
	case strings.HasPrefix(value, "<redacted, "):
		return value
	case repeatsObject(key), secretKey.MatchString(key) && value != "":
		return hiddenOctets(len(value))
	}
	return r.Text(value)
}

// arguments also replaces the one after a flag for a credential.
func (r Redactor) arguments(all []any) []any {
	hide := false
	for i := range all {
		text, ok := all[i].(string)
		if !ok {
			continue
		}
		if hide {
			all[i] = hiddenOctets(len(text))
		} else {
			all[i] = r.Text(text)
		}
		hide = !hide && strings.HasPrefix(text, "-") && !strings.ContainsAny(text, "= ") && secretKey.MatchString(text)
	}
	return all
}
