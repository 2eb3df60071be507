package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by -ldflags "-X main.version=v1.2.3". Without it, the version that the Go toolchain recorded is used.
var version string

func newVersion(f *factory) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: noArguments,
		Run: func(*cobra.Command, []string) { fmt.Fprintln(f.Out, programVersion()) },
	}
}

// programVersion returns the version set at build time, or else the one that the Go toolchain recorded, or else
// "devel".
func programVersion() string {
	build, ok := debug.ReadBuildInfo()
	switch {
	case version != "":
		return version
	case ok && build.Main.Version != "" && build.Main.Version != "(devel)":
		return build.Main.Version
	}
	return "devel"
}
