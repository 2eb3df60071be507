package main

import (
	"os"
	"syscall"
	"testing"
	"time"
)

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

// A group has used at least what this process of it has, and one that does not exist nothing.
func TestGroupCPUTime(t *testing.T) {
	own := time.Duration(0)
	for own < 3*tick {
		var err error
		if own, err = cpuTime(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := groupCPUTime(syscall.Getpgrp()); err != nil || got < own {
		t.Errorf("CPU time of the group = %s, %v, want at least %s", got, err, own)
	}
	if got, err := groupCPUTime(-1); err != nil || got != 0 {
		t.Errorf("CPU time of no group = %s, %v, want 0s", got, err)
	}
}
