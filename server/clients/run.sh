#!/usr/bin/env bash
# Runs suites of stock clients, and suites of others, against three nodes of this tree's Holdfast.
#   run.sh                    the default selection
#   run.sh python asynq       some suites, as CLIENTS='python asynq'; CLIENTS=all is every suite, CLIENTS=few those
#                             that run on every change
#   TARGET=redis run.sh …     the same against a redis-server of this machine
#   HOLDFAST_BIN=file run.sh  the same against that binary
# What the suites need is installed into a temporary folder, or into CLIENTS_KEEP=folder, which stays
# for the next run; a suite whose runtime is missing is skipped and says so. The tests then run in a
# network namespace of their own where that is allowed.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
default='redis_cli go pushed python node discovery java java_pushed redislock redsync rueidislock
	python_redis_lock rslock killed semaphore redisson exporter
	bridge_go bridge_python bridge_node bridge_java bridge_redisson
	library_python library_java library_typescript recipes_rust'
locks='locks_python locks_node locks_java locks_php locks_ruby'
libraries='library_mistakes java_spring java_shedlock'
every="$default $locks $libraries asynq redis_py rueidis redis_py_more redis_acl connect" # killed has all tests of asynq and redis_py
case ${CLIENTS:-} in
all) default=$every ;;
few) default='redis_cli go python redisson killed bridge_go bridge_python bridge_node
	library_python library_java library_typescript' ;;
?*) default=$CLIENTS ;;
esac
wanted=$(echo ${*:-${CLIENTS_WANTED:-$default}})

work=${CLIENTS_WORK:-${CLIENTS_KEEP:-$(mktemp -d "${TMPDIR:-/tmp}/holdfast-clients.XXXXXX")}}
export HOLDFAST_STATE=$work/cluster HOLDFAST_PORT=${HOLDFAST_PORT:-18101}
export HOLDFAST_NODES="127.0.0.1:$HOLDFAST_PORT,127.0.0.1:$((HOLDFAST_PORT + 1)),127.0.0.1:$((HOLDFAST_PORT + 2))"
export HOLDFAST_KILL="$here/cluster.sh kill-leader" HOLDFAST_START="$here/cluster.sh start"
export HOLDFAST_SENTINELS="127.0.0.1:$((HOLDFAST_PORT + 20)),127.0.0.1:$((HOLDFAST_PORT + 21)),127.0.0.1:$((HOLDFAST_PORT + 22))"
export HOLDFAST_TARGET=${TARGET:-holdfast} HOLDFAST_STANDIN=$work/standin
HOLDFAST_REDIS=${HOLDFAST_REDIS:-$(command -v redis-server || true)}
export HOLDFAST_REDIS

# shellcheck source=others.sh
. "$here/others.sh"
# shellcheck source=recipes.sh
. "$here/recipes.sh"
# shellcheck source=bridge.sh
. "$here/bridge.sh"
# shellcheck source=exclusive.sh
. "$here/exclusive.sh"

# missing prints the first of the named programs that is not installed.
missing() {
	local program
	for program in "$@"; do
		command -v "$program" >/dev/null || { echo "$program"; return; }
	done
}

# programs prints what suite $1 needs.
programs() {
	case $1 in
	redis_cli) echo redis-cli ;;
	bridge_go) echo go redis-server ;;
	bridge_python) echo python3 redis-server ;;
	bridge_node) echo node npm redis-server ;;
	bridge_java | bridge_redisson) echo java javac mvn redis-server ;;
	python | redis_py | redis_py_more | python_redis_lock | locks_python) echo python3 ;;
	killed) echo go python3 ;;
	node | semaphore | locks_node) echo node npm ;;
	discovery) echo go python3 node npm ;;
	library_python) echo go python3 ;;
	library_java) echo go java javac ;;
	library_typescript) echo go node npm ;;
	library_mistakes) echo go python3 java javac node npm ;;
	java | java_pushed | java_spring | java_shedlock | redisson | locks_java) echo java javac mvn ;;
	locks_php) echo php ;;
	locks_ruby) echo ruby gem ;;
	rslock | recipes_rust) echo cargo ;;
	exporter) echo go redis-cli curl ;;
	redis_acl) echo tclsh apt-get dpkg-source ;;
	connect) echo go python3 node npm java javac mvn keytool ip ;;
	*) echo go ;;
	esac
}

install_redis_cli() { :; }
test_redis_cli() { "$here/redis_cli.sh"; }

install_go() { cd "$here/go" && go build -o "$work/go-suite" .; }
test_go() { "$work/go-suite"; }

install_pushed() { install_go; }
test_pushed() { "$work/go-suite" pushed; }

# environment makes virtual environment $1 with the packages of requirements file $2.
environment() {
	python3 -m venv "$work/$1" &&
		"$work/$1/bin/pip" install --quiet --disable-pip-version-check --cache-dir "$work/pip" -r "$2"
}

