#!/usr/bin/env bash
# Runs the public conformance suite of the Multi-Cluster Services API: test/conformance.sh CHECKOUT [FLAG...]
#
# CHECKOUT is a folder with a checkout of https://github.com/kubernetes-sigs/mcs-api. The report goes to bin/conformance.
# Each FLAG is one of the suite, such as -ginkgo.focus=DNS. VIP=cidr has the members use clusterset IPs. It needs Linux and root; test/lab/conformance says what runs.
set -euo pipefail
checkout=$(realpath -- "${1:?want a folder with a checkout of kubernetes-sigs/mcs-api}")
shift
cd "$(dirname "$0")/.."
test/tools/need.sh conformance ip nft nslookup nc
go run ./test/harness/controlplane/cmd/binaries
go run ./test/harness/controlplane/cmd/binaries -further
go -C test/lab build -o "$PWD/bin/run-conformance" ./conformance
exec bin/run-conformance -checkout "$checkout" -out bin/conformance -vip "${VIP-}" -- "$@"
