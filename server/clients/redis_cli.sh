#!/usr/bin/env bash
# redis-cli and redis-benchmark against three nodes of Holdfast.
# HOLDFAST_NODES (host:port,...) and HOLDFAST_KILL as for the other suites.
set -euo pipefail

IFS=, read -r -a nodes <<<"$HOLDFAST_NODES"
release="if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
failures=0
echo "  $(redis-cli --version)"

cli() { # cli NODE WORDS...: without colours and hints, as a pipe sees it
	local node=$1
	shift
	redis-cli -h "${node%:*}" -p "${node#*:}" "$@" 2>&1
}

is() { # is NAME EXPECTED FOUND
	if [ "$2" = "$3" ]; then
		echo "  ok    $1"
	else
		failures=$((failures + 1))
		echo "  FAIL  $1: found '$3', expected '$2'"
	fi
}

commands() { # commands NODE OTHER PROTOCOL
	local p=$3 key="cli:$1:$3"
	is "redis-cli $p on $1: acquire" OK "$(cli "$1" "$p" SET "$key" token NX PX 30000)"
	is "redis-cli $p on $1: second acquire" '' "$(cli "$2" "$p" SET "$key" other NX PX 30000)"
	is "redis-cli $p on $1: stranger's release" 0 "$(cli "$2" "$p" EVAL "$release" 1 "$key" other)"
	is "redis-cli $p on $1: extend" 1 "$(cli "$1" "$p" PEXPIRE "$key" 60000)"
	is "redis-cli $p on $1: release" 1 "$(cli "$2" "$p" EVALSHA "$(cli "$1" "$p" SCRIPT LOAD "$release")" 1 "$key" token)"
	is "redis-cli $p on $1: another database" 1 "$(printf 'SET %s x PX 60000\nDBSIZE\nFLUSHDB\n' "$key" | cli "$1" "$p" -n 9 | sed -n 2p)"
	is "redis-cli $p on $1: transaction" '1' "$(printf 'WATCH %s\nMULTI\nINCR %s\nEXEC\n' "$key" "$key" | cli "$2" "$p" | tail -1)"
	is "redis-cli $p on $1: wrong type" 'ERR value is not an integer or out of range' \
		"$(printf 'SET %s text\nINCR %s\nDEL %s\n' "$key" "$key" "$key" | cli "$1" "$p" | sed -n 2p)"
	is "redis-cli $p on $1: unknown command" "ERR unknown command 'nosuch', with args beginning with: 'x' " "$(cli "$1" "$p" nosuch x | sed '/^$/d')"
	is "redis-cli $p on $1: pipe mode" 'errors: 0, replies: 1000' \
		"$(for ((i = 0; i < 1000; i++)); do printf 'INCR %s\r\n' "$key"; done | cli "$1" --pipe | tail -1)"
	is "redis-cli $p on $1: after the pipe" 1000 "$(cli "$2" "$p" GETDEL "$key")"
}

# looks NODE: what people look at a node with. The keys are those of five kinds.
looks() {
	local node=$1 out
	cli "$node" -n 8 FLUSHDB >/dev/null
	printf 'SET str v\nRPUSH list a b c\nHSET hash f v g w\nSADD set x y\nZADD zset 1 m\n' | cli "$node" -n 8 >/dev/null
	out=$(cli "$node" -n 8 --bigkeys)
	is "redis-cli --bigkeys on $node" 'Sampled 5 keys in the keyspace!' "$(grep Sampled <<<"$out")"
	is "redis-cli --bigkeys on $node: the list" '1 lists with 3 items' "$(grep -o '1 lists with 3 items' <<<"$out")"
	is "redis-cli --memkeys on $node" 5 "$(cli "$node" -n 8 --memkeys | grep -c '^1 .* with [1-9][0-9]* bytes')"
	is "redis-cli --scan on $node" 'hash list set str zset ' "$(cli "$node" -n 8 --scan | sort | tr '\n' ' ')"
	is "redis-cli --scan --pattern on $node" 'set str ' "$(cli "$node" -n 8 --scan --pattern 's*' | sort | tr '\n' ' ')"
	is "redis-cli --latency on $node" 4 "$(timeout 1 redis-cli -h "${node%:*}" -p "${node#*:}" --raw --latency -i 0.3 | wc -w)"
	is "redis-cli --stat on $node" 2 "$(timeout 1 stdbuf -oL redis-cli -h "${node%:*}" -p "${node#*:}" --stat -i 0.2 | head -2 | wc -l)"
	is "SLOWLOG on $node" 'slowlog-max-len' "$(cli "$node" CONFIG SET slowlog-log-slower-than 0 >/dev/null && cli "$node" CONFIG GET slowlog-max-len >/dev/null && cli "$node" --raw SLOWLOG GET 1 | grep slowlog-max)"
	is "SLOWLOG RESET on $node" OK "$(cli "$node" CONFIG SET slowlog-log-slower-than 10000 >/dev/null && cli "$node" SLOWLOG RESET)"
	is "LATENCY HISTOGRAM on $node" 'slowlog|get' "$(cli "$node" LATENCY HISTOGRAM slowlog | grep 'slowlog|get')"
	is "MODULE LIST on $node" lock "$(cli "$node" MODULE LIST | sed -n 2p)"
	is "MEMORY USAGE on $node" 0 "$(($(cli "$node" -n 8 MEMORY USAGE hash) < 64))"
	cli "$node" -n 8 FLUSHDB >/dev/null
}

for node in "${nodes[@]}"; do looks "$node"; done

for i in "${!nodes[@]}"; do
	other=${nodes[$(((i + 1) % ${#nodes[@]}))]}
	commands "${nodes[i]}" "$other" -2
	commands "${nodes[i]}" "$other" -3
	cli "${nodes[i]}" SET "cli:held:$i" token NX PX 120000 >/dev/null
done

if command -v redis-benchmark >/dev/null; then
	for node in "${nodes[@]}"; do
		if out=$(redis-benchmark -h "${node%:*}" -p "${node#*:}" -t set,get,incr -P 16 -n 20000 -q 2>&1); then
			is "redis-benchmark -t set,get,incr -P 16 on $node" 3 "$(tr '\r' '\n' <<<"$out" | grep -c 'requests per second')"
			is "redis-benchmark on $node says nothing else" '' "$(tr '\r' '\n' <<<"$out" | grep -i error || true)"
		else
			is "redis-benchmark on $node" 'exit 0' "$out"
		fi
	done
else
	echo "  skip  redis-benchmark: not installed (package redis-tools)"
fi

fence=$(cli "${nodes[0]}" INCR cli:fence)
dead=$(sh -c "$HOLDFAST_KILL")
echo "  killed the leader, $dead"
for node in "${nodes[@]}"; do
	[ "$node" = "$dead" ] && continue
	new=
	for _ in {1..50}; do
		new=$(cli "$node" SET "cli:new:$node" token NX PX 30000 || true)
		[ "$new" = OK ] && break
		sleep 0.1
	done
	is "redis-cli over the kill, on $node: new lock" OK "$new"
	for i in "${!nodes[@]}"; do
		is "redis-cli over the kill, on $node: lock taken on ${nodes[i]}" token "$(cli "$node" GET "cli:held:$i")"
	done
	next=$(cli "$node" INCR cli:fence)
	is "redis-cli over the kill, on $node: fencing grows" $((fence + 1)) "$next"
	fence=$next
done
[ "$failures" = 0 ]
