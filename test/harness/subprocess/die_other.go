//go:build !linux

package subprocess

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}
