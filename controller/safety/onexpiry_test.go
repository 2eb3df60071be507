package safety

import (
	"fmt"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// docs/spec/controller.md 8: on_expiry.
func TestOnExpiry(t *testing.T) {
	given := []*discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{
		{Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true)}}, {},
	}}}
	for _, tt := range []struct {
		on   OnExpiry
		want string
	}{{Remove, ""}, {NotReady, "false/true false/- "}, {Retain, "true/true -/- "}} {
		text := func(b *bool) string {
			if b == nil {
				return "-"
			}
			return fmt.Sprint(*b)
		}
		var got string
		for _, s := range tt.on.Apply(given) {
			for _, e := range s.Endpoints {
				got += text(e.Conditions.Ready) + "/" + text(e.Conditions.Serving) + " "
			}
		}
		if got != tt.want {
			t.Errorf("%s: ready/serving = %s, want %s", tt.on, got, tt.want)
		}
	}
	if !*given[0].Endpoints[0].Conditions.Ready {
		t.Error("the slice that was given is changed")
	}
}
