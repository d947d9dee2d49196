#!/usr/bin/env bash
# Makes the client libraries as their users get them: libraries.sh FOLDER VERSION, for dist.sh; and installs each from there
# into an empty project, with Maven's registry for what the libraries depend on, and runs the example of its README:
# libraries.sh --try FOLDER VERSION HOLDFAST. A language is two functions, make_… and try_…, and is left out, with a line
# that says so, where a program that it needs is missing.
set -euo pipefail
go=${GO:-go}
declare -A needs=([go]=$go [python]=python3 [java]='javac mvn' [node]='node npm')
work=$(mktemp -d)
trap 'kill "${demo:-}" 2>/dev/null && wait "$demo" || true; rm -rf "$work"' EXIT

# example README: its first block of code, for nodes of this machine.
example() {
	awk '/^```/ {if (inside++) exit; next} inside' "$1" |
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

# A Maven repository, which `<url>file:…</url>` takes: what Maven Central wants, but signatures and checksums, which the
# upload adds.
make_java() {
	local plugin=org.apache.maven.plugins modules
	mkdir "$work/java"
	git archive HEAD:server/clients/java | tar -C "$work/java" -x
	modules=$(cd "$work/java" && printf '<module>%s</module>' holdfast-*)
	echo "<project><modelVersion>4.0.0</modelVersion><groupId>all</groupId><artifactId>all</artifactId><version>1</version>
		<packaging>pom</packaging><modules>$modules</modules></project>" >"$work/java/all.xml"
	mvn -q -B -f "$work/java/all.xml" -pl '!.' -Dproject.build.outputTimestamp="$SOURCE_DATE_EPOCH" \
		-DaltDeploymentRepository="dist::file://$out/java" package "$plugin:maven-source-plugin:3.3.1:jar-no-fork" \
		"$plugin:maven-javadoc-plugin:3.11.2:jar" "$plugin:maven-deploy-plugin:3.1.4:deploy"
	find "$out/java" \( -name 'maven-metadata*' -o -name '*.md5' -o -name '*.sha1' \) -delete # SHA256SUMS has them all
}
try_java() {
	local name
	{
		printf '%s\n' '<project><modelVersion>4.0.0</modelVersion><groupId>try</groupId><artifactId>try</artifactId><version>1</version>' \
			"<repositories><repository><id>dist</id><url>file://$out/java</url></repository></repositories><dependencies>"
		for name in client spring shedlock; do
			echo "<dependency><groupId>io.github.holdfast</groupId><artifactId>holdfast-$name</artifactId><version>$version</version></dependency>"
		done
		echo '</dependencies></project>'
	} >"$work/java/pom.xml"
	{
		printf 'import %s;\n' io.github.holdfast.HoldfastClient io.github.holdfast.shedlock.HoldfastLockProvider \
			io.github.holdfast.spring.HoldfastLockRegistry java.time.Duration java.time.Instant \
			'net.javacrumbs.shedlock.core.*' org.springframework.integration.support.locks.LockRegistry
		printf 'class Main {\nstatic void write(int row, long fence) { System.out.println("fence " + fence); }\n'
		printf 'public static void main(String[] none) throws Exception {\nint row = 1;\n'
		for name in client spring shedlock; do example "server/clients/java/holdfast-$name/README.md"; done
		printf 'System.out.println("spring " + registry.obtain("nightly").tryLock());\n'
		printf 'var job = new LockConfiguration(Instant.now(), "nightly", Duration.ofMinutes(1), Duration.ZERO);\n'
		printf 'System.out.println("shedlock " + provider.lock(job).isPresent());\nclient.close();\n}\n}\n'
	} >"$work/java/Main.java"
	mvn -q -B -f "$work/java/pom.xml" -Dmaven.repo.local="$work/m2" dependency:copy-dependencies -DoutputDirectory="$work/java/jars"
	java -cp "$work/java/jars/*" "$work/java/Main.java" 2>"$work/said" | tee "$work/java/said"
	grep -qE '^fence [0-9]+$' "$work/java/said" && grep -qx 'spring true' "$work/java/said" && grep -qx 'shedlock true' "$work/java/said"
}

make_node() {
	mkdir "$work/node" "$out/node"
	git archive HEAD:server/clients/node/holdfast-client | tar -C "$work/node" -x
	cp LICENSE "$work/node/"
	cd "$work/node"
	npm install --no-package-lock --no-audit --no-fund --loglevel=error >/dev/null
	npm pack --silent --pack-destination "$out/node" >/dev/null # builds it, for import and for require
}
try_node() {
	local readme=$PWD/server/clients/node/holdfast-client/README.md
	cd "$work/node"
	npm init -y >/dev/null
	npm install --offline --no-audit --no-fund --loglevel=error "$out"/node/*.tgz >/dev/null
	{
		printf 'const row = 1\nasync function write (row, fence) { console.log("fence", fence) }\n'
		example "$readme"
	} >main.mjs
	{ # the same by require
		echo '(async () => {'
		sed "s/^import \(.*\) from \(.*\)$/const \1 = require(\2)/" main.mjs
		echo '})()'
	} >main.cjs
	node main.mjs | grep -E '^fence [0-9]+$'
	node main.cjs | grep -E '^fence [0-9]+$'
}

# languages WHAT: those of which this machine has all programs; WHAT happens to the others.
languages() {
	local language program
	for language in go python java node; do
		for program in ${needs[$language]}; do
			command -v "$program" >/dev/null && continue
			echo "packaging: the library for $language is $1: $program is not installed" >&2
			continue 2
		done
		echo "$language"
	done
}

cd "$(dirname "$0")/../../.."
if [ "$1" != --try ]; then
	out=$(realpath "$1") version=$2
	SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
	export SOURCE_DATE_EPOCH
	for language in $(languages 'NOT MADE'); do ("make_$language"); done
	exit
fi
out=$(realpath "$2") version=$3 port=${PORT:-25300}
"$4" demo --port "$port" --data-dir "$work/demo" >"$work/said" 2>&1 &
demo=$!
"$4" lock --server "127.0.0.1:$port" --wait 1m ready -- true
for language in $(languages 'NOT TRIED'); do
	mkdir -p "$work/$language"
	[ -e "$out/$language" ] || { echo "packaging: the library for $language was NOT MADE" >&2 && exit 1; }
	echo "packaging: the example of the library for $language"
	("try_$language") # alone, as errors inside would not count before ||
done
