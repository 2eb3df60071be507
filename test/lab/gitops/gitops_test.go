// Package gitops tests the files of deploy/gitops with the interpreters of Argo CD and Flux: Lua and CEL.
package gitops

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset/api/broker/v1alpha1"
)

const root = "../../.."

// The health of an object, in the words of Argo CD. Flux has others, see [fluxHealth].
const (
	healthy     = "Healthy"
	progressing = "Progressing"
	degraded    = "Degraded"
)

var (
	serviceExport = schema.GroupVersion(mcsv1beta1.GroupVersion).WithKind("ServiceExport")
	serviceImport = schema.GroupVersion(mcsv1beta1.GroupVersion).WithKind("ServiceImport")
	member        = v1alpha1.GroupVersion.WithKind("Member")
)

// A state is the status of an object: conditions such as "Ready=True/Exported". All are of generation 2, or of the
// generation after "@".
type state struct {
	kind       schema.GroupVersionKind
	conditions string
	want       string
	message    string // the type of the condition that has the message of Argo CD
}

var states = []state{
	{kind: serviceExport, want: progressing},
	{kind: serviceExport, conditions: "Valid=True/Valid", want: progressing},
	{kind: serviceExport, conditions: "Valid=False/NoService Ready=False/Pending", want: progressing, message: "Valid"},
	{kind: serviceExport, conditions: "Valid=False/InvalidServiceType Ready=False/Pending", want: degraded, message: "Valid"},
	{kind: serviceExport, conditions: "Valid=False/InvalidClusterSelector", want: degraded, message: "Valid"},
	{kind: serviceExport, conditions: "Valid=False/InvalidToClusters", want: degraded, message: "Valid"},
	{kind: serviceExport, conditions: "Valid=False/NamespaceNotAllowed", want: degraded, message: "Valid"},
	{kind: serviceExport, conditions: "Valid=False/NotMember", want: degraded, message: "Valid"},
	{kind: serviceExport, conditions: "Valid=True/Valid Ready=Unknown/Pending", want: progressing, message: "Ready"},
	{kind: serviceExport, conditions: "Valid=True/Valid Ready=False/Pending", want: progressing, message: "Ready"},
	{kind: serviceExport, conditions: "Valid=True/Valid Ready=False/Failed", want: degraded, message: "Ready"},
	{kind: serviceExport, conditions: "Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts", want: healthy, message: "Ready"},
	{kind: serviceExport, conditions: "Valid=True/AnnotationIgnored Ready=True/UndeclaredAddresses", want: healthy, message: "Ready"},
	{kind: serviceExport, conditions: "Valid=True/Valid Ready=True/Exported@1", want: progressing},
	{kind: serviceExport, conditions: "Valid=False/InvalidServiceType@1 Ready=False/Pending@1", want: progressing},
	{kind: serviceExport, conditions: "Valid=True/Valid Ready=False/Failed@1", want: progressing},
	{kind: serviceImport, want: progressing},
	{kind: serviceImport, conditions: "Ready=False/Pending", want: progressing, message: "Ready"},
	{kind: serviceImport, conditions: "Ready=False/IPFamilyNotSupported", want: degraded, message: "Ready"},
	{kind: serviceImport, conditions: "Ready=True/Ready", want: healthy, message: "Ready"},
	{kind: member, want: progressing},
}

// conflicts are the reasons of the condition Conflict, each of which leaves an export healthy.
var conflicts = strings.Fields("TypeConflict PortConflict SessionAffinityConflict SessionAffinityConfigConflict " +
	"InternalTrafficPolicyConflict TrafficDistributionConflict LabelsConflict AnnotationsConflict IPFamilyConflict " +
	"ClusterSetIPConflict ClusterSelectorsConflict")

func allStates() []state {
	all := slices.Clone(states)
	for _, reason := range conflicts {
		all = append(all, state{kind: serviceExport, want: healthy, message: "Conflict",
			conditions: "Valid=True/Valid Ready=True/Exported Conflict=True/" + reason})
	}
	return all
}

// object returns an object with these conditions, as a client decodes it.
func (s state) object() map[string]any {
	o := map[string]any{"metadata": map[string]any{"name": "a", "generation": int64(2)}}
	var conditions []any
	for _, text := range strings.Fields(s.conditions) {
		parts := regexp.MustCompile("[=/@]").Split(text+"@2", 5)
		generation := int64(parts[3][0] - '0')
		conditions = append(conditions, map[string]any{"type": parts[0], "status": parts[1], "reason": parts[2],
			"message": "message of " + parts[0], "observedGeneration": generation})
	}
	if conditions != nil {
		o["status"] = map[string]any{"conditions": conditions}
	}
	return o
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "gitops", file))
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestArgoCD evaluates the scripts of Argo CD, of which ConfigMap argocd-cm has one for each kind.
func TestArgoCD(t *testing.T) {
	var file struct {
		Data map[string]string `json:"data"`
	}
	read(t, "argocd.yaml", &file)
	health := func(kind schema.GroupVersionKind, object map[string]any) (status, message string) {
		script := file.Data["resource.customizations.health."+kind.Group+"_"+kind.Kind]
		if script == "" {
			t.Fatalf("want a script for %s", kind)
		}
		return runLua(t, script, object)
	}
	for _, s := range allStates() {
		status, message := health(s.kind, s.object())
		if status != s.want || message == "" || s.message != "" && message != "message of "+s.message {
			t.Errorf("%s with %q is %s, %q; want %s, message of %q", s.kind.Kind, s.conditions, status, message, s.want, s.message)
		}
	}
	if status, message := health(member, withVersion); status != healthy || message != "controller v1" {
		t.Errorf("Member with a version is %s, %q; want %s", status, message, healthy)
	}
	if len(file.Data) != 3 {
		t.Errorf("%d scripts, want one for each of 3 kinds", len(file.Data))
	}
}

