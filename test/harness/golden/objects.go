package golden

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Expand makes a YAML manifest of object lines. The fields of a line have two spaces or more between them:
//
//	ServiceImport    NAMESPACE/NAME  TYPE  [v1alpha1]  [ips: IP...]  [ports: PORT...]  [labels: KEY=VALUE...]  [weights: ID=N,...]
//	EndpointSlice    NAMESPACE/NAME  [cluster: ID]  [type: TYPE]  [ports: PORT...]  [for-zone: Z]  [for-region: R]
//	                 [service: NAME]  [labels: KEY=VALUE...]  [ENDPOINT...]
//	ClusterProperty  NAME  VALUE  [v1alpha1]
//	Namespace        NAME  [labels: KEY=VALUE...]
//
// A PORT is NAME/PROTOCOL/NUMBER, each of which may be empty. A slice is one of the service NAME, and its own name is
// made up; "service: OTHER" puts another value into the label, "service: none" leaves it out. Its ports are those of
// the import of that name unless it has some itself ("ports: none" for none), and its type is that of its first
// address.
//
// An ENDPOINT is [HOSTNAME=]ADDRESS[,ADDRESS...], and behind it, in parentheses, conditions with commas between: ready,
// not-ready, serving, not-serving, terminating.
func Expand(objects []string) ([]byte, error) {
	e := expander{ports: map[string][]any{}}
	for i, line := range objects {
		if err := e.line(i, line); err != nil {
			return nil, fmt.Errorf("object %q: %w", line, err)
		}
	}
	return e.out.Bytes(), nil
}

type expander struct {
	out   bytes.Buffer
	ports map[string][]any // of each import
}

type object = map[string]any

var gap = regexp.MustCompile(`\s{2,}`)

// A fields is the fields of a line: those with a key, and the others in their order.
type fields struct {
	keyed map[string]string
	bare  []string
}

var keys = regexp.MustCompile(`^(ips|ports|labels|weights|cluster|type|for-zone|for-region|service|name):(?: |$)`)

func split(line string) (kind string, f fields) {
	f.keyed = map[string]string{}
	all := gap.Split(strings.TrimSpace(line), -1)
	for _, field := range all[1:] {
		if key := keys.FindString(field); key != "" {
			f.keyed[strings.TrimRight(key, ": ")] = strings.TrimSpace(field[len(key):])
			continue
		}
		f.bare = append(f.bare, field)
	}
	return all[0], f
}

// take removes and returns a bare field.
func (f *fields) take() string {
	if len(f.bare) == 0 {
		return ""
	}
	first := f.bare[0]
	f.bare = f.bare[1:]
	return first
}

func (e *expander) line(i int, line string) error {
	kind, f := split(line)
	namespace, name, namespaced := strings.Cut(f.take(), "/")
	if !namespaced {
		namespace, name = "", namespace
	}
	o := object{"kind": kind, "metadata": object{"name": name}}
	if namespaced {
		o["metadata"].(object)["namespace"] = namespace
	}
	labels := pairs(f.keyed["labels"])
	var err error
	switch kind {
	case "ServiceImport":
		err = e.serviceImport(o, &f, namespace+"/"+name)
	case "EndpointSlice":
		err = e.endpointSlice(o, &f, labels, namespace+"/"+name)
		o["metadata"].(object)["name"] = slug(name) + "-" + strconv.Itoa(i)
	case "ClusterProperty":
		o["spec"] = object{"value": f.take()}
		o["apiVersion"] = "about.k8s.io/" + f.version()
	case "Namespace":
		o["apiVersion"] = "v1"
	default:
		return fmt.Errorf("kind %q: want ServiceImport, EndpointSlice, ClusterProperty or Namespace", kind)
	}
	if err == nil && len(f.bare) > 0 {
		err = fmt.Errorf("field %q: want none", f.bare[0])
	}
	if err != nil {
		return err
	}
	if len(labels) > 0 {
		o["metadata"].(object)["labels"] = labels
	}
	b, err := yaml.Marshal(o)
	fmt.Fprintf(&e.out, "---\n%s", b)
	return err
}

