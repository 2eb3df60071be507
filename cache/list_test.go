package cache

import (
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
)

func TestReadList(t *testing.T) {
	const one = `{"metadata":{"namespace":"shop","name":"web"},"spec":{"type":"ClusterSetIP"}}`
	tests := []struct{ name, text, names, version, fails string }{
		{name: "version first", text: `{"kind":"L","metadata":{"resourceVersion":"7"},"items":[` + one + `]}`, names: "web", version: "7"},
		{name: "version last", text: `{"items":[` + one + `,` + one + `],"metadata":{"resourceVersion":"7"}}`, names: "web web", version: "7"},
		{name: "none", text: `{"items":[],"metadata":{"resourceVersion":"7"}}`, version: "7"},
		{name: "cut between objects", text: `{"items":[` + one + `,`, fails: "unexpected EOF"},
		{name: "cut in an object", text: `{"items":[` + one[:20], fails: "unexpected EOF"},
		{name: "cut behind the objects", text: `{"items":[` + one + `]`, fails: "unexpected EOF"},
		{name: "nothing", fails: "unexpected EOF"},
		{name: "no list", text: `[]`, fails: "got [, want {"},
		{name: "no list in it", text: `{"items":{}}`, fails: "items: got {, want ["},
		{name: "an object that is no list", text: `{}`, fails: "want a list"},
		{name: "a failure", text: `{"kind":"Status","metadata":{},"status":"Failure","code":500}`, fails: "want a list"},
		{name: "no version", text: `{"metadata":{},"items":[]}`, fails: "want a list"},
		{name: "two lists", text: `{"items":[],"metadata":{"resourceVersion":"7"}}{`, fails: "got { behind the list"},
		{name: "a line end", text: `{"items":[],"metadata":{"resourceVersion":"7"}}` + "\n", version: "7"},
		{
			name: "times that Go does not parse",
			text: `{"items":[{"metadata":{"name":"web","creationTimestamp":"10000-01-01T00:00:00Z","managedFields":[{"time":"x"},{"time":7}]}}],` +
				`"metadata":{"resourceVersion":"7"}}`, names: "web", version: "7",
		},
		{name: "null", text: `{"items":null}`, fails: "items: got <nil>, want ["},
		{name: "an object that is none", text: `{"items":[7]}`, fails: "items: json: cannot unmarshal number"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var names []string
			list, err := readList(strings.NewReader(tt.text), func(obj any) item {
				names = append(names, obj.(*customObject).Name)
				return item{key: "shop/" + names[len(names)-1]}
			})
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("readList: %v, want %q", err, tt.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(names, " "); got != tt.names || list.ResourceVersion != tt.version {
				t.Errorf("got %q of version %q, want %q of %q", got, list.ResourceVersion, tt.names, tt.version)
			}
			// As the reflector does.
			objects, err := meta.ExtractListWithAlloc(list)
			if err != nil || len(objects) != len(names) {
				t.Errorf("%d objects in the list, want %d: %v", len(objects), len(names), err)
			}
			for _, obj := range objects {
				if it, ok := obj.(*item); !ok || it.key != "shop/web" {
					t.Errorf("got %v, want an item of the list", obj)
				}
			}
		})
	}
}

// A failure of the reader is reported: half a list does not count.
func TestReadListThatBreaks(t *testing.T) {
	broken := errors.New("connection reset")
	_, err := readList(io.MultiReader(strings.NewReader(`{"items":[{},`), failing{broken}), func(any) item { return item{} })
	if !errors.Is(err, broken) {
		t.Errorf("readList: %v, want %v", err, broken)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
