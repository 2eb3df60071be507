package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// A dockerfile is what the Dockerfile says: how to compile the programs, and what the image is. The release follows it, so that an image
// of a container engine and one of ours are alike.
type dockerfile struct {
	compiler string // the command that runs go build
	copies   []copied
	config   config
}

// A copied file is one COPY of the last stage.
type copied struct {
	built    bool // by the first stage, or there by itself; otherwise from the source
	from, to string
}

type config struct {
	user            string
	ports           []string // with protocol
	entrypoint, cmd []string
	labels          map[string]string
}

// compiled is where the first stage puts the programs.
const compiled = "/out/"

func readDockerfile(name string) (dockerfile, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return dockerfile{}, err
	}
	d, err := parseDockerfile(string(text))
	if err != nil {
		return d, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

// parseDockerfile knows what a stage FROM scratch may have. It rejects anything else, which the image would lack.
func parseDockerfile(text string) (d dockerfile, err error) {
	base := ""
	for line := range strings.Lines(text) {
		instruction, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case instruction == "" || instruction == "#":
			continue
		case instruction == "FROM":
			base = args
		case base != "scratch":
			if instruction == "RUN" && strings.Contains(args, " go build ") {
				d.compiler = args
			}
		default:
			err = d.instruction(instruction, args)
		}
		if err != nil {
			return d, err
		}
	}
	if base != "scratch" || strings.Count(d.compiler, compiled) != 1 {
		return d, fmt.Errorf("last stage FROM %s, go build by %q: want FROM scratch, and one RUN with go build and %s", base, d.compiler, compiled)
	}
	return d, nil
}

// instruction takes one of the last stage.
func (d *dockerfile) instruction(name, args string) error {
	words := strings.Fields(args)
	switch name {
	case "COPY":
		c := copied{built: words[0] == "--from=build"}
		if c.built {
			words = words[1:]
		}
		if len(words) != 2 || strings.HasPrefix(words[0], "--") {
			return fmt.Errorf("COPY %s: want one file and where it goes", args)
		}
		c.from, c.to = words[0], strings.TrimPrefix(words[1], "/")
		d.copies = append(d.copies, c)
	case "USER":
		d.config.user = args
	case "EXPOSE":
		for _, port := range words {
			if !strings.Contains(port, "/") {
				port += "/tcp"
			}
			d.config.ports = append(d.config.ports, port)
		}
	case "ENTRYPOINT":
		return json.Unmarshal([]byte(args), &d.config.entrypoint)
	case "CMD":
		return json.Unmarshal([]byte(args), &d.config.cmd)
	case "LABEL":
		key, value, ok := strings.Cut(args, "=")
		if !ok || strings.ContainsAny(value, `"$\`) && !quoted(value) {
			return fmt.Errorf("LABEL %s: want one, KEY=VALUE or KEY=\"VALUE\"", args)
		}
		if d.config.labels == nil {
			d.config.labels = make(map[string]string)
		}
		d.config.labels[key] = strings.Trim(value, `"`)
	default:
		return fmt.Errorf("%s %s in the last stage: a release does not know how to do that", name, args)
	}
	return nil
}

// quoted: in quotes, and with nothing in them that a container engine replaces.
func quoted(value string) bool {
	inner, start := strings.CutPrefix(value, `"`)
	inner, end := strings.CutSuffix(inner, `"`)
	return start && end && !strings.ContainsAny(inner, `"$\`)
}

// compile runs the command of the first stage.
func (d dockerfile) compile(ctx context.Context, r release, p platform, dir string) error {
	cmd := command(ctx, "sh", "-c", strings.Replace(d.compiler, compiled, `"$OUT"/`, 1))
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "GOWORK=off", "PGO=", "TARGETOS="+p.os, "TARGETARCH="+p.arch, "VERSION="+r.version, "OUT="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: RUN %s: %w\n%s", p, d.compiler, err, out)
	}
	return nil
}
