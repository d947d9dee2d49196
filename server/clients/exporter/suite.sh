#!/usr/bin/env bash
# The stock redis_exporter at each of three nodes. Every metric of expected.txt must be exported by as many nodes
# as there, and the metrics marked "nonzero" must not be zero on all of them. EXPORTER is the program.
#   suite.sh            compare
#   suite.sh -rewrite   write expected.txt anew; then read the difference
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
exporter=
trap 'rm -rf "$work"; [ -z "$exporter" ] || kill "$exporter" 2>/dev/null || true' EXIT
port=${HOLDFAST_PORT:-18101}
web=127.0.0.1:$((port + 40))

# Something to count: hits, misses, deadlines, a script, an error.
traffic() {
	local node=$1
	redis-cli -p "$node" >/dev/null <<-'COMMANDS'
		CONFIG SET slowlog-log-slower-than 0
		SET exporter:a 1 EX 1000
		GET exporter:a
		GET exporter:missing
		HGET exporter:a f
		EVAL 'return redis.call("GET", KEYS[1])' 1 exporter:a
	COMMANDS
}

scrape() {
	local attempt
	"$EXPORTER" -redis.addr "redis://127.0.0.1:$1" -web.listen-address "$web" >"$work/log" 2>&1 &
	exporter=$!
	for attempt in {1..100}; do
		curl -sf "http://$web/" >/dev/null && break
		sleep 0.1
	done
	curl -sf "http://$web/metrics"
	kill "$exporter"
	wait "$exporter" || true
	exporter=
}

# The uptime counts whole seconds: it is zero for a node's first one.
serves_for_a_second() {
	local attempt
	for attempt in {1..100}; do
		redis-cli -p "$1" INFO server | grep -q '^uptime_in_seconds:[1-9]' && return
		sleep 0.1
	done
}

failed=0
serves_for_a_second "$port"
for i in 0 1 2; do traffic $((port + i)); done
for i in 0 1 2; do
	scrape $((port + i)) >"$work/metrics.$i"
	if ! grep -q '^redis_up 1$' "$work/metrics.$i" || ! grep -q '^redis_exporter_last_scrape_error{err=""} 0$' "$work/metrics.$i"; then
		echo "  FAIL  the exporter could not read node $i:"
		grep '^redis_\(up\|exporter_last_scrape_error\)' "$work/metrics.$i" || true
		sed 's/^/    /' "$work/log"
		failed=1
	fi
done

# name, nodes that export it, nonzero or zero
awk '
	/^redis_/ {
		name = $1; sub(/\{.*/, "", name); sub(/_(bucket|sum|count)$/, "", name)
		if (!((name, FILENAME) in seen)) { seen[name, FILENAME] = 1; nodes[name]++ }
		if ($NF + 0 != 0) nonzero[name] = 1
	}
	END { for (name in nodes) print name, nodes[name], (name in nonzero) ? "nonzero" : "zero" }
' "$work"/metrics.? | LC_ALL=C sort >"$work/found"

if [ "${1:-}" = -rewrite ]; then
	cp "$work/found" "$here/expected.txt"
	exit
fi
awk '
	NR == FNR { nodes[$1] = $2; what[$1] = $3; next }
	nodes[$1] + 0 < $2 { print "  FAIL  " $1 " is exported by " nodes[$1] + 0 " nodes instead of " $2; bad = 1 }
	$3 == "nonzero" && what[$1] == "zero" { print "  FAIL  " $1 " is zero"; bad = 1 }
	{ delete nodes[$1] }
	END { for (name in nodes) print "  new   " name " " what[name]; exit bad }
' "$work/found" "$here/expected.txt" || failed=1
echo "  $(wc -l <"$here/expected.txt") metrics of redis_exporter are expected, $(grep -c nonzero "$here/expected.txt") of them not zero"
exit "$failed"
