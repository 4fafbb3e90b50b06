#!/bin/bash
# SPDX-License-Identifier: MIT
# aarch64_root.sh OUT [PACKAGE...]: unpacks Debian's arm64 packages, those that Moestro needs or the
# named ones, into the folder OUT, for a compiler's --sysroot and for qemu's -L. Nothing of this
# machine's own packages changes, and nothing in OUT is configured or started. Silent when OUT is
# there already. Runs as root. OUT/.debs keeps the packages, whose versions those of Moestro name.
#
# Installed side by side (multiarch) the same packages must have the versions of the machine's own
# ones, which they have only where everything is of one release.
set -euo pipefail
out=$1
shift
. "$(dirname "$0")/debian_sources.sh"

packages=(
  libc6-dev libstdc++6 libgomp1
  libggml-dev libllama-dev liburing-dev libcli11-dev nlohmann-json3-dev libspdlog-dev libgtest-dev
  libgmock-dev libcurl4-openssl-dev libssl-dev
)
[ $# = 0 ] || packages=("$@")
made=$out/.packages  # the list that OUT was made of
[ "$(cat "$made" 2>/dev/null)" != "${packages[*]}" ] || exit 0

mapfile -t sources < <(debian_sources)
[ ${#sources[@]} -gt 0 ] || { echo "aarch64_root: apt knows no mirror of Debian" >&2; exit 1; }
suite=$(debian_suite "${sources[@]}")
mapfile -t sources < <(printf '%s\n' "${sources[@]}" | awk -v suite="$suite" '$(NF - 1) == suite')

settings=$(mktemp)
log=$(mktemp)
trap 'rm -rf "$settings" "$log" "$out.part"' EXIT
apt-config dump Acquire >"$settings"
rm -rf "$out.part"
mkdir -p "$(dirname "$out")"
echo "setup: unpacking arm64 packages of $suite into $out"
# In a namespace of its own, so that a mount is never left behind.
unshare -m mmdebstrap --variant=extract --mode=root --format=directory --architectures=arm64 \
  --skip=check/qemu,cleanup/apt --aptopt="$settings" --include="$(IFS=,; echo "${packages[*]}")" \
  "$suite" "$out.part" "${sources[@]}" >"$log" 2>&1 ||
  { tail -n 20 "$log" >&2; exit 1; }
mkdir "$out.part/.debs"
mv "$out.part"/var/cache/apt/archives/*.deb "$out.part/.debs/"
rm -rf "$out.part/usr/share/doc" "$out.part/usr/share/locale" "$out.part/var" "$out.part/dev"
# Absolute names in linker scripts and programs begin with /lib.
[ -e "$out.part/lib" ] || ln -s usr/lib "$out.part/lib"
echo "${packages[*]}" >"$out.part/.packages"
rm -rf "$out"
mv "$out.part" "$out"
