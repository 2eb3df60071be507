package main

import (
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const tail = " S 1 2 3 0 -1 4194560 10 0 0 0 123 45 7 8 20 0 9 0 100 1000 50"
	tests := []struct {
		name, stat string
		want       time.Duration
		err        bool
	}{
		{name: "plain name", stat: "42 (coredns)" + tail, want: 1680 * time.Millisecond},
		{name: "name with blank and parentheses", stat: "42 (a) b (c)" + tail, want: 1680 * time.Millisecond},
		{name: "too short", stat: "42 (coredns) S 1 2 3", err: true},
		{name: "no number", stat: "42 (coredns) S 1 2 3 0 -1 4194560 10 0 0 0 x 45 7", err: true},
		{name: "nothing", err: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat(tt.stat)
			if got != tt.want || (err != nil) != tt.err {
				t.Errorf("parseStat(%q) = %v, %v, want %v, error %t", tt.stat, got, err, tt.want, tt.err)
			}
		})
	}
}

func TestParseStatus(t *testing.T) {
	const status = "Name:\tcoredns\nVmHWM:\t  105308 kB\nVmRSS:\t   98304 kB\nThreads:\t9\n"
	tests := []struct {
		key  string
		want int64
		err  bool
	}{
		{key: "VmRSS", want: 98304 << 10},
		{key: "VmHWM", want: 105308 << 10},
		{key: "VmSwap", err: true},
		{key: "Name", err: true},
	}
	for _, tt := range tests {
		got, err := parseStatus(status, tt.key)
		if got != tt.want || (err != nil) != tt.err {
			t.Errorf("parseStatus(status, %q) = %d, %v, want %d, error %t", tt.key, got, err, tt.want, tt.err)
		}
	}
}

// The parsers agree with the kernel this runs on.
func TestOwnProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Fatal("no /proc here: this package measures on Linux")
	}
	if _, err := cpuTime(os.Getpid()); err != nil {
		t.Error(err)
	}
	now, peak, err := resident(os.Getpid())
	if err != nil || now <= 0 || peak < now {
		t.Errorf("resident(self) = %d, %d, %v, want 0 < now <= peak", now, peak, err)
	}
}

func TestParseGroup(t *testing.T) {
	tests := []struct {
		name, stat string
		want       int
		err        bool
	}{
		{name: "plain name", stat: "42 (nsd) S 1 40 3 0 -1", want: 40},
		{name: "name with blank and parentheses", stat: "42 (nsd: server 1) x) S 1 40 3 0 -1", want: 40},
		{name: "too short", stat: "42 (nsd) S 1", err: true},
		{name: "no number", stat: "42 (nsd) S 1 x 3", err: true},
		{name: "nothing", err: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseGroup(tt.stat)
			if got != tt.want || (err != nil) != tt.err {
				t.Errorf("parseGroup(%q) = %d, %v, want %d, error %t", tt.stat, got, err, tt.want, tt.err)
			}
		})
	}
}
