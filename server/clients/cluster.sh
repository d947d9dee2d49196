#!/usr/bin/env bash
# What the suites talk to: three Holdfast nodes on this machine, or one redis-server.
#   cluster.sh start        start the nodes that are not running, wait until all serve
#   cluster.sh kill-leader  kill -9 the leader and print the address it had
#   cluster.sh stop         kill all
#   cluster.sh stock        print how many stock locks the nodes have counted since the last call
# HOLDFAST_BIN is the binary, HOLDFAST_STATE a folder for data, logs and pids, HOLDFAST_PORT the first
# port for clients (18101; peers have ports from 18111, Sentinel's clients from 18121, monitoring from 18131),
# HOLDFAST_FLAGS one more flag. HOLDFAST_TARGET=redis starts HOLDFAST_REDIS, a real redis-server, and two stand-ins
# for it (HOLDFAST_STANDIN); kill-leader kills a stand-in.
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

# node prints the command of node $1, one word a line.
node() {
	if [ "${HOLDFAST_TARGET:-}" != redis ]; then
		printf '%s\n' "$HOLDFAST_BIN" serve --name "n$1" --addr "$(address "$1")" --peer-addr "$(peer "$1")" \
			--data-dir "$state/n$1" --log-level warn --sentinel-addr "127.0.0.1:$((port + 20 + $1))" \
			--http-addr "127.0.0.1:$((port + 30 + $1))" ${HOLDFAST_FLAGS:+"$HOLDFAST_FLAGS"} \
			--initial-cluster "n0=$(peer 0),n1=$(peer 1),n2=$(peer 2)"
	elif [ "$1" = 0 ]; then
		printf '%s\n' "$HOLDFAST_REDIS" --port "$port" --save '' --dir "$state" --loglevel warning
	else
		printf '%s\n' env "HOLDFAST_NODES=$(address 0)" "$HOLDFAST_STANDIN" "$(address "$1")"
	fi
}

start() {
	local i words deadline=$((SECONDS + 30))
	for i in 0 1 2; do
		running "$i" && continue
		mapfile -t words < <(node "$i")
		"${words[@]}" >>"$state/n$i.log" 2>&1 3>&- &
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

leads() {
	local role
	role=$(ask "$1" 'INFO replication' | grep '^role:' || true)
	[ "$role" = role:master ]
}

# counted prints the stock locks that node $1 has counted since its start. Each node counts those of all nodes' clients.
counted() {
	local line sum=0
	exec 3<>"/dev/tcp/127.0.0.1/$((port + 30 + $1))" || return 1
	printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
	while IFS= read -r -t 5 line <&3; do
		case $line in holdfast_lock_class_grants_total{*stock*) sum=$((sum + ${line##* })) ;; esac
	done
	exec 3>&-
	echo "$sum"
}

# note keeps what node $1 has counted, before the node is killed.
note() { [ "${HOLDFAST_TARGET:-}" = redis ] || counted "$1" >>"$state/stock" 2>/dev/null || true; }

# stock prints the most that one node has counted in a life, with the lives that were killed.
stock() {
	local i most
	for i in 0 1 2; do ! running "$i" || note "$i"; done
	most=$(sort -n "$state/stock" 2>/dev/null | tail -1)
	rm -f "$state/stock"
	echo "${most:-0}"
}

kill_leader() {
	local i
	for i in 2 1 0; do
		if running "$i" && leads "$i"; then
			note "$i"
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
		if running "$i"; then
			note "$i"
			kill -9 "$(cat "$state/n$i.pid")" || true
		fi
		rm -f "$state/n$i.pid"
	done
}

case ${1:-} in
start) start ;;
kill-leader) kill_leader ;;
stop) stop ;;
stock) stock ;;
*)
	sed -n '2,11s/^# //p' "$0"
	exit 2
	;;
esac
