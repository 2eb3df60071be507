//go:build !linux

package main

import "syscall"

// Other systems have no such signal, and no /proc to measure with.
func dieWithParent(*syscall.SysProcAttr) {}
