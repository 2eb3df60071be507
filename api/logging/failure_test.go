package logging

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A failure is logged when its state changes, and when its reason has changed, at most once a minute.
func TestFailure(t *testing.T) {
	get := func(path string, err error) error {
		return fmt.Errorf("broker: %w", &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/" + path, Err: err})
	}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	unknown := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	expired := func(second int) error {
		return &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{
			Cert: &x509.Certificate{}, Reason: x509.Expired, Detail: fmt.Sprintf(
				"current time 2026-01-01T00:00:%02dZ is after 2025-01-01T00:00:00Z", second),
		}}
	}
	type step struct {
		after time.Duration
		state string
		err   error
		want  bool
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{name: "the same reason, for another request", steps: []step{
			{state: "away", err: get("a", refused), want: true}, {after: time.Hour, state: "away", err: get("b", refused)},
		}},
		{name: "another reason, for minutes", steps: []step{
			{state: "away", err: get("a", refused), want: true}, {after: time.Second, state: "away", err: get("a", unknown)},
			{after: time.Minute, state: "away", err: get("a", unknown), want: true},
			{after: time.Minute, state: "away", err: get("a", unknown)},
		}},
		{name: "reasons that take turns", steps: []step{
			{state: "away", err: refused, want: true}, {after: time.Minute, state: "away", err: unknown, want: true},
			{after: time.Second, state: "away", err: refused}, {after: time.Second, state: "away", err: unknown},
			{after: time.Minute, state: "away", err: refused, want: true},
		}},
		{name: "a reason with a time in its text", steps: []step{
			{state: "away", err: expired(1), want: true}, {after: time.Hour, state: "away", err: expired(2)},
		}},
		{name: "another state is logged at once", steps: []step{
			{state: "away", err: refused, want: true}, {state: "rejected", err: errors.New("401"), want: true}, {want: true},
			{state: "away", err: refused, want: true},
		}},
		{name: "no failure", steps: []step{{}, {after: time.Hour, err: refused}}},
		{name: "another reason after the end", steps: []step{{state: "away", err: refused, want: true}, {want: true},
			{after: time.Hour}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f Failure[string]
				var got, want []bool
				for _, s := range tt.steps {
					time.Sleep(s.after)
					got, want = append(got, f.Changed(s.state, s.err)), append(want, s.want)
				}
				if !slices.Equal(got, want) {
					t.Errorf("logged %t, want %t", got, want)
				}
			})
		})
	}
}
