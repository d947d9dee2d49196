#!/usr/bin/env bash
# The snippets of CONNECT.md, each against three nodes with TLS and a password, over a kill of the leader.
#   connect.sh              all clients; connect.sh redis-py jedis: some
#   connect.sh kill-leader  for the programs with the snippets
# The nodes have the addresses of the page, so all runs in a network namespace. HOLDFAST_BIN is the binary, CLIENTS_WORK the
# folder where run.sh has installed the clients.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${CLIENTS_WORK:?}
export HOLDFAST_KILL="$here/connect.sh kill-leader" HOLDFAST_PASSWORD='open sesame'
export HOLDFAST_SERVER=10.0.0.1,10.0.0.2,10.0.0.3 HOLDFAST_TLS_CA=$work/connect/ca.crt
clients='go-redis rueidis redis-py ioredis node-redis jedis lettuce redisson go-redis-defaults redis-py-defaults node-redis-defaults'

# leader prints the number of the node that leads.
leader() { "$HOLDFAST_BIN" cluster members 2>/dev/null | sed -n 's/^n\([1-3]\) .* leader .*/\1/p'; }

kill_leader() {
	local n
	n=$(leader)
	kill -9 "$(cat "$work/connect/n$n.pid")"
	rm "$work/connect/n$n.pid"
	echo "10.0.0.$n"
}

start() {
	local n deadline=$((SECONDS + 60))
	for n in 1 2 3; do
		[ -e "n$n.pid" ] && continue
		"$HOLDFAST_BIN" serve --name "n$n" --addr "10.0.0.$n:6379" --sentinel-addr "10.0.0.$n:26379" --cluster-mode \
			--peer-addr "10.0.0.$n:7379" --initial-cluster n1=10.0.0.1:7379,n2=10.0.0.2:7379,n3=10.0.0.3:7379 \
			--data-dir "n$n" --tls-cert "n$n.crt" --tls-key "n$n.key" --cluster-secret secret --log-level warn \
			>>"n$n.log" 2>&1 </dev/null &
		echo $! >"n$n.pid"
		disown
	done
	until "$HOLDFAST_BIN" cluster status --voters 3 >status 2>&1; do
		[ $SECONDS -lt $deadline ] || { cat status && return 1; }
		sleep 0.1
	done
}

# lead makes node $1 the leader.
lead() {
	[ "$(leader)" = "$1" ] || "$HOLDFAST_BIN" cluster transfer "n$1" >/dev/null
	until [ "$(leader)" = "$1" ]; do sleep 0.1; done
	sleep 2 # until clients of Sentinel and of Redis Cluster are told the new roles by all nodes
}

stop() {
	local pid
	for pid in "$work"/connect/n?.pid; do
		[ ! -e "$pid" ] || kill -9 "$(cat "$pid")" || true
	done
}

# connect CLIENT MODE
connect() {
	local java='java -Xmx512m -XX:+UseSerialGC -Djavax.net.ssl.trustStore=truststore.p12 -Djavax.net.ssl.trustStorePassword=changeit'
	case $1 in
	go-redis* | rueidis) "$work/go-suite" connect "$@" ;;
	redis-py*) "$work/venv/bin/python" "$here/python/connect.py" "$@" ;;
	ioredis | node-redis*) node "$work/node/connect.mjs" "$@" ;;
	jedis | lettuce) $java -cp "$work/classes:$work/jars/*" Connect "$@" ;;
	redisson) $java -cp "$work/redisson:$work/redisson-jars/*" RedissonConnect "$@" ;;
	esac
}

[ "${1:-}" != kill-leader ] || { kill_leader && exit; }
for n in 1 2 3; do ip addr add "10.0.0.$n/32" dev lo 2>/dev/null || true; done
mkdir -p "$work/connect" && cd "$work/connect" && rm -rf ./*
"$HOLDFAST_BIN" certs . n1=10.0.0.1 n2=10.0.0.2 n3=10.0.0.3 >/dev/null
keytool -importcert -noprompt -alias holdfast -file ca.crt -keystore truststore.p12 -storepass changeit >/dev/null 2>&1 || true
cp "$here/node/connect.mjs" "$work/node/"
trap stop EXIT
bad=0
for mode in single sentinel cluster; do
	for client in ${*:-$clients}; do
		case $client-$mode in # without the settings of the page there are these
		*-py-defaults-sentinel | go-redis-defaults-sentinel | node-redis-defaults-cluster) ;;
		*-defaults-*) continue ;;
		esac
		start
		# A client of one address is not the dead node's; one that looks for the leader has its address as the first.
		if [ $mode = single ]; then lead 2; else lead 1; fi
		timeout 90 bash -c "$(declare -f connect); here=$here work=$work connect $client $mode" || bad=1
	done
done
exit $bad