// withVersion is a Member that its controller has written.
var withVersion = map[string]any{"metadata": map[string]any{"name": "a", "generation": int64(2)},
	"status": map[string]any{"version": "v1"}}

// runLua runs a script as Argo CD does: the object is the global variable obj.
func runLua(t *testing.T, script string, object map[string]any) (status, message string) {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	lua.OpenBase(l)
	l.SetGlobal("obj", luaValue(l, object))
	if err := l.DoString(script); err != nil {
		t.Fatalf("%v in\n%s", err, script)
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("got %v, want a table, of\n%s", l.Get(-1), script)
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String()
}

func luaValue(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	case []any:
		table := l.NewTable()
		for _, each := range v {
			table.Append(luaValue(l, each))
		}
		return table
	case map[string]any:
		table := l.NewTable()
		for key, each := range v {
			table.RawSetString(key, luaValue(l, each))
		}
		return table
	}
	panic(fmt.Sprintf("%T: want a case for it", v))
}

// A check is an entry of healthCheckExprs.
type check struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Current    string `json:"current"`
	Failed     string `json:"failed"`
}

// TestFlux evaluates the expressions of Flux.
func TestFlux(t *testing.T) {
	var file struct {
		Spec struct {
			Wait             bool    `json:"wait"`
			HealthCheckExprs []check `json:"healthCheckExprs"`
		} `json:"spec"`
	}
	read(t, "flux.yaml", &file)
	health := func(kind schema.GroupVersionKind, object map[string]any) string {
		for _, c := range file.Spec.HealthCheckExprs {
			if c.APIVersion == kind.GroupVersion().String() && c.Kind == kind.Kind {
				return c.health(t, object)
			}
		}
		t.Fatalf("want expressions for %s", kind)
		return ""
	}
	for _, s := range allStates() {
		if got := health(s.kind, s.object()); got != s.want {
			t.Errorf("%s with %q is %s, want %s", s.kind.Kind, s.conditions, got, s.want)
		}
	}
	if got := health(member, withVersion); got != healthy {
		t.Errorf("Member with a version is %s, want %s", got, healthy)
	}
	if all := file.Spec.HealthCheckExprs; len(all) != 3 || !file.Spec.Wait {
		t.Errorf("%d checks, wait %t; want one for each of 3 kinds, and to wait", len(all), file.Spec.Wait)
	}
}

// health evaluates as Flux does: failed before current. Flux waits, which is progressing, if neither is true or if the
// status is missing.
func (c check) health(t *testing.T, object map[string]any) string {
	t.Helper()
	for _, e := range []struct{ expression, health string }{{c.Failed, degraded}, {c.Current, healthy}} {
		if e.expression == "" {
			continue
		}
		env, err := cel.NewEnv(cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true))
		if err != nil {
			t.Fatal(err)
		}
		parsed, issues := env.Parse(e.expression)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := env.Program(parsed)
		if err != nil {
			t.Fatal(err)
		}
		result, _, err := program.Eval(object)
		switch {
		case err != nil && !strings.Contains(err.Error(), "no such attribute(s): status"):
			t.Fatalf("%s of %v: %v", e.expression, object, err)
		case err != nil:
			return progressing
		case result.Value() == true:
			return e.health
		}
	}
	return progressing
}

// TestConditions compares the states with the conditions in docs/spec/controller.md.
func TestConditions(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "spec", "controller.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n### 6.2 Values\n")
	table, _, _ := strings.Cut(section, "\n### ")
	var specified, tested []string
	for _, row := range regexp.MustCompile(`(?m)^\| (Valid|Ready|Conflict)\b[^|]*\| (.*) \|$`).FindAllStringSubmatch(table, -1) {
		for _, word := range regexp.MustCompile(`\b[A-Z]\w+`).FindAllString(row[2], -1) {
			if !slices.Contains([]string{"True", "False", "Unknown"}, word) {
				specified = append(specified, row[1]+" "+word)
			}
		}
	}
	for _, s := range allStates() {
		for _, m := range regexp.MustCompile(`(\w+)=\w+/(\w+)`).FindAllStringSubmatch(s.conditions, -1) {
			tested = append(tested, m[1]+" "+m[2])
		}
	}
	slices.Sort(specified)
	slices.Sort(tested)
	if got, want := slices.Compact(tested), slices.Compact(specified); !slices.Equal(got, want) {
		t.Errorf("conditions that are tested:\n%q\nwant those of the specification:\n%q", got, want)
	}
}
