package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset/test/harness/subprocess"
	"github.com/clusterset-dns/clusterset/test/harness/testclusterset"
)

//go:embed manifests
var manifests embed.FS

// command runs bin/clusterset, prints its output and fails unless the output has want in it and the exit status is
// status.
func (d *demo) command(ctx context.Context, status int, want string, args ...string) error {
	text, got, err := d.execute(ctx, args)
	switch {
	case err != nil:
		return err
	case got != status:
		return fmt.Errorf("%s: exit status %d, want %d\n%s", shown(args), got, status, text)
	case !strings.Contains(text, want):
		return fmt.Errorf("%s: want %q in\n%s", shown(args), want, text)
	}
	d.printf("%s\n", indent(abridge(text), "     "))
	return nil
}

// execute prints the command line, runs it, and returns its output and exit status.
func (d *demo) execute(ctx context.Context, args []string) (text string, status int, err error) {
	d.printf("   $ %s\n", shown(args))
	c, err := subprocess.Start(subprocess.Command{Bin: d.bin("clusterset"), Args: args, Dir: d.root, Env: d.environment()})
	if err != nil {
		return "", 0, err
	}
	ended := c.Wait(ctx)
	if ctx.Err() != nil {
		return "", 0, ended
	}
	return c.Out.String(), c.State().ExitCode(), nil
}

// apply applies one of the manifests.
func (d *demo) apply(ctx context.Context, m *testclusterset.Member, name string) error {
	text, err := manifests.ReadFile("manifests/" + name)
	if err != nil {
		return err
	}
	d.printf("   The demo applies test/tools/demo/manifests/%[2]s to %[1]s.\n\n", m.ID, name)
	return m.ApplyYAML(ctx, text)
}

func (d *demo) environment() []string { return append(os.Environ(), "KUBECONFIG="+d.kubeconfig) }

// shown is the command line as a user types it in the folder of the repository, broken into lines.
func shown(args []string) string {
	const width = 100
	line, n := "bin/clusterset", len("bin/clusterset")
	for _, arg := range args {
		if strings.Contains(arg, " ") {
			arg = "'" + arg + "'"
		}
		if n+len(arg) > width && strings.HasPrefix(arg, "-") {
			line, n = line+" \\\n      ", 6
		}
		line, n = line+" "+arg, n+1+len(arg)
	}
	return line
}

// abridge shortens a long list of created objects, and leaves out the advice on next steps, which the demo takes
// anyway.
func abridge(text string) string {
	const kept = 2
	text, _, _ = strings.Cut(text, "\nNext:")
	lines := slices.Collect(strings.Lines(strings.TrimSpace(text) + "\n"))
	list := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !isStep(line) })
	if len(list) <= kept+1 {
		return strings.Join(lines, "")
	}
	var b strings.Builder
	n := 0
	for _, line := range lines {
		if isStep(line) {
			n++
		}
		switch {
		case !isStep(line) || n <= kept:
			b.WriteString(line)
		case n == len(list):
			fmt.Fprintf(&b, "... and %d more\n", n-kept)
		}
	}
	return b.String()
}

// isStep reports whether a line is about one object.
func isStep(line string) bool {
	return strings.HasSuffix(line, " created\n") || strings.HasSuffix(line, " unchanged\n")
}
