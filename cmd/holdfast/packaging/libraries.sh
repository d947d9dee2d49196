#!/usr/bin/env bash
# Makes the client libraries as their users get them: libraries.sh FOLDER VERSION, for dist.sh; and installs each from there
# into an empty project, without a registry, and runs the example of its README: libraries.sh --try FOLDER VERSION HOLDFAST.
# A language is two functions, make_… and try_….
set -euo pipefail
languages='go python'
go=${GO:-go}
work=$(mktemp -d)
trap 'kill "${demo:-}" 2>/dev/null && wait "$demo" || true; rm -rf "$work"' EXIT

# example README: its first block of code, for nodes of this machine.
example() {
	awk '/^```/ {if (inside) exit; inside = 1; next} inside' "$1" |
		sed "s/10\.0\.0\.1:6379/127.0.0.1:$port/; s/10\.0\.0\.2:6379/127.0.0.1:$((port + 1))/; s/10\.0\.0\.3:6379/127.0.0.1:$((port + 2))/"
}

# pack FOLDER FILE: an archive of a folder of $work, the same in each run.
pack() {
	tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -cf - "$1" |
		gzip -9n >"$2"
}

module=github.com/holdfast/holdfast/server/clients/go/holdfast
# A folder that GOPROXY=file://… takes.
make_go() {
	local at=$out/go/$module/@v
	mkdir -p "$at"
	echo "v$version" >"$at/list"
	echo "{\"Version\":\"v$version\",\"Time\":\"$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)\"}" >"$at/v$version.info"
	cp server/clients/go/holdfast/go.mod "$at/v$version.mod"
	# From within the folder, as the zip of a tree would carry the time of day.
	git -C server/clients/go/holdfast archive --format=zip --prefix="$module@v$version/" -o "$at/v$version.zip" HEAD .
}
try_go() {
	{
		printf 'package main\nimport (\n"context"\n"fmt"\n"%s"\n)\nfunc main() {\nctx := context.Background()\n' "$module"
		example server/clients/go/holdfast/README.md
		printf 'fmt.Println("fence", lock.Fence(), err)\n}\n'
	} >"$work/go/main.go"
	cd "$work/go"
	export GOPROXY=file://$out/go GONOSUMDB=* GOFLAGS=-mod=mod GOMODCACHE=$work/modules
	"$go" mod init example.com/try 2>/dev/null
	"$go" get "$module@v$version" 2>/dev/null
	"$go" run . | grep -E '^fence [0-9]+ <nil>$'
	"$go" clean -modcache
}

make_python() {
	if ! python3 -m pip install --quiet --root-user-action=ignore --target "$work/tools" build setuptools 2>"$work/said"; then
		echo "dist: no wheel, because pip installs no tools: $(tail -1 "$work/said")" >&2
		return
	fi
	mkdir "$work/source" "$work/built" "$out/python"
	git archive HEAD:server/clients/python/holdfast-client | tar -C "$work/source" -x
	PYTHONPATH=$work/tools python3 -m build --no-isolation --outdir "$work/built" "$work/source" >/dev/null 2>&1
	tar -C "$work" -xzf "$work/built"/*.tar.gz
	pack "holdfast_client-$version" "$out/python/holdfast_client-$version.tar.gz"
	cp "$work/built"/*.whl "$out/python/"
}
try_python() {
	{
		printf 'row = 1\ndef write(row, fence): print("fence", fence)\n'
		example server/clients/python/holdfast-client/README.md
	} >"$work/python/main.py"
	python3 -m pip install --quiet --root-user-action=ignore --no-index --find-links "$out/python" --target "$work/python" holdfast-client
	(cd "$work/python" && python3 main.py) | grep -E '^fence [0-9]+$'
}

cd "$(dirname "$0")/../../.."
if [ "$1" != --try ]; then
	out=$(realpath "$1") version=$2
	SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
	export SOURCE_DATE_EPOCH
	for language in $languages; do "make_$language"; done
	exit
fi
out=$(realpath "$2") version=$3 port=${PORT:-25300}
"$4" demo --port "$port" --data-dir "$work/demo" >"$work/said" 2>&1 &
demo=$!
"$4" lock --server "127.0.0.1:$port" --wait 1m ready -- true
for language in $languages; do
	mkdir -p "$work/$language"
	[ -e "$out/$language" ] || { echo "packaging: the library for $language was NOT MADE" >&2 && exit 1; }
	("try_$language") || { echo "packaging: the example of the library for $language failed" >&2 && exit 1; }
done
