# shellcheck shell=bash disable=SC2154
# Lock libraries by their own calls: never more inside than the lock allows, over a kill -9 of the leader. Sourced by run.sh.
#
# Each language has a program. Without a word it prints the names of its cases. With a name it prints the kind of the case
# and starts six workers, two at each node, which ask the library for the lock again and again:
#   locks N            at most N hold a lock
#   rate N             nobody releases: the program ends once each worker is refused, after N grants
#   + WORKER SECTION   the worker has the lock of the section
#   - WORKER SECTION   the worker is about to release it
# A pipe keeps the order of lines, also of several processes. A case of housekeeping prints what it did, and no kind: its
# exit status counts.

# exclude PROGRAM…: every case of the program.
exclude() {
	local name names bad=0
	names=$("$@") || return
	for name in $names; do contend "$name" "$@" || bad=1; done
	return "$bad"
}

# contend CASE PROGRAM…: the leader is killed after 60 grants, and started again 2 s later. The case ends when each worker
# has been granted three more locks, for which it has three minutes.
contend() {
	local name=$1 kind='' limit=0 grants=0 killed='' starting='' fault='' text='' log=$HOLDFAST_STATE/exclusive.log
	local pid status sign worker section started=$SECONDS
	local -A inside=() served=()
	shift
	exec 5< <(exec setsid "$@" "$name" 2>"$log" 3>&- 4<&-) # a process group, which ends as one
	pid=$!
	while [ -z "$fault" ]; do
		status=0
		read -r -t 60 sign worker section <&5 || status=$?
		if [ "$status" -gt 128 ] || [ $((SECONDS - started)) -gt 180 ]; then
			fault="workers wait; granted since the kill: ${served[*]}"
		elif [ "$status" != 0 ]; then
			wait "$pid" || fault="exit status $?"
			# The kill may take the reply of a grant, and the client asks again.
			[ "$kind" != rate ] || [ $((inside[job] * 10)) -ge $((limit * 9)) ] || fault='refused before the limit'
			[ "$kind" != locks ] || fault='ended by itself'
			break
		elif [ "$sign" = locks ] || [ "$sign" = rate ]; then
			kind=$sign limit=$worker
		elif [ "$sign" = - ]; then
			inside[$section]=$((inside[$section] - 1))
		elif [ "$sign" != + ]; then
			text="$sign $worker $section"
		elif inside[$section]=$((${inside[$section]:-0} + 1)) && [ "${inside[$section]}" -gt "$limit" ]; then
			fault="${inside[$section]} inside $section at once"
		elif [ $((grants += 1)) = 60 ]; then
			killed=$($HOLDFAST_KILL)
			(sleep 2 && $HOLDFAST_START) 5<&- &
			starting=$!
		elif [ -n "$killed" ] && [ "$kind" = locks ]; then
			served[$worker]=$((${served[$worker]:-0} + 1))
			[ ${#served[@]} -lt 6 ] || [[ " ${served[*]} " == *" "[12]" "* ]] || break
		fi
	done
	kill -9 -- "-$pid" 2>/dev/null || true
	exec 5<&-
	[ -z "$starting" ] || wait "$starting" || fault="$killed does not start again"
	[ -z "$kind" ] || text="$grants grants, $kind $limit, $killed killed"
	if [ -n "$fault" ]; then
		echo "  FAIL  $name: $fault; $text"
		tail -n 20 "$log"
		return 1
	fi
	echo "  ok    $name: $text, $((SECONDS - started)) s"
}

install_locks_python() { environment locks "$here/python/locks.txt" && environment tasktiger "$here/python/tasktiger.txt"; }
test_locks_python() {
	local bad=0
	exclude "$work/locks/bin/python" "$here/python/locks.py" || bad=1
	exclude "$work/tasktiger/bin/python" "$here/python/locks.py" && return "$bad"
}

install_locks_node() { [ -d "$work/node" ] || install_node; }
test_locks_node() { cp "$here/node/locks.mjs" "$work/node/" && cd "$work/node" && exclude node locks.mjs; }

install_locks_java() {
	mvn -q -B -f "$here/java/locks/pom.xml" -Dmaven.repo.local="$work/m2" dependency:copy-dependencies -DoutputDirectory="$work/locks-jars" &&
		javac -nowarn -cp "$work/locks-jars/*" -d "$work/locks-classes" "$here"/java/locks/*.java
}
test_locks_java() { exclude java -Xmx512m -XX:+UseSerialGC -cp "$work/locks-classes:$work/locks-jars/*" Locks; }

# Debian's packages: php-cli, php-redis and php-symfony-lock.
install_locks_php() { php "$here/php/locks.php" || { echo "php lacks the extensions redis and pcntl, or symfony/lock" && return 3; }; }
test_locks_php() { exclude php "$here/php/locks.php"; }

install_locks_ruby() {
	GEM_HOME=$work/gems gem install --no-document --conservative redlock:2.0.6 sidekiq:7.3.9 sidekiq-unique-jobs:8.1.0 ||
		{ echo "gem cannot fetch redlock and sidekiq-unique-jobs" && return 3; }
}
test_locks_ruby() { GEM_HOME=$work/gems exclude ruby "$here/ruby/locks.rb"; }
