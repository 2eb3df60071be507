package admin

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// docs/spec/operations.md 7: no member loses more than ten imports at once, and between those and the next ones is a pause.
func TestInTurns(t *testing.T) {
	for _, tt := range []struct{ members, turns int }{{2, 1}, {6, 1}, {7, 2}, {10, 2}, {11, 3}} {
		for _, exports := range []bool{true, false} {
			pauses := 0
			v := &verifier{options: VerifyDefaults()}
			v.options.Progress = func(what string) {
				if strings.HasPrefix(what, "waiting for ") {
					pauses++
				}
			}
			for range tt.members {
				v.members = append(v.members, &verifiedMember{})
			}
			var mu sync.Mutex
			turns := map[int]map[*verifiedMember]bool{}
			err := v.inTurns(t.Context(), func(m *verifiedMember) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				if turns[pauses] == nil {
					turns[pauses] = map[*verifiedMember]bool{}
				}
				turns[pauses][m] = true
				return exports, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if want := tt.turns - 1; exports && pauses != want || !exports && pauses != 0 {
				t.Errorf("%d members, exports %t: %d pauses, want %d, and none without exports", tt.members, exports, pauses, want)
			}
			all := 0
			for _, turn := range turns {
				all += len(turn)
				for _, importer := range v.members {
					lost := len(kinds) * len(turn)
					if turn[importer] {
						lost -= len(kinds) // its own
					}
					if exports && lost > 10 {
						t.Errorf("%d members: one loses %d imports at once, want at most 10", tt.members, lost)
					}
				}
			}
			if all != tt.members {
				t.Errorf("%d members had a turn, want %d", all, tt.members)
			}
		}
	}
}

// A run that is interrupted does not wait for the pause; what went wrong in a turn does not keep others from theirs.
func TestInTurnsFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	v := &verifier{options: VerifyDefaults(), pause: time.Hour}
	for range mostAtOnce + 2 {
		v.members = append(v.members, &verifiedMember{VerifyCluster: VerifyCluster{Name: "east"}})
	}
	v.options.Progress = func(string) { cancel() }
	if err := v.inTurns(ctx, func(*verifiedMember) (bool, error) { return true, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted in the pause: error %v, want that", err)
	}
	called := 0
	var mu sync.Mutex
	err := v.inTurns(t.Context(), func(*verifiedMember) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		called++
		return false, errors.New("no")
	})
	if err == nil || called != len(v.members) {
		t.Errorf("error %v after %d calls, want one, and a call for each member", err, called)
	}
	if len(v.turns()) != 2 || v.longest() < time.Hour {
		t.Errorf("%d turns, at most %s: want the pause counted", len(v.turns()), v.longest())
	}
}
