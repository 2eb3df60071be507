package logging

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestOnChange(t *testing.T) {
	var c OnChange[string]
	var logged []string
	for _, state := range []string{"", "a", "a", "b", "b", "", "", "b", "a"} {
		if c.Changed(state) {
			logged = append(logged, state)
		}
	}
	if want := []string{"a", "b", "", "b", "a"}; !slices.Equal(logged, want) {
		t.Errorf("logged %q, want %q", logged, want)
	}
}

func TestOnChangeOf(t *testing.T) {
	type step struct{ key, state string }
	for _, tt := range []struct {
		name  string
		limit int
		steps []step
		want  []step
	}{
		{
			name:  "keys do not affect each other",
			steps: []step{{"x", "a"}, {"y", "a"}, {"x", "a"}, {"x", ""}, {"y", "a"}, {"x", ""}},
			want:  []step{{"x", "a"}, {"y", "a"}, {"x", ""}},
		},
		{
			name:  "the limit counts from the normal state on",
			limit: 2,
			steps: []step{{"x", "a"}, {"x", "b"}, {"x", "c"}, {"x", "b"}, {"x", "d"}, {"x", ""}, {"x", "e"}},
			want:  []step{{"x", "a"}, {"x", "b"}, {"x", ""}, {"x", "e"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := OnChangeOf[string, string]{Limit: tt.limit}
			var logged []step
			for _, s := range tt.steps {
				if c.Changed(s.key, s.state) {
					logged = append(logged, s)
				}
			}
			if !slices.Equal(logged, tt.want) {
				t.Errorf("steps %v logged %v, want %v", tt.steps, logged, tt.want)
			}
		})
	}
}

func TestOnChangeOfForgetsNormalKeys(t *testing.T) {
	var c OnChangeOf[int, bool]
	for key := range 100 {
		c.Changed(key, true)
		if cleared := c.Clear(key); !cleared {
			t.Errorf("Clear(%d) = false after a change, want true", key)
		}
	}
	if c.Clear(1) || len(c.last) != 0 {
		t.Errorf("%d keys are remembered, want 0", len(c.last))
	}
}

// Several goroutines that bring the same state log it once.
func TestOnChangeIsSafeForConcurrentUse(t *testing.T) {
	var one OnChange[int]
	var keyed OnChangeOf[string, int]
	var logged atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if one.Changed(1) {
				logged.Add(1)
			}
			if keyed.Changed("x", 1) {
				logged.Add(1)
			}
		})
	}
	wg.Wait()
	if logged.Load() != 2 {
		t.Errorf("logged %d times, want each once", logged.Load())
	}
}

func TestText(t *testing.T) {
	if got := Text(nil); got != "" {
		t.Errorf("Text(nil) = %q, want none", got)
	}
	if got := Text(errors.New("x")); got != "x" {
		t.Errorf("Text = %q, want x", got)
	}
}

func TestLine(t *testing.T) {
	long := strings.Repeat("x", 301)
	for text, want := range map[string]string{"a\nb": "a b", long[:300]: long[:300], long: long[:297] + "..."} {
		if got := Line(errors.New(text)); got != want {
			t.Errorf("Line(%q) = %q, want %q", text, got, want)
		}
	}
}
