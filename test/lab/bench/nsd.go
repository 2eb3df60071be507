package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/clusterset-dns/clusterset/test/harness/controlplane"
	"github.com/clusterset-dns/clusterset/test/harness/nsd"
)

// NSD marks what an authoritative server written in C takes for the same zone. It is no CoreDNS: it has no Corefile.
var nsdPeer = peer{name: "NSD"}

func findNSD() (string, error) {
	path, err := exec.LookPath("nsd")
	if err != nil {
		// Programs of an administrator are not on everybody's path.
		path, err = exec.LookPath("/usr/sbin/nsd")
	}
	if err != nil {
		return "", errors.New("nsd is missing: want Debian's package nsd (apt-get install nsd)")
	}
	return path, nil
}

// startNSD starts NSD with the zone of our server, which is there for the transfer only. It returns when NSD answers the
// questions right. The caller has to stop it.
func (b *bench) startNSD(ctx context.Context, m mode, src source) (_ *server, err error) {
	b.progress.say("rows: %s: starting NSD, with a transfer from ours", m.name)
	primary, err := b.startServer(ctx, after(ourPeer, "transfer {", "to *", "}"), src, fewFor(m.rows, ourPeer))
	if err != nil {
		return nil, err
	}
	defer primary.stop()
	s := &server{peer: nsdPeer, forks: true}
	defer func() {
		if err != nil {
			s.stop()
			err = fmt.Errorf("server NSD: %w", err)
		}
	}()
	if s.port, err = controlplane.ReservePort(); err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, fmt.Sprintf("nsd-%d", s.port.Number))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	began := time.Now()
	transfer := fmt.Sprintf("request-xfr: AXFR 127.0.0.1@%d NOKEY", primary.port.Number)
	zones := []nsd.Zone{{Origin: zone, Options: []string{transfer}}}
	if s.process, err = nsd.Start(nsd.Config{Program: m.nsd, Dir: dir, Port: s.port.Number, Zones: zones}); err != nil {
		return nil, err
	}
	if err := s.awaitAnswers(ctx, fewFor(m.rows, nsdPeer)); err != nil {
		return nil, err
	}
	s.ready = time.Since(began)
	return s, nil
}

// groupCPUTime returns the CPU time of all processes of the group that live.
func groupCPUTime(group int) (time.Duration, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, fmt.Errorf("CPU time: %w", err)
	}
	var sum time.Duration
	for _, file := range files {
		stat, err := os.ReadFile(file)
		// Others come and go meanwhile.
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("CPU time: %w", err)
		}
		of, err := parseGroup(string(stat))
		if err != nil {
			return 0, err
		}
		if of != group {
			continue
		}
		used, err := parseStat(string(stat))
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// parseGroup returns the process group, field 5 of /proc/PID/stat (proc_pid_stat(5)).
func parseGroup(stat string) (int, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const pgrp = 5 - 3
	if len(fields) <= pgrp {
		return 0, fmt.Errorf("process status %q: want at least 5 fields", stat)
	}
	group, err := strconv.Atoi(fields[pgrp])
	if err != nil {
		return 0, fmt.Errorf("process status %q: %w", stat, err)
	}
	return group, nil
}
