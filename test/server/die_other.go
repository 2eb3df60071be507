//go:build !linux

package server

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}
