# Suites of others, unmodified, as their published packages carry them; run.sh reads this file.
# Each leaves a line PASS, FAIL or SKIP for each test in $work/results, and judge compares these with
# expected.txt, which says for each test that does not pass why.

# flush empties the cluster.
flush() {
	local reply
	exec 3<>"/dev/tcp/127.0.0.1/$HOLDFAST_PORT"
	printf 'FLUSHALL\r\n' >&3
	IFS= read -r -t 10 reply <&3
	exec 3>&-
	[[ $reply == +OK* ]]
}

# front passes connections at these addresses on to all nodes until the suite ends.
front() {
	"$HOLDFAST_STANDIN" "$@" 3>&- 4<&- &
	# shellcheck disable=SC2064
	trap "kill $!" EXIT
	local i port=${1##*:}
	for i in {1..50}; do
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return
		sleep 0.1
	done
	echo "  nothing listens at $1"
	return 1
}

# standing puts a redis-server into PATH that is a stand-in for the cluster.
standing() {
	mkdir -p "$work/bin"
	ln -sf "$HOLDFAST_STANDIN" "$work/bin/redis-server"
	export PATH=$work/bin:$PATH
}

# strike kills the leader and starts it again.
strike() {
	echo "  killed the leader, $($HOLDFAST_KILL), after $1 tests"
	sleep 2
	$HOLDFAST_START
}

# results NAME [PREFIX] reads what a test runner says and appends a line for each test to the results
# of NAME. After $kill_after tests it kills the leader.
results() {
	local line found='' tests=0 striking=
	local go='^--- (PASS|FAIL|SKIP): ([^ ]+)' pytest='^([^ ]+::.*[^ ]) (PASSED|FAILED|SKIPPED|ERROR|XFAIL)' cargo='^test (.*) \.\.\. (ok|FAILED|ignored)'
	while IFS= read -r line; do
		printf '%s\n' "$line" >>"$work/results/$1.log"
		if [[ $line =~ $go ]]; then
			found="${BASH_REMATCH[1]} ${2:-}${BASH_REMATCH[2]}"
		elif [[ $line =~ $pytest || $line =~ $cargo ]]; then
			found="${BASH_REMATCH[2]} ${2:-}${BASH_REMATCH[1]}"
		else
			continue
		fi
		case $found in
		PASSED\ * | ok\ * | XFAIL\ *) found="PASS ${found#* }" ;;
		FAILED\ * | ERROR\ *) found="FAIL ${found#* }" ;;
		SKIPPED\ * | ignored\ *) found="SKIP ${found#* }" ;;
		esac
		printf '%s\n' "$found" >>"$work/results/$1"
		tests=$((tests + 1))
		if [ "$tests" = "${kill_after:-}" ]; then
			strike "$tests" 4<&- &
			striking=$!
		fi
	done
	[ -z "$striking" ] || wait "$striking"
}

# broken NAME: the runner of NAME has ended before its time.
broken() { grep -q -e '^INTERNALERROR' -e '^panic: ' "$work/results/$1.log"; }

# judge NAME: the failures in the results of NAME are those that expected.txt names.
judge() {
	local file=$work/results/$1 known unknown gone counts
	touch "$file"
	counts=$(awk '{ n[$1]++ } END { printf "%d of %d pass, %d skipped", n["PASS"], n["PASS"] + n["FAIL"], n["SKIP"] }' "$file")
	known=$(awk -v suite="$1" -v target="$HOLDFAST_TARGET" '$1 == suite && ($2 == "both" || $2 == target) { print $3 }' "$here/expected.txt" | sort)
	unknown=$(comm -23 <(sed -n 's/^FAIL //p' "$file" | sort -u) <(echo "$known"))
	gone=$(comm -13 <(sed -n 's/^FAIL //p' "$file" | sort -u) <(echo "$known") | sed '/^$/d')
	echo "  $1: $counts"
	[ -z "$gone" ] || echo "$gone" | sed 's/^/  passes or did not run, although expected.txt names it: /'
	if [ -n "$unknown" ] || broken "$1" || ! grep -q ^PASS "$file"; then
		echo "$unknown" | sed 's/^/  FAIL  /'
		grep -v -e '^=== ' -e '^--- PASS' -e ' PASSED' "$work/results/$1.log" | tail -n "${CLIENTS_LINES:-60}"
		return 1
	fi
}

