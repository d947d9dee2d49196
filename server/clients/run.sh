#!/usr/bin/env bash
# Runs the suites of stock clients against three nodes of this tree's Holdfast.
# What they need is installed into a temporary folder; a suite whose runtime is
# missing is skipped and says so. `run.sh python go` runs only those.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD

work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-clients.XXXXXX")
export HOLDFAST_STATE=$work/cluster HOLDFAST_BIN=$work/holdfast HOLDFAST_PORT=${HOLDFAST_PORT:-18101}
export HOLDFAST_NODES="127.0.0.1:$HOLDFAST_PORT,127.0.0.1:$((HOLDFAST_PORT + 1)),127.0.0.1:$((HOLDFAST_PORT + 2))"
export HOLDFAST_KILL="$here/cluster.sh kill-leader"
mkdir "$HOLDFAST_STATE"

clean_up() {
	"$here/cluster.sh" stop
	chmod -R u+w "$work" 2>/dev/null || true # Go's module cache is read-only
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

passed=() failed=() skipped=()

# missing prints the first of the named programs that is not installed.
missing() {
	local program
	for program in "$@"; do
		command -v "$program" >/dev/null || { echo "$program"; return; }
	done
}

# suite NAME PROGRAMS...: install_NAME, then test_NAME with three nodes running.
suite() {
	local name=$1 lacks started=$SECONDS
	shift
	[[ " $wanted " == *" $name "* ]] || return 0
	echo "=== $name"
	lacks=$(missing "$@")
	if [ -n "$lacks" ]; then
		echo "  skip  all of it: $lacks is not installed"
		skipped+=("$name (no $lacks)")
		return 0
	fi
	if ! ("install_$name" >"$work/install.log" 2>&1); then
		tail -20 "$work/install.log"
		failed+=("$name (could not be installed)")
	elif "$here/cluster.sh" start && ("test_$name"); then
		passed+=("$name")
	else
		failed+=("$name")
	fi
	echo "  took $((SECONDS - started)) s"
}

install_redis_cli() { :; }
test_redis_cli() { "$here/redis_cli.sh"; }

install_go() { cd "$here/go" && go build -o "$work/go-suite" .; }
test_go() { "$work/go-suite"; }

install_python() {
	python3 -m venv "$work/venv" &&
		"$work/venv/bin/pip" install --quiet --disable-pip-version-check --cache-dir "$work/pip" -r "$here/python/requirements.txt"
}
test_python() { "$work/venv/bin/python" "$here/python/suite.py"; }

install_node() {
	cp -r "$here/node" "$work/node" && cd "$work/node" &&
		npm install --no-audit --no-fund --loglevel=error --cache "$work/npm"
}
test_node() { cd "$work/node" && node suite.mjs; }

install_java() {
	mvn -q -B -f "$here/java/pom.xml" -Dmaven.repo.local="$work/m2" dependency:copy-dependencies -DoutputDirectory="$work/jars" &&
		javac -nowarn -cp "$work/jars/*" -d "$work/classes" "$here/java/Suite.java"
}
test_java() {
	(cd "$work/jars" && ls jedis-*.jar lettuce-core-*.jar | sed 's/^/  /; s/\.jar$//')
	java -cp "$work/classes:$work/jars/*" Suite
}

wanted=${*:-redis_cli go python node java}
(cd "$here/../.." && go build -o "$HOLDFAST_BIN" ./cmd/holdfast)

suite redis_cli redis-cli
suite go go
suite python python3
suite node node npm
suite java java javac mvn

echo "=== $SECONDS s; passed: ${passed[*]:-none}; failed: ${failed[*]:-none}; skipped: ${skipped[*]:-none}"
[ ${#failed[@]} = 0 ]
