# shellcheck shell=bash disable=SC2154
# The bridge from Redis to Holdfast: a release that locks on both. Each library has a program that takes the lock "job"
# on all servers it is given, says held or refused, and gives the lock back at a line of its input. Sourced by run.sh.

# prove COMMAND…: who holds on both keeps those out who lock on one alone, and the other way round.
prove() {
	if [ "$HOLDFAST_TARGET" = redis ]; then
		echo "  skip  all of it: both sides would be Redis"
		return
	fi
	local port=$((HOLDFAST_PORT + 40)) redis holdfast=${HOLDFAST_NODES##*,} bad=0 server
	redis=127.0.0.1:$port
	"$HOLDFAST_REDIS" --port "$port" --save '' --dir "$HOLDFAST_STATE" --loglevel warning >"$HOLDFAST_STATE/redis.log" 2>&1 3>&- 4<&- &
	server=$!
	until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.1; done
	proofs "$redis" "$holdfast" "$@" || bad=1
	[ -z "${bridge_fences:-}" ] || fences "$redis" "$holdfast" "$@" || bad=1
	[ "$bad" = 0 ] || tail -20 "$HOLDFAST_STATE/bridge.log"
	kill "$server"
	wait "$server" || true
	return "$bad"
}

# proofs REDIS HOLDFAST COMMAND…
proofs() {
	local redis=$1 holdfast=$2 side other bad=0
	shift 2
	holds "on both" "$@" "$redis" "$holdfast" || return
	says refused "Redis alone, while both are held" "$@" "$redis" || bad=1
	says refused "Holdfast alone, while both are held" "$@" "$holdfast" || bad=1
	says refused "both, while both are held" "$@" "$redis" "$holdfast" || bad=1
	gives_back || bad=1
	for side in "$redis" "$holdfast"; do
		other=$redis$holdfast
		other=${other/$side/}
		holds "on $side alone" "$@" "$side" || return
		says refused "both, while $side is held" "$@" "$redis" "$holdfast" || bad=1
		says released "the other side alone: two holders, and nothing was left there" "$@" "$other" || bad=1
		gives_back || bad=1
	done
	says released "both, once all is free" "$@" "$redis" "$holdfast" || bad=1
	return "$bad"
}

# holds WHAT COMMAND…: the command holds the lock until gives_back.
holds() {
	local what=$1 line
	shift
	coproc HOLDER { "$@" 2>>"$HOLDFAST_STATE/bridge.log"; }
	read -r -t 60 line <&"${HOLDER[0]}" || line=nothing
	verdict held "$line" "holds $what"
}

gives_back() {
	local line holder=$HOLDER_PID
	echo >&"${HOLDER[1]}"
	read -r -t 60 line <&"${HOLDER[0]}" || line=nothing
	wait "$holder" 2>/dev/null || true
	verdict released "$line" "gives back"
}

# says WORD WHAT COMMAND…: the last line of the command, which gives back at once what it gets, is WORD.
says() {
	local word=$1 what=$2 line
	shift 2
	line=$(echo | timeout 60 "$@" 2>>"$HOLDFAST_STATE/bridge.log" | tail -1)
	verdict "$word" "$line" "$what: $word"
}

# fences REDIS HOLDFAST COMMAND…: the command can compare the fences of all releases.
fences() {
	local servers=("$1" "$2") line
	shift 2
	line=$("$@" fences "${servers[@]}" 2>>"$HOLDFAST_STATE/bridge.log" | tail -1)
	echo "  $line"
	[[ $line == "fences grow: "* ]]
}

verdict() {
	if [ "$1" = "$2" ]; then
		echo "  ok    $3"
	else
		echo "  FAIL  $3: expected $1, found $2"
		return 1
	fi
}

install_bridge_go() { cd "$here/go" && go build -o "$work/go-bridge" ./bridge; }
test_bridge_go() { prove "$work/go-bridge"; }

install_bridge_python() { [ -d "$work/venv" ] || install_python; }
test_bridge_python() { bridge_fences=1 prove "$work/venv/bin/python" "$here/python/bridge.py"; }

install_bridge_node() { [ -d "$work/node" ] || install_node; }
test_bridge_node() { cp "$here/node/bridge.mjs" "$work/node/" && cd "$work/node" && prove node bridge.mjs; }

install_bridge_java() { install_java; }
test_bridge_java() { prove java -Xmx256m -XX:+UseSerialGC -cp "$work/classes:$work/jars/*" Bridge; }

install_bridge_redisson() { install_redisson; }
test_bridge_redisson() { bridge_fences=1 prove java -Xmx256m -XX:+UseSerialGC -cp "$work/redisson:$work/redisson-jars/*" RedissonBridge; }