install_python() { environment venv "$here/python/requirements.txt"; }
test_python() { "$work/venv/bin/python" "$here/python/suite.py"; }

install_node() {
	cp -r "$here/node" "$work/node" && cd "$work/node" &&
		npm install --no-audit --no-fund --loglevel=error --cache "$work/npm"
}
test_node() { cd "$work/node" && node suite.mjs; }

# The libraries of native locks: the scenarios of CONTRACT.md, and the mistakes that they must notice. They start nodes of
# their own, and build the libraries.
install_contract() {
	mkdir -p "$work/typescript"
	(cd "$here/../.." && go test -c -tags invariants -o "$work/contract.test" ./cmd/internal/clienttest)
}
contract() {
	cd "$here/../../cmd/internal/clienttest" && HOLDFAST_LIBRARIES=$work/typescript "$work/contract.test" -test.run "^$1"
}
install_library_python() {
	install_contract && python3 -m venv "$work/typed" &&
		"$work/typed/bin/pip" install --quiet --disable-pip-version-check --cache-dir "$work/pip" mypy==2.4.1
}
test_library_python() {
	"$work/typed/bin/mypy" --strict "$here/python/holdfast-client/holdfast_client" &&
		contract 'TestContract$/^(Python|asyncio)$'
}

install_library_java() { install_contract; }
test_library_java() { contract 'TestContract$/^(Java|futures)$'; }

install_library_typescript() {
	install_contract && cp -r "$here/node/holdfast-client/." "$work/typescript" && cd "$work/typescript" &&
		npm install --no-package-lock --no-audit --no-fund --loglevel=error --cache "$work/npm" && npm run --silent build
}
test_library_typescript() { (cd "$work/typescript" && npm test --silent) && contract 'TestContract$/^TypeScript$'; }

install_library_mistakes() { [ -d "$work/typescript/node_modules" ] || install_library_typescript; }
test_library_mistakes() { contract 'TestMistakes$'; }

install_semaphore() { [ -d "$work/node" ] || install_node; }
test_semaphore() { cd "$work/node" && node semaphore.mjs; }

