package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset/admin/status"
)

// watch shows the state until ctx ends (docs/spec/operations.md 2). A state that could not be read completely is shown,
// too.
func (s *statusCommand) watch(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	screen := s.format != "json" && s.format != "yaml" && isTerminal(s.Out)
	var last string
	var result error
	for {
		state, err := s.read(ctx)
		if ctx.Err() != nil {
			return result
		}
		if err != nil {
			state.Unread = append(state.Unread, err.Error())
		}
		result = judge(&state.Result)
		now := changeable(state)
		switch {
		case screen:
			if err := s.redraw(&state); err != nil {
				return err
			}
		case now != last:
			if err := s.printChange(&state, last == ""); err != nil {
				return err
			}
		}
		last = now
		select {
		case <-ctx.Done():
			return result
		case <-tick.C:
		}
	}
}

// changeable is the part of a state that shows it again when it differs: everything except ages and times that renew
// themselves.
func changeable(state status.State) string {
	problems := strings.Join(state.Problems, "\n")
	state.Members = append([]status.MemberState{}, state.Members...)
	for i := range state.Members {
		m := &state.Members[i]
		if m.Expired {
			problems = strings.ReplaceAll(problems, m.HeartbeatAge+" ago", "")
		}
		m.Heartbeat, m.HeartbeatAge = nil, ""
	}
	if state.Cluster != nil {
		c := *state.Cluster
		c.LeaderRenewed = nil
		state.Cluster = &c
	}
	state.Problems = []string{problems}
	text, err := json.Marshal(state)
	return fmt.Sprint(string(text), err)
}

// printChange shows the state after those that were shown before.
func (s *statusCommand) printChange(state *status.State, isFirst bool) error {
	switch {
	case s.format == "yaml":
		fmt.Fprintln(s.Out, "---")
	case s.format == "json":
	case !isFirst:
		fmt.Fprintln(s.Out)
		fallthrough
	default:
		fmt.Fprintln(s.Out, time.Now().Format(time.RFC3339))
	}
	return s.print(s.Out, state)
}

// redraw shows the state in place of the one before. Lines are erased one by one: erasing the screen first makes it
// flicker.
func (s *statusCommand) redraw(state *status.State) error {
	const home, eraseLine, eraseRest = "\x1b[H", "\x1b[K", "\x1b[J"
	var text bytes.Buffer
	if err := s.print(&text, state); err != nil {
		return err
	}
	_, err := fmt.Fprint(s.Out, home+strings.ReplaceAll(text.String(), "\n", eraseLine+"\n")+eraseRest)
	return err
}

// isTerminal reports whether w is a device that shows characters.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
