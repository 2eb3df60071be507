#!/usr/bin/env bash
# Gets the programs that a make target needs and Go does not build: test/tools/need.sh <target> <program>... [-optional <program>...]
#
# What is missing is installed with apt-get where that is possible: as root, on Debian and its relatives. A line on standard error says so
# first. Otherwise a missing program is a failure, unless it stands after -optional: then one line says what the target leaves out,
# and the program's name goes to standard output, for CLUSTERSET_SKIP. With CI=true no program is optional.
set -euo pipefail
target=$1
shift

# $(package program): the Debian packages that have it
package() {
	case $1 in
	dig | nslookup) echo bind9-dnsutils ;;
	nc) echo netcat-openbsd ;;
	nft) echo nftables ;;
	ip) echo iproute2 ;;
	gcc) echo gcc libc6-dev ;;
	*) echo "$1" ;;
	esac
}

# $(without program): what the target leaves out if it does not have the program
without() {
	case $1 in
	dig) echo "tests that ask with dig (test/suites/e2e, test/suites/lifecycle, test/tools/demo)" ;;
	nsd) echo "comparisons with NSD and zone transfers to it (test/suites/e2e, test/suites/lifecycle)" ;;
	gcc) echo "the race detector" ;;
	*) echo "tests that run $1" ;;
	esac
}

have() {
	case $1 in
	# Headers of the C library are in another package than the compiler.
	gcc) gcc -E -include stdlib.h -x c /dev/null >/dev/null 2>&1 ;;
	# There are several programs of that name.
	nc) [[ $(nc -h 2>&1) == *OpenBSD* ]] ;;
	# Administrators' programs are not on every user's path.
	*) PATH=$PATH:/usr/sbin command -v "$1" >/dev/null ;;
	esac
}

# Sets missing to those of the programs that are not there.
check() {
	missing=()
	local program
	for program; do
		have "$program" || missing+=("$program")
	done
}

# Installs what is missing. If that is not possible, reason says why.
install() {
	local packages=() program
	if ! command -v apt-get >/dev/null; then
		reason="no apt-get here"
		return
	elif [[ $(id -u) != 0 ]]; then
		reason="not root"
		return
	fi
	for program in "${missing[@]}"; do
		read -ra found <<<"$(package "$program")"
		packages+=("${found[@]}")
	done
	echo "make $target: installing ${packages[*]} with apt-get (missing: ${missing[*]})" >&2
	# In a run level that starts no service: only the programs are wanted.
	export RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive
	local output
	if ! output=$(apt-get -o DPkg::Lock::Timeout=300 update -qq 2>&1 &&
		apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${packages[@]}" 2>&1); then
		reason="apt-get failed: ${output##*$'\n'}"
	fi
	check "${missing[@]}"
}

required=() optional=() list=required
for arg; do
	case $list:$arg in
	required:-optional) list=optional ;;
	required:*) required+=("$arg") ;;
	optional:*) optional+=("$arg") ;;
	esac
done
if [[ ${CI:-} == true ]]; then
	required+=("${optional[@]}") optional=()
fi

reason="not in what apt-get installed"
check "${required[@]}" "${optional[@]}"
((${#missing[@]})) || exit 0
install
((${#missing[@]})) || exit 0

check "${required[@]}"
if ((${#missing[@]})); then
	packages=$(for program in "${missing[@]}"; do package "$program"; done)
	echo "make $target: missing: ${missing[*]}; cannot install: $reason; Debian has them in: ${packages//$'\n'/ }" >&2
	exit 1
fi
check "${optional[@]}"
out=
for program in "${missing[@]}"; do
	out+="${out:+; }$(without "$program")"
done
echo "make $target: missing: ${missing[*]}; cannot install: $reason; left out: $out" >&2
echo "${missing[*]}"
