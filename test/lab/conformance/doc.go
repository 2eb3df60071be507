//go:build !linux

// Command conformance needs Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "conformance: want Linux")
	os.Exit(1)
}
