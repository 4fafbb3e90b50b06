#!/bin/bash
# SPDX-License-Identifier: MIT
# debian_tree.sh OUT.tar [ARCH]: a minimal Debian of the newest release that this machine's apt knows,
# with all of its sources and settings. Of another architecture, arm64, under an emulator. Runs as
# root.
set -euo pipefail
out=$1
arch=${2:-$(dpkg --print-architecture)}

. "$(dirname "$0")/debian_sources.sh"
. "$(dirname "$0")/foreign_arch.sh"

mapfile -t sources < <(debian_sources)
[ ${#sources[@]} -gt 0 ] || { echo "debian_tree: apt knows no mirror of Debian" >&2; exit 1; }
suite=$(debian_suite "${sources[@]}")

settings=$(mktemp)
log=$(mktemp)
run_foreign "$arch"
trap 'leave_foreign; rm -f "$settings" "$log" "$out.part"' EXIT
apt-config dump Acquire >"$settings"
mkdir -p "$(dirname "$out")"
# In a namespace of its own, so that a mount is never left behind.
unshare -m mmdebstrap --variant=minbase --mode=root --architectures="$arch" --format=tar --aptopt="$settings" \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  "$suite" "$out.part" "${sources[@]}" >"$log" 2>&1 ||
  { tail -n 20 "$log" >&2; exit 1; }
mv "$out.part" "$out"
