#!/usr/bin/env bash
# Compares the microbenchmarks of the working tree with those of a commit: `test/tools/benchstat.sh <commit> <rounds> <packages>...`.
# Both are built first and then run in turn, so that they see the same machine. It needs bin/benchstat.
set -euo pipefail
cd "$(dirname "$0")/../.."
base=$(git rev-parse --verify "$1^{commit}") rounds=$2
shift 2

work=$(mktemp -d)
tree=$work/tree
trap 'git worktree remove --force "$tree" 2>/dev/null || :; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$tree" "$base"

# $(build folder name): test programs of the packages of a tree that has them
build() {
	local package
	mkdir -p "$work/$2"
	for package in "${packages[@]}"; do
		[[ -d $1/$package ]] || continue
		echo "building $package of $2" >&2
		go test -C "$1" -c -o "$work/$2/${package//\//-}" "./$package"
	done
}

packages=("$@")
build "$tree" base
build . new
for ((round = 1; round <= rounds; round++)); do
	for package in "${packages[@]}"; do
		for side in base new; do
			program=$work/$side/${package//\//-}
			[[ -x $program ]] || continue
			echo "round $round of $rounds: $package of $side" >&2
			# It is run where the package lies, as go test does.
			dir=$([[ $side == base ]] && echo "$tree" || pwd)/$package
			(cd "$dir" && "$program" -test.run '^$' -test.bench . -test.benchmem -test.benchtime 200ms) >>"$work/$side.txt"
		done
	done
done
mkdir -p bin
cp "$work/base.txt" bin/benchstat-base.txt
cp "$work/new.txt" bin/benchstat-new.txt
bin/benchstat base="$work/base.txt" new="$work/new.txt" | tee bin/benchstat.txt