install_java() {
	mvn -q -B -f "$here/java/pom.xml" -Dmaven.repo.local="$work/m2" dependency:copy-dependencies -DoutputDirectory="$work/jars" &&
		javac -nowarn -cp "$work/jars/*" -d "$work/classes" "$here"/java/*.java
}
test_java() {
	(cd "$work/jars" && ls jedis-*.jar lettuce-core-*.jar | sed 's/^/  /; s/\.jar$//')
	java -cp "$work/classes:$work/jars/*" Suite
}

# modes COMMAND…: the command for single nodes, by Sentinel and in cluster mode.
modes() {
	local bad=0
	"$@" single || bad=1
	[ "$HOLDFAST_TARGET" = redis ] && return "$bad"
	"$here/cluster.sh" start && "$@" sentinel || bad=1
	"$here/cluster.sh" stop
	export HOLDFAST_FLAGS=--cluster-mode
	"$here/cluster.sh" start && "$@" cluster || bad=1
	"$here/cluster.sh" stop
	return "$bad"
}

install_discovery() { install_go && { [ -d "$work/venv" ] || install_python; } && { [ -d "$work/node" ] || install_node; }; }
# discover MODE: clients of three languages find the leader, and find the next one after a kill.
discover() {
	[ "$1" = single ] && return
	local bad=0
	"$work/go-suite" discovery "$1" 2>/dev/null || bad=1
	"$work/venv/bin/python" "$here/python/discovery.py" "$1" || bad=1
	(cd "$work/node" && node discovery.mjs "$1") || bad=1
	return "$bad"
}
test_discovery() { modes discover; }

install_java_pushed() { [ -d "$work/classes" ] || install_java; }
test_java_pushed() { modes java -Xmx512m -XX:+UseSerialGC -cp "$work/classes:$work/jars/*" Pushed; }

install_redisson() {
	mvn -q -B -f "$here/java/redisson/pom.xml" -Dmaven.repo.local="$work/m2" dependency:copy-dependencies -DoutputDirectory="$work/redisson-jars" &&
		javac -nowarn -cp "$work/redisson-jars/*" -d "$work/redisson" "$here"/java/redisson/*.java
}
redisson() { java -Xmx512m -XX:+UseSerialGC -cp "$work/redisson:$work/redisson-jars/*" RedissonSuite "$@"; }
test_redisson() {
	local bad=0
	if [ "${CLIENTS:-}" = few ]; then
		redisson single # each client at a node of its own; the other modes differ in how they find the leader
		return
	fi
	[ "$HOLDFAST_TARGET" = redis ] || redisson replicated || bad=1
	"$here/cluster.sh" start && modes redisson && return "$bad"
}

install_exporter() { cd "$here/exporter" && go build -o "$work/redis_exporter" github.com/oliver006/redis_exporter; }
test_exporter() { [ "$HOLDFAST_TARGET" = redis ] || EXPORTER=$work/redis_exporter "$here/exporter/suite.sh"; }

install_connect() { install_discovery && { [ -d "$work/classes" ] || install_java; } && { [ -d "$work/redisson" ] || install_redisson; }; }
# The snippets of CONNECT.md have the addresses of the page, for which a network namespace is needed.
test_connect() {
	if [ "$HOLDFAST_TARGET" = redis ] || [ -z "${CLIENTS_APART:-}" ]; then
		echo "  skip  all of it: it wants Holdfast, and a network namespace"
		return
	fi
	"$here/connect.sh"
}

# install fetches and builds what the suites need, and leaves a line for each in $work/installed. The exit status 3 of an
# install_NAME skips the suite: its last line says why.
install() {
	local name lacks
	[ -n "${HOLDFAST_BIN:-}" ] || (cd "$here/../.." && go build -o "$work/holdfast" ./cmd/holdfast)
	(cd "$here/go" && go build -o "$HOLDFAST_STANDIN" ./standin)
	mkdir -p "$HOLDFAST_STATE" "$work/results"
	rm -rf "${HOLDFAST_STATE:?}"/* "$work"/results/*
	for name in $wanted; do
		# shellcheck disable=SC2046
		lacks=$(missing $(programs "$name"))
		if [ -n "$lacks" ]; then
			echo "$name skip $lacks is not installed"
		elif [ -e "$work/ready-$name" ]; then
			echo "$name ready"
		elif ("install_$name" >"$work/install-$name.log" 2>&1); then
			touch "$work/ready-$name"
			echo "$name ready"
		elif [ $? = 3 ]; then
			echo "$name skip $(tail -1 "$work/install-$name.log")"
		else
			tail -20 "$work/install-$name.log" >&2
			echo "$name failed"
		fi
	done >"$work/installed"
}

# takes_locks: suite $1 takes locks by Redis's own commands, which the nodes must see as such.
takes_locks() {
	case $1 in
	go | python | node | java | bridge_* | redislock | redsync | rueidislock | python_redis_lock | rslock | semaphore | redisson | locks_*) true ;;
	*) false ;;
	esac
}

# fresh: the nodes count since their start, with what they read from the log then. A suite that takes locks has new nodes.
fresh() {
	takes_locks "$1" || return 0
	"$here/cluster.sh" stop
	"$here/cluster.sh" stock >/dev/null
	rm -rf "${HOLDFAST_STATE:?}"/n[0-2]
}

# seen reports whether the nodes have seen the stock locks of suite $1.
seen() {
	local count
	{ [ "$HOLDFAST_TARGET" != redis ] && takes_locks "$1"; } || return 0
	count=$("$here/cluster.sh" stock)
	echo "  stock locks seen: $count"
	[ "$count" -gt 0 ]
}

# run tests what is installed, suite by suite, on nodes that all run.
run() {
	local name how why started passed=() failed=() skipped=()
	trap '"$here/cluster.sh" stop' EXIT
	while read -r name how why <&4; do
		started=$SECONDS
		echo "=== $name"
		if [ "$how" = skip ]; then
			echo "  skip  all of it: $why"
			skipped+=("$name ($why)")
		elif [ "$how" = failed ]; then
			failed+=("$name (could not be installed)")
		elif fresh "$name" && "$here/cluster.sh" start && ("test_$name") && seen "$name"; then
			passed+=("$name")
		else
			failed+=("$name")
		fi
		echo "  took $((SECONDS - started)) s"
	done 4<"$work/installed"
	echo "=== $SECONDS s; passed: ${passed[*]:-none}; failed: ${failed[*]:-none}; skipped: ${skipped[*]:-none}"
	[ ${#failed[@]} = 0 ]
}

clean_up() {
	"$here/cluster.sh" stop
	chmod -R u+w "$work" 2>/dev/null || true # Go's module cache is read-only
	[ -n "${CLIENTS_KEEP:-}" ] || rm -rf "$work"
}

if [ -n "${CLIENTS_WORK:-}" ]; then
	if [ -n "${CLIENTS_APART:-}" ]; then
		ip link set lo up
		# redsync's servers listen here, within the system's range for ports of connections.
		echo 51200-51299 2>/dev/null >/proc/sys/net/ipv4/ip_local_reserved_ports || true
	fi
	run
	exit
fi
trap clean_up EXIT
trap 'exit 130' INT TERM
install
echo "installed in $SECONDS s"
export HOLDFAST_BIN=${HOLDFAST_BIN:-$work/holdfast} CLIENTS_WORK=$work CLIENTS_WANTED=$wanted
for apart in 'unshare -n -p -f --mount-proc' 'unshare -r -n -p -f --mount-proc'; do
	if $apart ip link set lo up 2>/dev/null; then
		CLIENTS_APART=1 $apart "$here/run.sh"
		exit
	fi
done
"$here/run.sh"
