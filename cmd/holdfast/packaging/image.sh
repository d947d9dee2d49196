#!/usr/bin/env bash
# Builds the image and runs compose.yaml by podman: three nodes find each other, the leader is killed and comes back on
# its volume, all are stopped and come up again. Needs root, Go, and what .ci/run installs for the job. Everything
# happens in a folder and namespaces of its own, so that neither ports nor images of the machine are touched.
set -euo pipefail
cd "$(dirname "$0")/../../.."
files=cmd/holdfast/packaging
fail() { echo "image: $*" >&2 && exit 1; }

if [ "${1:-}" != inside ]; then
	go mod download
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	unshare --mount --net --pid --fork --kill-child --mount-proc "$files/image.sh" inside "$work"
	exit
fi

work=$2
mount --types tmpfs image "$work"
mkdir -p "$work/base/bin" "$work/base/etc/ssl/certs" "$work/base/tmp"
ip link set lo up

# clean ends the containers. After a failure it shows what they and podman said.
clean() {
	local status=$?
	if [ "$status" -ne 0 ]; then
		cat "$work/podman.log" >&2
		podman ps --all --format '{{.Names}}' 2>/dev/null | while read -r name; do
			echo "--- $name" >&2 && podman logs --tail 20 "$name" >&2
		done
	fi
	podman rm --all --force --time 0 >/dev/null 2>&1 || true
	exit "$status"
}
trap clean EXIT

# podman keeps everything in the folder. crun sets no limits of resources, since a CI machine may refuse to raise them.
# crun also refuses a machine where both versions of control groups have controllers, so it sees the first alone.
cat >"$work/crun" <<-'END'
	#!/usr/bin/env bash
	for ((i = 1; i < $#; i++)); do
		next=$((i + 1))
		case ${!i} in
		--bundle) file=${!next}/config.json ;;
		--process) file=${!next} ;;
		*) continue ;;
		esac
		jq 'del(.rlimits, .process.rlimits, .linux.resources)' "$file" >"$file.new" && mv "$file.new" "$file"
	done
	umount /sys/fs/cgroup/unified 2>/dev/null || true
	exec crun --cgroup-manager=disabled "$@"
END
chmod +x "$work/crun"
cat >"$work/containers.conf" <<-END
	[engine]
	runtime = "here"
	cgroup_manager = "cgroupfs"
	events_logger = "file"
	tmp_dir = "$work/run"
	[engine.runtimes]
	here = ["$work/crun"]
	[network]
	network_config_dir = "$work/networks"
END
cat >"$work/storage.conf" <<-END
	[storage]
	driver = "overlay"
	graphroot = "$work/storage"
	runroot = "$work/storage-run"
END
export CONTAINERS_CONF=$work/containers.conf CONTAINERS_STORAGE_CONF=$work/storage.conf

# The Dockerfile as it is. Its base comes from a registry, which CI cannot reach: this machine's Go stands in.
cp "$(command -v busybox)" "$work/base/bin/"
ln -s busybox "$work/base/bin/sh"
ln -s busybox "$work/base/bin/mkdir"
cp /etc/ssl/certs/ca-certificates.crt "$work/base/etc/ssl/certs/"
volumes=()
env="PATH=$(go env GOROOT)/bin:/bin GOPROXY=off GOFLAGS=-buildvcs=false"
for variable in GOROOT GOMODCACHE GOCACHE; do
	folder=$(go env $variable)
	volumes+=(--volume "$folder:$folder")
	env+=" $variable=$folder"
done
printf 'FROM scratch\nCOPY . /\nENV %s\n' "$env" >"$work/base/Dockerfile"
base=$(sed -n 's/^FROM \(.*\) AS build$/\1/p' "$files/Dockerfile")
image=holdfast:$(sed -n 's/^const HoldfastVersion = "\(.*\)"$/\1/p' protocol/version.go)
podman build --quiet --isolation chroot --tag "$base" "$work/base" >"$work/podman.log"
podman build --quiet --pull-never --isolation chroot "${volumes[@]}" --tag "$image" --file "$files/Dockerfile" . >>"$work/podman.log"
root=$(podman image mount "$image")
find "$root" -type f -printf 'image: /%P, %s bytes\n'
[ -s "$root/etc/ssl/certs/ca-certificates.crt" ] || fail "there are no certificates that TLS could trust"

compose() { podman-compose --project-name holdfast --file "$files/compose.yaml" "$@" >>"$work/podman.log" 2>&1; }
container() { echo "holdfast_$1_1"; }
inspect() { podman inspect --format "{{.$2}}" "$(container "$1")"; }
program() { podman exec "$(container "$1")" /holdfast "${@:2}"; }
redis() { redis-cli -p $((6378 + ${1#n})) "${@:2}"; }
# within SECONDS COMMAND…: until the command succeeds
within() {
	local end=$((SECONDS + $1))
	until "${@:2}" >"$work/said" 2>&1; do
		[ "$SECONDS" -lt "$end" ] || fail "not within $1 s: ${*:2}: $(cat "$work/said")"
		sleep 0.2
	done
}
# value NODE KEY VALUE
value() { [ "$(redis "$1" GET "$2")" = "$3" ]; }
leads() { redis "$1" ROLE | grep -qx master; }
whole() { program "$1" cluster status --voters 3; }

compose up --detach --no-build
within 60 whole n1
health=$(sed -n 's,^ *test: \[CMD\, /holdfast\, \(.*\)\]$,\1,p' "$files/compose.yaml")
for node in n1 n2 n3; do
	within 30 program "$node" ${health//,/}
	status=/proc/$(inspect "$node" State.Pid)/status
	for line in $'Uid:\t65532' $'CapEff:\t0000000000000000' $'CapBnd:\t0000000000000000' $'NoNewPrivs:\t1'; do
		grep -q "^$line" "$status" || fail "$node: $(grep "^${line%%:*}" "$status"), want $line"
	done
done
echo "image: three nodes serve"

[ "$(redis n1 SET lock token NX PX 3600000)" = OK ]
[ -z "$(redis n2 SET lock other NX PX 3600000)" ]
[ "$(redis n3 INCR fence)" = 1 ]
for leader in n1 n2 n3; do ! leads "$leader" || break; done
pid=$(inspect "$leader" State.Pid)
kill -KILL "$pid"
for node in n1 n2 n3; do
	[ "$node" = "$leader" ] || within 30 value "$node" lock token
done
# By the policy of restarts, with the same volume.
within 60 whole "$leader"
[ "$(inspect "$leader" State.Pid)" != "$pid" ]
value "$leader" lock token
[ "$(redis "$leader" INCR fence)" = 2 ]
echo "image: $leader led, was killed, and came back on its volume"

compose stop
for node in n1 n2 n3; do
	[ "$(inspect "$node" State.ExitCode)" = 0 ] || fail "$node was stopped, and ended with status $(inspect "$node" State.ExitCode)"
done
compose down
compose up --detach --no-build
within 60 whole n2
value n2 lock token
[ "$(redis n1 INCR fence)" = 3 ]
echo "image: all were stopped, removed, and came back on their volumes; all well"
