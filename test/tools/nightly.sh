#!/usr/bin/env bash
# Runs targets of the Makefile one after the other: test/tools/nightly.sh <target>...
#
# It goes on after a target that fails, and ends with a table of how long each took. It fails if one of them has failed.
set -uo pipefail
(($#)) || { echo "nightly: want targets" >&2; exit 1; }

table=()
failed=()
for target; do
	echo "nightly: make $target"
	begin=$SECONDS
	if "${MAKE:-make}" --no-print-directory "$target"; then
		result=pass
	else
		result=FAIL
		failed+=("$target")
	fi
	table+=("$(printf '%-6s %6d s  %s' "$result" $((SECONDS - begin)) "$target")")
done
printf '%s\n' "${table[@]}"
((${#failed[@]} == 0)) || { echo "nightly: failed: ${failed[*]}" >&2; exit 1; }
