//go:build !linux

package controlplane

import (
	"io"
	"syscall"
)

// Other systems have no such signal: there, only Stop ends the children.
func dieWithParent(*syscall.SysProcAttr) {}

// Other systems have no abstract sockets; there, a free port is only likely to stay free.
func reserve(int) (io.Closer, error) { return io.NopCloser(nil), nil }

func awaitStopped(int) error { return nil }
