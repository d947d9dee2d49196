#!/usr/bin/env bash
# Has promtool check the rules and the dashboard's queries, and run the tests of the rules. promtool is the one in
# $PATH, or in Debian's package, which is unpacked and not installed. Where neither is to be had the script says so and
# ends with status 0, or 1 with --must.
set -euo pipefail
case ${1:-} in
'' | --must) must=${1:-} ;;
*) echo "monitoring: $1 is no flag; there is --must" >&2 && exit 2 ;;
esac
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

tool=$(command -v promtool || true)
if [ -z "$tool" ] && command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
	(cd "$work" && apt-get download -qq prometheus) >"$work/download" 2>&1 || true
	for package in "$work"/prometheus_*.deb; do
		[ -e "$package" ] || continue
		dpkg-deb --fsys-tarfile "$package" | tar -xC "$work" ./usr/bin/promtool
		tool=$work/usr/bin/promtool
	done
fi
if [ -z "$tool" ]; then
	echo "monitoring: NOT CHECKED: there is no promtool, and no package of it to be had: $(tail -1 "$work/download" 2>/dev/null)" >&2
	[ -z "$must" ]
	exit
fi
"$tool" --version 2>&1 | head -1
HOLDFAST_PROMTOOL=$tool ${GO:-go} test -count=1 -run 'Promtool|Alerts' .
