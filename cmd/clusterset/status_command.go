package main

import (
	"context"
	"io"
	"time"

	"github.com/clusterset-dns/clusterset/admin/status"
)

// A statusCommand is one call of "status".
type statusCommand struct {
	*factory
	format string
	read   func(context.Context) (status.State, error)
}

func (s *statusCommand) once(ctx context.Context) error {
	state, err := s.read(ctx)
	if err != nil {
		return err
	}
	if err := s.print(s.Out, &state); err != nil {
		return err
	}
	return judge(&state.Result)
}

func (s *statusCommand) print(w io.Writer, state *status.State) error {
	if s.format == "json" || s.format == "yaml" {
		return printAs(w, s.format, state)
	}
	return printState(w, state, time.Now(), s.format == "wide")
}
