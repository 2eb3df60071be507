package wellknown

import (
	"reflect"
	"strings"
	"testing"
)

// docs/spec/controller.md 9.2: which namespaces the note of a controller selects.
func TestNamespaceChoice(t *testing.T) {
	prod := map[string]string{"stage": "prod"}
	for _, tt := range []struct {
		name   string
		choice NamespaceChoice
		saved  bool
		shop   bool // whether namespace shop with stage=prod is selected
	}{
		{name: "nothing restricted"},
		{name: "its name", choice: NamespaceChoice{Names: []string{"bank", "shop"}}, saved: true, shop: true},
		{name: "other names", choice: NamespaceChoice{Names: []string{"bank"}}, saved: true},
		{name: "its label", choice: NamespaceChoice{Selector: "stage in (prod,test)"}, saved: true, shop: true},
		{name: "another label", choice: NamespaceChoice{Selector: "stage=test"}, saved: true},
		{name: "longer than a Lease shall have it", choice: NamespaceChoice{Names: []string{strings.Repeat("a", 5000)}}},
	} {
		text := tt.choice.String()
		if saved := text != ""; saved != tt.saved {
			t.Errorf("%s: text = %q, want one: %t", tt.name, text, tt.saved)
		}
		got := ParseNamespaceChoice(text)
		if tt.saved && !reflect.DeepEqual(got, tt.choice) {
			t.Errorf("%s: parsed %+v, want %+v", tt.name, got, tt.choice)
		}
		if got.Restricts() != tt.saved || got.Restricts() && got.Selects("shop", prod) != tt.shop {
			t.Errorf("%s: restricts %t, selects %t, want %t, %t", tt.name, got.Restricts(), got.Selects("shop", prod), tt.saved,
				tt.shop)
		}
	}
	for _, text := range []string{"", "{", `{"selector":"a=(b"}`} {
		if got := ParseNamespaceChoice(text); got.Restricts() {
			t.Errorf("ParseNamespaceChoice(%q) = %+v, want no restriction", text, got)
		}
	}
}
