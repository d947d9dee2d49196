#!/usr/bin/env bash
# Makes what a release consists of in dist/: dist.sh [folder]. One archive a platform, a Debian
# and an RPM package an architecture, the client libraries, and their checksums. Two runs on one revision make the same bytes.
set -euo pipefail
cd "$(dirname "$0")/../../.."
out=$(realpath -m "${1:-dist}")
go=${GO:-go}
files=cmd/holdfast/packaging
version=$(sed -n 's/^const HoldfastVersion = "\(.*\)"$/\1/p' protocol/version.go)
# Archives carry the time of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
rm -rf "$out"
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build OS ARCH FILE: a static binary that names no folder of this machine.
build() {
	CGO_ENABLED=0 GOOS=$1 GOARCH=$2 "$go" build -trimpath -ldflags "-s -w -buildid=" -o "$3" ./cmd/holdfast
}

# What comes with the program: the man page, completions, alerts, the dashboard, manifests. Made by a program for this machine.
extras=$work/extras
mkdir -p "$extras/completions"
"$go" build -o "$work/here" ./cmd/holdfast
"$work/here" docs man >"$extras/holdfast.1"
for shell in bash zsh fish; do "$work/here" completion $shell >"$extras/completions/holdfast.$shell"; done
cp "$files/KUBERNETES.md" "$files/kubernetes.yaml" "$files/podmonitor.yaml" "$files/restore.yaml" "$files/compose.yaml" \
	server/monitoring/alerts.yaml server/monitoring/dashboard.json "$extras"

# archive OS ARCH
archive() {
	local name=holdfast-$version-$1-$2
	local program=holdfast
	[ "$1" != windows ] || program=holdfast.exe
	mkdir -p "$work/$name"
	build "$1" "$2" "$work/$name/$program"
	cp -r LICENSE README.md CHANGELOG.md "$files/holdfast.service" "$files/holdfast.env" "$extras"/* "$work/$name"
	chmod -R u=rwX,go=rX "$work/$name"
	tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$name" |
		gzip -9n >"$out/$name.tar.gz"
}

# tree FOLDER ARCH FOLDER-FOR-ZSH: what a package installs, with the binary that archive has built.
tree() {
	local root=$1
	mkdir -p "$root/usr/bin" "$root/usr/lib/systemd/system" "$root/usr/lib/sysusers.d" \
		"$root/etc/holdfast" "$root/usr/share/doc/holdfast/examples" "$root/usr/share/man/man1" \
		"$root/usr/share/bash-completion/completions" "$root/usr/share/zsh/$3" "$root/usr/share/fish/vendor_completions.d"
	cp "$work/holdfast-$version-linux-$2/holdfast" "$root/usr/bin/"
	cp "$files/holdfast.service" "$root/usr/lib/systemd/system/"
	cp "$files/holdfast.sysusers" "$root/usr/lib/sysusers.d/holdfast.conf"
	cp "$files/holdfast.env" "$root/etc/holdfast/"
	cp LICENSE "$root/usr/share/doc/holdfast/copyright"
	cp README.md CHANGELOG.md "$root/usr/share/doc/holdfast/"
	cp "$extras"/*.yaml "$extras"/*.json "$extras"/*.md "$root/usr/share/doc/holdfast/examples/"
	gzip -9nc "$extras/holdfast.1" >"$root/usr/share/man/man1/holdfast.1.gz"
	cp "$extras/completions/holdfast.bash" "$root/usr/share/bash-completion/completions/holdfast"
	cp "$extras/completions/holdfast.zsh" "$root/usr/share/zsh/$3/_holdfast"
	cp "$extras/completions/holdfast.fish" "$root/usr/share/fish/vendor_completions.d/holdfast.fish"
	chmod -R u=rwX,go=rX "$root"
	find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

# deb ARCH
deb() {
	local root=$work/deb-$1
	tree "$root" "$1" vendor-completions
	mkdir "$root/DEBIAN"
	echo /etc/holdfast/holdfast.env >"$root/DEBIAN/conffiles"
	sed "s/@VERSION@/$version/; s/@ARCH@/$1/" "$files/deb/control" >"$root/DEBIAN/control"
	install -m 0755 "$files/deb/postinst" "$files/deb/prerm" "$files/deb/postrm" "$root/DEBIAN/"
	chmod -R u=rwX,go=rX "$root/DEBIAN"
	touch --date="@$SOURCE_DATE_EPOCH" "$root/DEBIAN"/* "$root/DEBIAN" "$root"
	dpkg-deb --build --root-owner-group -Zxz "$root" "$out/holdfast_${version}_$1.deb" >/dev/null
}

# rpm ARCH RPM'S-NAME-OF-IT
rpm() {
	tree "$work/rpm-$1" "$1" site-functions
	sed "s/@VERSION@/$version/" "$files/rpm/holdfast.spec" >"$work/holdfast-$1.spec"
	rpmbuild -bb --quiet --target "$2-linux" -D "tree $work/rpm-$1" -D "_topdir $work/rpmbuild" -D "_rpmdir $out" \
		-D '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' "$work/holdfast-$1.spec"
}

for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64; do
	archive "${platform%/*}" "${platform#*/}"
done
if command -v dpkg-deb >/dev/null; then
	deb amd64
	deb arm64
else
	echo "dist: no Debian packages, because there is no dpkg-deb" >&2
fi
if command -v rpmbuild >/dev/null; then
	rpm amd64 x86_64
	rpm arm64 aarch64
else
	echo "dist: no RPM packages, because there is no rpmbuild" >&2
fi
"$files/libraries.sh" "$out" "$version"
(cd "$out" && find . -type f -printf '%P\n' | LC_ALL=C sort | xargs sha256sum -- >"$work/sums" && mv "$work/sums" SHA256SUMS)
ls -l "$out"
