#!/usr/bin/env bash
# Checks what packaging/ makes: two runs of dist.sh from two folders give the same bytes, the packages have the program
# and a unit that systemd accepts, and are installed, upgraded and removed where root may mount, the programs need no
# library, each client library is installed and runs its README's example, helm accepts the chart, and Kubernetes and
# Compose know every word of the manifests. Where helm or the types of the manifests cannot be fetched the script says
# so, and ends with status 0, or 1 with --must.
set -euo pipefail
case ${1:-} in
'' | --must) must=${1:-} ;;
*) echo "packaging: $1 is no flag; there is --must" >&2 && exit 2 ;;
esac
cd "$(dirname "$0")/../../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet . "$work/one"
git clone --quiet "$work/one" "$work/another/folder" # of the same commit, whatever happens here meanwhile
for copy in one another/folder; do
	"$work/$copy/cmd/holdfast/packaging/dist.sh" >/dev/null
done
diff "$work/one/dist/SHA256SUMS" "$work/another/folder/dist/SHA256SUMS"
cat "$work/one/dist/SHA256SUMS"

arch=$(dpkg --print-architecture)
dpkg-deb --extract "$work"/one/dist/holdfast_*_"$arch".deb "$work/root"
# A folder with nothing else in it: the programs need no library, no shell, no /etc.
mkdir "$work/empty"
cp "$work/root/usr/bin/holdfast" "$work/empty/"
tar -C "$work/empty" --strip-components 1 -xzf "$work"/one/dist/holdfast-otel-*-linux-"$arch".tar.gz
for words in 'holdfast version' 'holdfast-otel -h'; do
	if [ "$(id -u)" -eq 0 ]; then
		chroot "$work/empty" /$words
	else
		unshare --user --map-root-user chroot "$work/empty" /$words
	fi
done
sed -i "s,^ExecStart=/usr/bin/,ExecStart=$work/root/usr/bin/," "$work/root/usr/lib/systemd/system"/*.service
systemd-analyze verify --man=no "$work/root/usr/lib/systemd/system"/* 2>&1 | tee "$work/verify"
[ ! -s "$work/verify" ]
for file in man/man1/holdfast.1.gz bash-completion/completions/holdfast zsh/vendor-completions/_holdfast \
	fish/vendor_completions.d/holdfast.fish doc/holdfast/{README,CHANGELOG,server/OPERATING,server/operating/ALERTS}.md \
	doc/holdfast/examples/{alerts,compose,kubernetes,podmonitor,restore}.yaml doc/holdfast/examples/dashboard.json; do
	[ -s "$work/root/usr/share/$file" ] || { echo "packaging: the package lacks $file" >&2 && exit 1; }
done

# The client libraries, in empty projects, against the packaged program.
cmd/holdfast/packaging/libraries.sh --try "$work/one/dist" "$(sed -n 's/^const HoldfastVersion = "\(.*\)"$/\1/p' protocol/version.go)" \
	"$work/empty/holdfast"

grep -q '"purl": "pkg:golang/github.com/hashicorp/raft@' "$work"/one/dist/holdfast-[0-9]*-linux-"$arch".sbom.json
grep -q '"purl": "pkg:golang/go.opentelemetry.io/otel/sdk@' "$work"/one/dist/holdfast-otel-*-linux-"$arch".sbom.json
[ "$(tail -n +2 "$work/one/dist/NOTES.md" | wc -l)" -gt 10 ]

# The RPM package has the same files, and completions for zsh where Fedora has them.
mkdir "$work/rpm"
rpm=$(ls "$work"/one/dist/*."$(rpm --eval '%{_arch}')".rpm)
rpm2archive - <"$rpm" | tar -C "$work/rpm" -xz
diff <(cd "$work/rpm" && find . -type f | sort) \
	<(cd "$work/root" && find . -type f | sed s,vendor-completions/_,site-functions/_, | sort)
cmp "$work/rpm/usr/bin/holdfast" "$work/root/usr/bin/holdfast"

if unshare --mount mount -t tmpfs tmpfs "$work/empty" 2>/dev/null; then
	unshare --mount cmd/holdfast/packaging/installed.sh "$work/empty" "$work"/one/dist/holdfast_*_"$arch".deb "$rpm"
else
	echo "packaging: the packages NOT INSTALLED: mount is not allowed" >&2
fi

# The chart and the manifests, rendered by helm and decoded strictly. Helm, types and schema come from the Go module
# proxy: without it they are not checked.
helm=$(sed -n 's/^HELM ?= $(GO) //p' Makefile)
if go $helm version >"$work/helm" 2>"$work/download" && (cd cmd/holdfast/packaging/strict && go mod download 2>"$work/download"); then
	go $helm show all "$work"/one/dist/holdfast-[0-9]*.tgz | grep '^version:'
	go $helm lint --strict "$work"/one/dist/holdfast-[0-9]*.tgz
	make chart
	(cd cmd/holdfast/packaging/strict && go run .)
	echo "packaging: all well"
elif ! grep -qE 'Get "http|reading http|module lookup disabled' "$work/download"; then
	cat "$work/download" >&2 # this is not about the network
	exit 1
else
	echo "packaging: the chart, the manifests and compose.yaml NOT CHECKED: helm or their types cannot be fetched: $(tail -1 "$work/download")" >&2
	echo "packaging: all else well"
	[ -z "$must" ]
fi
