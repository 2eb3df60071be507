package deploy

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/api/wellknown"
)

// chart is the one source of what runs in a member: Helm renders it, [Render] renders it for "clusterset join", and the
// manifests beside it are generated from it by "go generate".
//
//go:generate go test -run ^TestGenerated$ . -update
//go:embed all:chart
var chart embed.FS

// A Mode selects the programs in a member, and how they run. The values are those of "mode" in chart/values.yaml.
type Mode string

// The modes.
const (
	Separate       Mode = "separate"   // DNS server and controller, each in a Deployment of its own
	OnlyDNS        Mode = "dns"        // the DNS server alone
	OnlyController Mode = "controller" // the controller alone
	AllInOne       Mode = "all-in-one" // both in one process
)

// parts returns the templates of the mode, rights first.
func (m Mode) parts() []string {
	switch m {
	case OnlyDNS:
		return []string{"dns-rbac", "dns"}
	case OnlyController:
		return []string{"controller-rbac", "controller"}
	case AllInOne:
		return []string{"all-in-one-rbac", "all-in-one"}
	}
	return []string{"dns-rbac", "controller-rbac", "dns", "controller"}
}

// Options select the manifests. The zero value of a field stands for the default in chart/values.yaml.
type Options struct {
	Mode      Mode
	Namespace string         // [wellknown.ControllerNamespace] if empty
	ManagedBy string         // value of the label app.kubernetes.io/managed-by; no label if empty
	Values    map[string]any // more values of the chart, such as "image"
}

// Render returns the objects of a mode, as YAML of several documents. It returns an error if the options have a value
// that the templates cannot take.
func Render(o Options) ([]byte, error) {
	return renderParts(o, func(string) bool { return true })
}

// Rights returns those of the objects that are rights, with the policies beside them.
func Rights(o Options) ([]byte, error) {
	return renderParts(o, func(name string) bool { return strings.HasSuffix(name, "-rbac") })
}

// renderParts executes the wanted templates of the mode, by name.
func renderParts(o Options, wanted func(name string) bool) ([]byte, error) {
	var all bytes.Buffer
	o.Mode = cmp.Or(o.Mode, Separate)
	for _, name := range o.Mode.parts() {
		if !wanted(name) {
			continue
		}
		text, err := render(name, o)
		if err != nil {
			return nil, err
		}
		all.Write(text)
	}
	return all.Bytes(), nil
}

// render executes one template as Helm does.
func render(name string, o Options) ([]byte, error) {
	templates, err := template.New("").Option("missingkey=error").Funcs(template.FuncMap{"dict": dict, "mul": mul,
		"replace": replace, "toJson": toJSON}).
		ParseFS(chart, "chart/templates/*.tpl", "chart/templates/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	values := map[string]any{}
	defaults, err := chart.ReadFile("chart/values.yaml")
	if err == nil {
		err = yaml.Unmarshal(defaults, &values)
	}
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	maps.Copy(values, o.Values)
	values["mode"] = string(o.Mode)
	var out bytes.Buffer
	err = templates.ExecuteTemplate(&out, name+".yaml", map[string]any{
		"Values":  values,
		"Release": map[string]any{"Namespace": cmp.Or(o.Namespace, wellknown.ControllerNamespace), "Service": o.ManagedBy},
	})
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// dict, mul, replace and toJSON are the functions of Helm that the templates use.
func dict(pairs ...any) (map[string]any, error) {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		key, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: key %v: want a string", pairs[i])
		}
		m[key] = pairs[i+1]
	}
	return m, nil
}

func mul(a int, b string) (int, error) {
	n, err := strconv.Atoi(b)
	return a * n, err
}

func replace(from, to, text string) string { return strings.ReplaceAll(text, from, to) }

func toJSON(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}
