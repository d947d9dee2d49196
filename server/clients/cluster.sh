#!/usr/bin/env bash
# Three Holdfast nodes on this machine, for the suites:
#   cluster.sh start        start the nodes that are not running, wait until all serve
#   cluster.sh kill-leader  kill -9 the leader and print the address it had
#   cluster.sh stop         kill all
# HOLDFAST_BIN is the binary, HOLDFAST_STATE a folder for data, logs and pids,
# HOLDFAST_PORT the first of six ports (18101).
set -euo pipefail

port=${HOLDFAST_PORT:-18101}
state=${HOLDFAST_STATE:?}

address() { echo "127.0.0.1:$((port + $1))"; }
peer() { echo "127.0.0.1:$((port + 10 + $1))"; }

running() {
	[ -f "$state/n$1.pid" ] && kill -0 "$(cat "$state/n$1.pid")" 2>/dev/null
}

# ask sends one inline command to node $1 and prints what comes within a second.
ask() {
	local line
	exec 3<>"/dev/tcp/127.0.0.1/$((port + $1))" || return 1
	printf '%s\r\nQUIT\r\n' "$2" >&3
	while IFS= read -r -t 1 line <&3; do printf '%s\n' "${line%$'\r'}"; done
	exec 3>&-
}

# serves: a linearizable read is answered, so that the node knows a leader that has a majority.
serves() { ask "$1" DBSIZE 2>/dev/null | grep -q '^:'; }

start() {
	local i deadline=$((SECONDS + 30))
	for i in 0 1 2; do
		running "$i" && continue
		"$HOLDFAST_BIN" serve --name "n$i" --addr "$(address "$i")" --peer-addr "$(peer "$i")" \
			--data-dir "$state/n$i" --log-level warn \
			--initial-cluster "n0=$(peer 0),n1=$(peer 1),n2=$(peer 2)" \
			>>"$state/n$i.log" 2>&1 3>&- &
		echo $! >"$state/n$i.pid"
	done
	for i in 0 1 2; do
		until serves "$i"; do
			if ! running "$i" || [ "$SECONDS" -ge "$deadline" ]; then
				echo "node n$i does not serve; its log ends with:" >&2
				tail -5 "$state/n$i.log" >&2
				return 1
			fi
			sleep 0.1
		done
	done
}

kill_leader() {
	local i leader
	for i in 0 1 2; do
		running "$i" || continue
		leader=$(ask "$i" 'INFO replication' | grep '^role:' || true)
		if [ "$leader" = role:master ]; then
			kill -9 "$(cat "$state/n$i.pid")"
			rm "$state/n$i.pid"
			address "$i"
			return 0
		fi
	done
	echo "no node leads" >&2
	return 1
}

stop() {
	local i
	for i in 0 1 2; do
		if running "$i"; then kill -9 "$(cat "$state/n$i.pid")" || true; fi
		rm -f "$state/n$i.pid"
	done
}

case ${1:-} in
start) start ;;
kill-leader) kill_leader ;;
stop) stop ;;
*)
	sed -n '2,7s/^# //p' "$0"
	exit 2
	;;
esac
