#!/usr/bin/env bash
# Runs go test with these arguments. It fails also if a package had no test to run, which go test takes for success: a test that is renamed, or
# whose build tag is, must not leave a target that proves nothing.
set -euo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
go test "$@" 2>&1 | tee -i "$log"
if grep -E '\[no test(s to run| files)\]' "$log" >/dev/null; then
	echo "$0: nothing was tested by go test $*" >&2
	exit 1
fi
