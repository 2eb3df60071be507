#!/usr/bin/env bash
# Packs the chart of HEAD as that of a release into bin/chart: test/tools/release/chart.sh <version>
#
# Version and image are those of the release. The time of each file is that of the commit, so that the same commit gives the same archive.
set -euo pipefail
version=$1
cd "$(dirname "$0")/../../.."
out=bin/chart chart=bin/chart/deploy/chart
rm -rf "$out"
mkdir -p "$out"
git archive HEAD deploy/chart | tar -x -C "$out"
sed -i.orig -e "s/^version: .*/version: $version/" -e "s/^appVersion: .*/appVersion: v$version/" "$chart/Chart.yaml"
sed -i.orig -e "s|^image: .*|image: ghcr.io/clusterset-dns/clusterset:v$version|" "$chart/values.yaml"
for file in Chart.yaml values.yaml; do
	touch -r "$chart/$file.orig" "$chart/$file"
	rm "$chart/$file.orig"
done
bin/helm package "$chart" "$out"
