package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of CPU time in /proc. The kernel fixes it for programs (USER_HZ), whatever it counts in itself.
const tick = 10 * time.Millisecond

// cpuTime returns the CPU time that the process has used, in user and kernel mode, in steps of [tick].
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("CPU time: %w", err)
	}
	return parseStat(string(b))
}

// parseStat adds utime and stime, fields 14 and 15 of /proc/PID/stat (proc_pid_stat(5)).
func parseStat(stat string) (time.Duration, error) {
	// The program's name, field 2, is in parentheses and may hold blanks and parentheses itself.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const utime, stime = 14 - 3, 15 - 3
	if len(fields) <= stime {
		return 0, fmt.Errorf("process status %q: want at least 15 fields", stat)
	}
	var sum time.Duration
	for _, f := range fields[utime : stime+1] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process status %q: %w", stat, err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// resident returns how many octets of the process are in memory, now and at most so far.
func resident(pid int) (now, peak int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("resident memory: %w", err)
	}
	now, errNow := parseStatus(string(b), "VmRSS")
	peak, errPeak := parseStatus(string(b), "VmHWM")
	return now, peak, errors.Join(errNow, errPeak)
}

// octetsRead returns how many octets the process has read from sockets and files (proc_pid_io(5)).
func octetsRead(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, fmt.Errorf("octets read: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "rchar: "); ok {
			return strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		}
	}
	return 0, errors.New("octets read: /proc has no rchar")
}

// parseStatus returns one size of /proc/PID/status (proc_pid_status(5)) in octets.
func parseStatus(status, key string) (int64, error) {
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		if name != key {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process status: %s: %w", key, err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("process status without %s", key)
}

// loadAverage returns how many processes wanted to run during the last minute: figures from a busy machine are rough.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
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
