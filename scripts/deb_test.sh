#!/bin/bash
# SPDX-License-Identifier: MIT
# deb_test.sh PACKAGE.deb TREE.tar: installs the package in a fresh Debian (scripts/debian_tree.sh),
# uses it there as somebody without rights, reinstalls, removes and purges it; then lintian. Needs
# root and the machine's apt. Prints what it does; fails at the first thing that is wrong.
set -euo pipefail
deb=$(realpath "$1")
tree=$(realpath "$2")

if [ "${DEB_TEST_NAMESPACE:-}" = "" ]; then
  # Mounts and processes that are left end with this.
  DEB_TEST_NAMESPACE=1 exec unshare --mount --pid --fork --kill-child "$0" "$@"
fi

root=$(mktemp -d)
trap 'umount -Rl "$root" 2>/dev/null || true; rm -rf "$root"' EXIT
mount -t tmpfs -o mode=755 tmpfs "$root"
tar -C "$root" -xf "$tree" --exclude='./dev/*'
mount -t proc proc "$root/proc"
mount --rbind --make-rslave /dev "$root/dev"
mkdir "$root/run/try"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/hosts "$root/etc/hosts"
cp "$deb" "$root/run/try/moestro.deb"

home=/run/try/user  # within the tree
say() { printf 'deb-test: %s\n' "$*"; }
die() { say "FAILED: $*" >&2; exit 1; }
within() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
# As a user who owns nothing but a folder for what he keeps. Not a function: in the background that
# would be a process between.
as_user=(chroot --userspec=1234:1234 "$root" env -i PATH=/usr/bin HOME="$home")
apt() {
  within DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends \
    "$@" >"$root/run/try/log" 2>&1 || { tail -n 20 "$root/run/try/log" >&2; die "apt-get $*"; }
}
# All names in the tree that the package could have left.
traces() {
  (cd "$root" && find . -xdev \( -path ./run/try -o -path ./tmp -o -path ./proc \) -prune -o \
    -iname '*moestro*' -print | grep -v '^./var/lib/dpkg/\|^./var/log/' || true)
}

say "installs it"
apt update
apt install /run/try/moestro.deb
install -d -o 1234 -g 1234 "$root$home"

say "runs the demo model: $(within moestro --version)"
story=$("${as_user[@]}" moestro run -p 'Once upon a time' -n 12 --seed 1 2>/dev/null)
[ ${#story} -gt 30 ] || die "moestro run said: $story"

say "serves it to one request, as the machine's settings say"
port=$((20000 + RANDOM % 20000))
printf 'port = %s\nalias = demo-here\n' $port >"$root/etc/moestro/moestro.conf"
"${as_user[@]}" moestro serve >"$root/run/try/serve.log" 2>&1 &
server=$!
for ((i = 0; i < 600; ++i)); do
  if "${as_user[@]}" moestro health >/dev/null 2>&1; then break; fi
  kill -0 $server 2>/dev/null || die "the server ended: $(cat "$root/run/try/serve.log")"
  sleep 0.1
done
body='{"prompt":"Once","max_tokens":4,"seed":1}'
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n' >&3
printf 'Content-Length: %s\r\n\r\n%s' ${#body} "$body" >&3
reply=$(cat <&3)
exec 3>&-
[[ $reply == *'"completion_tokens":4'* ]] || die "the server replied: $reply"
[[ $reply == *demo-here* ]] || die "the settings were not read: $reply"
kill $server
wait $server || die "the server ended with $?"

say "its service waits for a model"
within test -e /usr/lib/systemd/system/moestro.service || die "there is no unit"
[ -z "$(find "$root/etc/systemd" -name 'moestro*')" ] || die "the service was enabled"
condition=$(sed -n "s/^ExecCondition=\/bin\/sh -c '\(.*\)'$/\1/p" \
  "$root/usr/lib/systemd/system/moestro.service")
[ -n "$condition" ] || die "the unit has no condition"
if within sh -c "$condition"; then die "its condition holds without a model"; fi
echo 'model = x.gguf' >>"$root/etc/moestro/moestro.conf"
within sh -c "$condition" || die "its condition fails with a model"

say "is installed over itself and keeps settings that were changed"
apt -o Dpkg::Options::=--force-confold install --reinstall /run/try/moestro.deb
grep -q demo-here "$root/etc/moestro/moestro.conf" || die "the settings were replaced"

say "is removed, and purged without a trace"
apt remove moestro
[ -e "$root/etc/moestro/moestro.conf" ] || die "removing took the settings"
if within moestro --version 2>/dev/null; then die "the program is still there"; fi
# As the service would have left them, with a model that somebody put there.
mkdir -p "$root/var/cache/private/moestro" "$root/var/lib/private/moestro/huggingface"
ln -s private/moestro "$root/var/lib/moestro"
touch "$root/var/lib/private/moestro/mine.gguf"
apt purge moestro
[ -e "$root/var/lib/moestro/mine.gguf" ] || die "purging took a model"
grep -q "/var/lib/private/moestro is not empty and is kept" "$root/run/try/log" ||
  die "purging does not say what it leaves"
rm -r "$root/var/lib/private/moestro" "$root/var/lib/moestro"
left=$(traces)
[ -z "$left" ] || die "purging left $left"

say "lintian"
apt install lintian
within lintian --fail-on error,warning --display-level '>=pedantic' --show-overrides \
  --allow-root /run/try/moestro.deb || die "lintian complains"
say "done"
