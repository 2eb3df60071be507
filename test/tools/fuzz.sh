#!/usr/bin/env bash
# Fuzzes every target of the module for a time each: test/tools/fuzz.sh <time per target> [regular expression of targets]
#
# It goes on after a target that fails, and ends with a table of the inputs tried and the targets that failed. The input of a failure is
# kept in testdata/fuzz of the package, where every later test run tries it again: commit it with the repair.
set -euo pipefail
each=$1
wanted=${2:-.}

table=()
failed=()
# Targets are found in the sources: go test -list would build every package first.
while IFS=: read -r file target; do
	package=./$(dirname "$file")
	[[ $target =~ $wanted ]] || continue
	echo "fuzz: $package $target, for $each"
	status=0
	# Minimizing takes up to a minute for each input that reaches new code, by default; with objects as JSON nothing else gets done.
	# Not tee /dev/stderr: that opens a file anew to which the output goes, and one of the two writes over the other.
	output=$(go test -pgo=off -run '^$' -fuzz "^$target\$" -fuzztime "$each" -fuzzminimizetime 100x "$package" 2>&1 | tee >(cat >&2)) || status=$?
	inputs=$(grep -o 'execs: [0-9]*' <<<"$output" | tail -n 1 | grep -o '[0-9]*' || echo 0)
	table+=("$(printf '%12d  %s %s' "$inputs" "$package" "$target")")
	# go test succeeds also if it finds no such target.
	((status == 0 && inputs > 0)) || failed+=("$package $target")
done < <(grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' . | sed 's|^\./||; s/func //' | sort)

((${#table[@]})) || { echo "fuzz: no target matches $wanted" >&2; exit 1; }
printf '%12s  %s\n' inputs target
printf '%s\n' "${table[@]}"
((${#failed[@]} == 0)) || { printf 'fuzz: failed: %s\n' "${failed[@]}" >&2; exit 1; }
