package main

import (
	"testing"

	"github.com/google/pprof/profile"
)

func TestOwner(t *testing.T) {
	for _, tt := range []struct {
		stack []string // the innermost first
		want  string
	}{
		{[]string{"runtime.mallocgc", "github.com/clusterset-dns/clusterset/plugin.(*query).fill", "github.com/coredns/x"},
			ofOurs},
		{[]string{"runtime.memmove", "github.com/miekg/dns.packRR", "github.com/clusterset-dns/clusterset/plugin.x"},
			ofMiekg},
		{[]string{"internal/runtime/syscall.Syscall6", "syscall.Syscall", "internal/poll.(*FD).Read"}, ofKernel},
		{[]string{"runtime.scanObject", "runtime.gcDrain", "runtime.gcBgMarkWorker.func2"}, ofGC},
		{[]string{"runtime.findRunnable", "runtime.schedule", "runtime.mcall"}, ofScheduler},
		{[]string{"runtime.memclr", "main.main"}, ofRest},
	} {
		if got := owner(tt.stack); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.stack, got, tt.want)
		}
	}
}

func TestSharesOf(t *testing.T) {
	at := func(name string) []*profile.Location {
		return []*profile.Location{{Line: []profile.Line{{Function: &profile.Function{Name: name}}}}}
	}
	got := sharesOf("answer", &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples"}, {Type: "cpu"}},
		Sample: []*profile.Sample{
			{Location: at("github.com/miekg/dns.x"), Value: []int64{1, 3e9}},
			{Location: at("syscall.Read"), Value: []int64{1, 1e9}},
		},
	})
	if got.Seconds != 4 || got.Shares[ofMiekg] != 0.75 || got.Shares[ofKernel] != 0.25 {
		t.Errorf("shares = %+v", got)
	}
}