// slug makes the name of a slice one that every API server takes, whatever the service is called.
func slug(name string) string {
	name = strings.Trim(strings.ToLower(name), "-_.")
	return "s" + name[:min(len(name), 40)]
}

func (f *fields) version() string {
	if len(f.bare) > 0 && f.bare[0] == "v1alpha1" {
		return f.take()
	}
	return "v1beta1"
}

func (e *expander) serviceImport(o object, f *fields, id string) error {
	ports, err := parsePorts(f.keyed["ports"])
	if err != nil {
		return err
	}
	e.ports[id] = ports
	spec := object{"type": f.take(), "ports": ports}
	if ips := strings.Fields(f.keyed["ips"]); len(ips) > 0 {
		spec["ips"] = ips
	}
	if weights, ok := f.keyed["weights"]; ok {
		o["metadata"].(object)["annotations"] = object{"clusterset-dns.io/weights": weights}
	}
	o["apiVersion"] = "multicluster.x-k8s.io/" + f.version()
	o["spec"] = spec
	return nil
}

func (e *expander) endpointSlice(o object, f *fields, labels map[string]string, id string) (err error) {
	o["apiVersion"] = "discovery.k8s.io/v1"
	_, service, _ := strings.Cut(id, "/")
	if other, ok := f.keyed["service"]; ok {
		service = other
	}
	if service != "none" {
		labels["multicluster.kubernetes.io/service-name"] = service
	}
	for key, label := range map[string]string{
		"cluster":    "multicluster.kubernetes.io/source-cluster",
		"for-zone":   "endpointslice.kubernetes.io/for-zone",
		"for-region": "endpointslice.kubernetes.io/for-region",
	} {
		if value, ok := f.keyed[key]; ok {
			labels[label] = value
		}
	}
	ports := e.ports[id]
	if own, ok := f.keyed["ports"]; ok {
		if ports, err = parsePorts(own); err != nil {
			return err
		}
	}
	o["ports"] = ports
	endpoints := []any{}
	family := "IPv4"
	for _, text := range strings.Fields(strings.Join(f.bare, " ")) {
		ep := endpoint(text)
		if len(endpoints) == 0 && strings.Contains(ep["addresses"].([]string)[0], ":") {
			family = "IPv6"
		}
		endpoints = append(endpoints, ep)
	}
	f.bare = nil
	if typ, ok := f.keyed["type"]; ok {
		family = typ
	}
	o["addressType"], o["endpoints"] = family, endpoints
	return nil
}

func endpoint(text string) object {
	ep := object{}
	text, flags, _ := strings.Cut(strings.TrimSuffix(text, ")"), "(")
	conditions := object{}
	for flag := range strings.SplitSeq(flags, ",") {
		if flag != "" {
			condition, negated := strings.CutPrefix(flag, "not-")
			conditions[condition] = !negated
		}
	}
	if len(conditions) > 0 {
		ep["conditions"] = conditions
	}
	if host, rest, ok := strings.Cut(text, "="); ok {
		ep["hostname"], text = host, rest
	}
	ep["addresses"] = strings.Split(text, ",")
	return ep
}

func parsePorts(text string) ([]any, error) {
	ports := []any{}
	if text == "none" {
		return ports, nil
	}
	for _, field := range strings.Fields(text) {
		parts := strings.Split(field, "/")
		if len(parts) != 3 {
			return nil, fmt.Errorf("port %q: want NAME/PROTOCOL/NUMBER", field)
		}
		port := object{}
		if parts[0] != "" {
			port["name"] = parts[0]
		}
		if parts[1] != "" {
			port["protocol"] = parts[1]
		}
		if parts[2] != "" {
			n, err := strconv.ParseInt(parts[2], 10, 32)
			if err != nil {
				return nil, fmt.Errorf("port %q: want a number: %w", field, err)
			}
			port["port"] = n
		}
		ports = append(ports, port)
	}
	return ports, nil
}

func pairs(text string) map[string]string {
	m := map[string]string{}
	for _, field := range strings.Fields(text) {
		key, value, _ := strings.Cut(field, "=")
		m[key] = value
	}
	return m
}
