#!/usr/bin/env bash
# Runs a command several times while a busy loop takes each core: test/tools/stress.sh <runs> <command>...
#
# It stops at the first run that fails, unless KEEP_GOING=1, and ends with a line that says how many runs passed. The status is 0 if
# all did.
set -euo pipefail
runs=$1
shift

# Besides the kill at the end: a loop ends by itself within a second when this script is gone.
busy() {
	local i
	while kill -0 $$ 2>/dev/null; do
		for ((i = 0; i < 100000; i++)); do :; done
	done
}

started=()
trap 'kill "${started[@]}" 2>/dev/null || :; wait' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
cores=$(getconf _NPROCESSORS_ONLN)
for ((core = 0; core < cores; core++)); do
	# A loop that held the output open would keep a reader waiting.
	busy </dev/null >/dev/null 2>&1 &
	started+=($!)
done

passed=0
for ((run = 1; run <= runs; run++)); do
	echo "stress: run $run of $runs, beside $cores busy loops"
	# Beside the script, so that a signal to the script alone ends the command, too.
	"$@" &
	started[cores]=$!
	status=0
	wait $! || status=$?
	unset "started[cores]"
	if ((status == 0)); then
		passed=$((passed + 1))
	else
		echo "stress: run $run failed with status $status"
		[[ ${KEEP_GOING:-} == 1 ]] || break
	fi
done
echo "stress: $passed of $runs runs passed"
((passed == runs))