# module NAME PATH@VERSION copies the source of a Go module into the folder NAME.
module() {
	local folder
	folder=$(cd "$here/go" && go mod download -json "$2" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')
	cp -r "$folder" "$work/$1" && chmod -R u+w "$work/$1"
}

# go_tests NAME FOLDER FLAGS… runs the test binary of NAME in its package's folder.
go_tests() {
	local name=$1 folder=$work/$2
	shift 2
	(cd "$folder" && "$work/$name.test" -test.v -test.timeout 5m "$@" 2>&1 || true)
}

install_redsync() { module redsync github.com/go-redsync/redsync/v4@v4.18.1 && cd "$work/redsync" && go test -c -o "$work/redsync.test" .; }
# Each driver has eight servers of its own, so eight databases serve one driver after another.
test_redsync() {
	local driver drivers='redigo goredis_v9 rueidis'
	[ "${CLIENTS:-}" != all ] || drivers="$drivers goredis goredis_v7 goredis_v8"
	standing
	export HOLDFAST_DATABASES=8
	for driver in $drivers; do
		flush
		go_tests redsync redsync -test.run "/^$driver\$" | results redsync "$driver/"
	done
	judge redsync
}

install_redislock() { module redislock github.com/bsm/redislock@v0.9.4 && cd "$work/redislock" && go test -c -o "$work/redislock.test" .; }
test_redislock() {
	front 127.0.0.1:6379
	go_tests redislock redislock | results redislock
	judge redislock
}

install_asynq() { module asynq github.com/hibiken/asynq@v0.26.0 && cd "$work/asynq" && go test -c -o "$work/asynq.test" ./internal/rdb; }
test_asynq() {
	front 127.0.0.1:6379
	go_tests asynq asynq/internal/rdb | results asynq
	judge asynq
}

# judge_killed NAME AGAIN…: in the results of NAME, whose leader was killed, a test or two may fail that the
# kill struck. AGAIN, with a pattern of their names, runs these again, and they must pass. If such a test
# took its runner along, by a panic, all run again.
judge_killed() {
	local name=$1 struck pattern
	shift
	struck=$(sed -n 's/^FAIL //p' "$work/results/$name" | sort -u)
	echo "  $name: $(grep -c ^PASS "$work/results/$name") pass, $(echo "$struck" | grep -c .) struck by the kill" $struck
	pattern=$(echo "$struck" | sed 's|.*[/:]||; s/\[.*//' | sort -u | paste -sd '|')
	if [ "$(echo "$struck" | wc -l)" -gt 4 ]; then
		tail -n "${CLIENTS_LINES:-60}" "$work/results/$name.log"
		return 1
	elif broken "$name"; then
		echo "  $name: the runner ended with the test, all run again"
		pattern=[tT]est
	elif [ -z "$struck" ]; then
		return 0
	fi
	sleep 1 # stand-ins of a runner that has ended end by then
	"$@" "$pattern" | results "${name}_again"
	judge "${name}_again"
}

redsync_v9() { HOLDFAST_DATABASES=8 go_tests redsync redsync -test.run "($1)/^goredis_v9\$"; }
asynq_rdb() { go_tests asynq asynq/internal/rdb -test.run "($1)"; }
redis_py_locks() { py_tests redis-py tests/test_lock.py tests/test_asyncio/test_lock.py -k "$(echo "$1" | sed 's/\[tT\]/t/; s/|/ or /g')"; }

install_killed() {
	local name
	for name in redsync asynq redis_py; do
		[ -e "$work/ready-$name" ] || { ("install_$name") && touch "$work/ready-$name"; } || return
	done
}
# Suites of others whose leader is killed half-way, and started again.
test_killed() {
	local bad=0
	standing
	flush
	redsync_v9 '[tT]est' | kill_after=7 results redsync_killed
	judge_killed redsync_killed redsync_v9 || bad=1
	front 127.0.0.1:6379
	asynq_rdb '[tT]est' | kill_after=54 results asynq_killed
	judge_killed asynq_killed asynq_rdb || bad=1
	redis_py_locks '[tT]est' | kill_after=46 results redis_py_killed
	judge_killed redis_py_killed redis_py_locks || bad=1
	return "$bad"
}

install_rueidis() { module rueidis github.com/redis/rueidis@v1.0.79 && cd "$work/rueidis" && go test -c -o "$work/rueidis.test" .; }
# TestSingleClientIntegration has streams. The test that rueidis has for Kvrocks, at that server's address, has the
# same parts otherwise, but caches: suite pushed has these. What ends a wait by CLIENT UNBLOCK is at one node, which
# alone knows the client.
test_rueidis() {
	(front 127.0.0.1:6379 127.0.0.1:6666 && go_tests rueidis rueidis -test.run '^(TestKvrocksSingleClientIntegration|TestNegative)') | results rueidis
	(HOLDFAST_NODES=${HOLDFAST_NODES%%,*} && front 127.0.0.1:6379 && go_tests rueidis rueidis -test.run '^TestUnblockOnCancel') | results rueidis
	judge rueidis
}

install_rueidislock() { module rueidislock github.com/redis/rueidis@v1.0.79 && cd "$work/rueidislock" && go test -c -o "$work/rueidislock.test" ./rueidislock; }
test_rueidislock() {
	front 127.0.0.1:6379
	# The default leaves out the five tests that take two minutes of the three.
	local part=(-test.skip 'MultipleLocker|AutoExtend|CancelContext')
	[ "${CLIENTS:-}" != all ] || part=()
	go_tests rueidislock rueidislock/rueidislock "${part[@]}" | results rueidislock
	judge rueidislock
}

# sdist NAME PACKAGE==VERSION unpacks the source that a package was published as into the folder NAME.
sdist() {
	mkdir -p "$work/sdists" "$work/$1"
	"$work/others/bin/pip" download --quiet --disable-pip-version-check --cache-dir "$work/pip" --no-deps --no-binary :all: -d "$work/sdists" "$2" &&
		tar xzf "$work"/sdists/"$(echo "${2%%==*}" | tr - _)"-*.tar.gz -C "$work/$1" --strip-components=1
}

others() { [ -d "$work/others" ] || environment others "$here/python/others.txt"; }

# py_tests FOLDER WORDS… runs pytest in a folder, with what others.txt installed.
py_tests() {
	local folder=$work/$1
	shift
	(cd "$folder" && "$work/others/bin/python" -m pytest -v -rN --tb=short -p no:cacheprovider "$@" 2>&1 || true)
}

install_redis_py() { others && sdist redis-py redis==8.1.0; }
test_redis_py() {
	front 127.0.0.1:6379
	py_tests redis-py tests/test_lock.py tests/test_asyncio/test_lock.py | results redis_py
	judge redis_py
}

install_redis_py_more() { others && { [ -d "$work/redis-py" ] || sdist redis-py redis==8.1.0; }; }
# Of the commands, those without users, streams, places on a map and what else Holdfast has not; and without
# a local digest, for which the test itself lacks an encoding.
redis_py_words='not acl and not xadd and not xread and not xgroup and not xinfo and not xpending and not xclaim and not xautoclaim
	and not xrange and not xlen and not xtrim and not xdel and not xack and not xcfgset and not xrevrange and not stream
	and not geo and not pf and not function and not vset and not hexpire and not module and not local_digest'
redis_py_words=$(echo $redis_py_words)
# At one node: the tests expect that PUBLISH counts subscribers of other connections.
test_redis_py_more() {
	HOLDFAST_NODES=${HOLDFAST_NODES%%,*}
	front 127.0.0.1:6379
	py_tests redis-py tests/test_{scripting,pipeline,pubsub,keyspace_notifications,monitor,cache,encoding,commands}.py \
		-m 'not onlycluster and not redismod' -k "$redis_py_words" | results redis_py_more
	judge redis_py_more
}

install_python_redis_lock() { others && sdist python-redis-lock python-redis-lock==4.0.1; }
test_python_redis_lock() {
	standing
	export PATH=$work/others/bin:$PATH PYTHONPATH=$work/python-redis-lock/tests:$work/python-redis-lock/src DJANGO_SETTINGS_MODULE=test_project.settings PYTHONUNBUFFERED=yes
	# The default is one kind of thread and of replies.
	local part=(-k 'not gevent and not eventlet and not False')
	[ "${CLIENTS:-}" != all ] || part=()
	py_tests python-redis-lock -p no:asyncio --durations 12 "${part[@]}" | results python_redis_lock
	judge python_redis_lock
}

# The harness of rslock starts servers in containers; a crate that starts processes takes the place of testcontainers.
rslock_tests() {
	(cd "$work/rslock" && CARGO_HOME=$work/cargo cargo test --config "patch.crates-io.testcontainers.path='$here/rust/testcontainers'" --lib --features tokio-comp "$@" 2>&1)
}

install_rslock() {
	export CARGO_HOME=$work/cargo
	cargo new --quiet --lib "$work/fetch" && cd "$work/fetch" && cargo add --quiet rslock@=0.10.0 && cargo fetch --quiet &&
		cp -r "$CARGO_HOME"/registry/src/*/rslock-0.10.0 "$work/rslock" && rslock_tests --no-run
}
test_rslock() {
	standing
	(rslock_tests --offline -- --test-threads 4 || true) | results rslock
	judge rslock
}

# Redis's own tests are in the source of the system's package.
install_redis_acl() {
	local apt=$work/apt list
	mkdir -p "$apt"/{parts,lists/partial,cache/archives/partial}
	for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
		[ ! -f "$list" ] || sed 's/^deb /deb-src /; s/^Types:.*/Types: deb-src/' "$list" >"$apt/parts/${list##*/}"
	done
	set -- -qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$apt/parts" -o Dir::State::Lists="$apt/lists" \
		-o Dir::Cache="$apt/cache" -o APT::Sandbox::User="$(id -un)"
	cd "$apt" && apt-get "$@" update && apt-get "$@" source redis >/dev/null && mv redis-*/ "$work/redis-source"
}
test_redis_acl() {
	[ "$HOLDFAST_TARGET" != redis ] || ln -sf "$HOLDFAST_REDIS" "$work/redis-source/src/redis-server"
	(cd "$work/redis-source" && tclsh "$here/redis_acl.tcl" unit/acl unit/acl-v2 2>&1 || true) | results redis_acl
	judge redis_acl
}
