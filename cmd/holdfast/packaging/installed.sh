#!/usr/bin/env bash
# Installs, upgrades and removes packages in a copy of this machine's root, where systemctl only writes down what it is
# asked: installed.sh FOLDER DEB RPM, in a mount namespace of its own.
set -euo pipefail
mount -t tmpfs tmpfs "$1"
root=$1/root
mkdir "$1/upper" "$1/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$root"
mkdir -p "$root/run/systemd/system"
cp "$2" "$root/holdfast.deb"
cp "$3" "$root/holdfast.rpm"
rm "$root/usr/bin/systemctl"
printf '#!/bin/sh\necho "$*" >>/asked\n' >"$root/usr/bin/systemctl"
chmod +x "$root/usr/bin/systemctl"
rpm='rpm --force-debian --nodeps' # rpm knows nothing of what a Debian has

# package NAME INSTALL UPGRADE REMOVE: the settings and their owner stay.
package() {
	local settings=/etc/holdfast
	rm -rf "$root$settings"
	chroot "$root" sh -c '! id holdfast || userdel holdfast' >/dev/null 2>&1
	chroot "$root" $2
	chroot "$root" holdfast version
	chroot "$root" sh -ec "echo '# mine' >>$settings/holdfast.env; chown -R holdfast: $settings; chmod 700 $settings"
	rm "$root/asked"
	chroot "$root" $3
	grep -qx 'try-restart holdfast.service' "$root/asked"
	[ "$(chroot "$root" stat -c '%U %a' $settings)" = 'holdfast 700' ]
	grep -qx '# mine' "$root$settings/holdfast.env"
	chroot "$root" $4
	grep -qx '\(stop\|--no-reload disable --now\) holdfast.service holdfast-backup.timer' "$root/asked"
	[ ! -e "$root/usr/bin/holdfast" ]
	grep -qx '# mine' "$root$settings"/holdfast.env*
	echo "packaging: $1 is installed, upgraded and removed"
}
package deb "dpkg -i holdfast.deb" "dpkg -i holdfast.deb" "dpkg --remove holdfast"
package rpm "$rpm -i holdfast.rpm" "$rpm -U --replacepkgs holdfast.rpm" "$rpm -e holdfast"
