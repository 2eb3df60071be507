package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// docs/spec/controller.md 10.3: members take turns, and their namespaces; each eighth key is one of the backlog.
func TestTurns(t *testing.T) {
	type event struct {
		key      string // namespace/name; "more" stands for n keys of namespace many
		n        int
		member   string
		priority Priority
	}
	for _, tt := range []struct {
		name   string
		events []event
		want   string // the first keys
	}{
		{"in their order", []event{{key: "shop/a"}, {key: "shop/b"}}, "shop/a shop/b"},
		{"live before the backlog", []event{{key: "shop/a", priority: Backlog}, {key: "shop/b"}}, "shop/b shop/a"},
		{"a raised key once", []event{{key: "shop/a", priority: Backlog}, {key: "shop/b"}, {key: "shop/a"}}, "shop/b shop/a"},
		{"another namespace", []event{{key: "more", n: 9}, {key: "shop/a"}}, "many/0 shop/a many/1 many/2"},
		{"another member", []event{{key: "more", n: 9, member: "east"}, {key: "more2", n: 9, member: "east"},
			{key: "shop/a", member: "west"}}, "many/0 shop/a many2/0 many/1"},
		{"a key of two members once", []event{{key: "more", n: 9, member: "east"}, {key: "many/8", member: "west"}},
			"many/0 many/8 many/1 many/2 many/3 many/4 many/5 many/6 many/7"},
		{"the backlog has a turn", []event{{key: "more", n: 9}, {key: "shop/a", priority: Backlog}},
			"many/0 many/1 many/2 many/3 many/4 many/5 many/6 shop/a many/7 many/8"},
	} {
		of := make(map[types.NamespacedName]event)
		p := &priorities{queued: make(map[types.NamespacedName]Priority)}
		p.causes = func(key types.NamespacedName) (Priority, []string) { return of[key].priority, []string{of[key].member} }
		add := func(text string, e event) {
			namespace, name, _ := strings.Cut(text, "/")
			key := types.NamespacedName{Namespace: namespace, Name: name}
			of[key] = e
			if _, queued := p.queued[key]; queued {
				p.Touch(key)
			} else {
				p.Push(key)
			}
		}
		for _, e := range tt.events {
			if name, more := strings.CutPrefix(e.key, "more"); more {
				for i := range e.n {
					add(fmt.Sprintf("many%s/%d", name, i), e)
				}
				continue
			}
			add(e.key, e)
		}
		n, want := p.Len(), strings.Fields(tt.want)
		var got []string
		for p.Len() > 0 {
			got = append(got, p.Pop().String())
		}
		if len(got) != n || !slices.Equal(got[:len(want)], want) {
			t.Errorf("%s: %d keys, %v; want %d, %v", tt.name, len(got), got, n, want)
		}
	}
}
