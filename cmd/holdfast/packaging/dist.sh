#!/usr/bin/env bash
# Makes what a release consists of in dist/: dist.sh [folder]. One archive a program and platform, with the list of its
# modules (SBOM); a Debian and an RPM package of the server an architecture, the Helm chart, the client libraries, the page
# of notes, and checksums of all. Two runs on one revision make the same bytes.
set -euo pipefail
cd "$(dirname "$0")/../../.."
out=$(realpath -m "${1:-dist}")
go=${GO:-go}
files=cmd/holdfast/packaging
version=$(sed -n 's/^const HoldfastVersion = "\(.*\)"$/\1/p' protocol/version.go)
# Archives carry the time of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
rm -rf "$out"
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Tools, which the Go command builds for this machine. Later versions of nfpm need modules outside of the public proxy.
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0
sbom=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
tool() { "$go" run -trimpath "$@" >/dev/null; }

# build PROGRAM OS ARCH FILE: a static binary that names no folder of this machine. holdfast-otel is a module of its own.
build() {
	CGO_ENABLED=0 GOOS=$2 GOARCH=$3 "$go" -C "cmd/$1" build -trimpath -ldflags "-s -w -buildid=" -o "$4" .
}

# What comes with the program: the pages, the man page, completions, alerts, the dashboard, manifests. Made by a program for this machine.
extras=$work/extras
mkdir -p "$extras/completions" "$extras/examples"
"$go" build -o "$work/here" ./cmd/holdfast
"$work/here" docs write "$extras/docs"
"$work/here" docs man | gzip -9n >"$extras/holdfast.1.gz"
for shell in bash zsh fish; do "$work/here" completion $shell >"$extras/completions/holdfast.$shell"; done
cp "$files"/{kubernetes,podmonitor,restore,compose}.yaml server/monitoring/{alerts.yaml,dashboard.json} "$extras/examples"
chmod -R u=rwX,go=rX "$extras"
find "$extras" -exec touch --date="@$SOURCE_DATE_EPOCH" {} +

# archive PROGRAM OS ARCH FILE…
archive() {
	local name=$1-$version-$2-$3
	local program=$1
	[ "$2" != windows ] || program=$1.exe
	mkdir -p "$work/$name"
	build "$1" "$2" "$3" "$work/$name/$program"
	tool "$sbom" bin -json -noserial -notimestamp -version "v$version" -output "$out/$name.sbom.json" "$work/$name/$program"
	cp -r LICENSE "${@:4}" "$work/$name"
	chmod -R u=rwX,go=rX "$work/$name"
	tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$name" |
		gzip -9n >"$out/$name.tar.gz"
}

for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64; do
	archive holdfast "${platform%/*}" "${platform#*/}" "$files"/holdfast*.{service,timer} "$files/holdfast.env" "$extras"/*
	archive holdfast-otel "${platform%/*}" "${platform#*/}"
done
for arch in amd64 arm64; do
	for kind in deb rpm; do
		VERSION=$version ARCH=$arch EXTRAS=$extras PROGRAM=$work/holdfast-$version-linux-$arch/holdfast \
			tool "$nfpm" package --config "$files/nfpm.yaml" --packager $kind --target "$out/"
	done
done
# The Helm chart, with what its links lead to.
tar -C "$files" --dereference --transform 's,^helm,holdfast,' --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
	--numeric-owner --mode=u=rwX,go=rX -cf - helm | gzip -9n >"$out/holdfast-$version.tgz"
# The notes of the release are its section of CHANGELOG.md.
awk -v version="$version" '/^## / {inside = $2 == version; next} inside' CHANGELOG.md >"$out/NOTES.md"
[ -s "$out/NOTES.md" ] || { echo "dist: CHANGELOG.md has no section $version" >&2 && exit 1; }
"$files/libraries.sh" "$out" "$version"
(cd "$out" && find . -type f -printf '%P\n' | LC_ALL=C sort | xargs sha256sum -- >"$work/sums" && mv "$work/sums" SHA256SUMS)
ls -l "$out"
