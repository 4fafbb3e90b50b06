#!/bin/bash
# SPDX-License-Identifier: MIT
# debian_tree.sh OUT.tar: a minimal Debian of the testing suite, or of the machine's own if that is
# what apt knows, from the mirror and with the settings that this machine's apt has. Runs as root.
set -euo pipefail
out=$1

# Prints "URI SUITE KEYRING" of the package indexes that FILTER... selects.
debian_indexes() {
  # shellcheck disable=SC2016  # apt-get expands $(...)
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(SIGNED_BY)' 'Created-By: Packages' \
    'Origin: Debian' 'Component: main' 'Label: Debian' "$@"
}

index=$(debian_indexes 'Suite: testing' | head -n 1)
[ -n "$index" ] || index=$(debian_indexes | head -n 1)
[ -n "$index" ] || { echo "debian_tree: apt knows no mirror of Debian's 'main'" >&2; exit 1; }
read -r uri suite keyring <<<"$index"
case $keyring in /*) signed="[signed-by=$keyring] " ;; *) signed= ;; esac

settings=$(mktemp)
log=$(mktemp)
trap 'rm -f "$settings" "$log" "$out.part"' EXIT
apt-config dump Acquire >"$settings"
mkdir -p "$(dirname "$out")"
# In a namespace of its own, so that a mount is never left behind.
unshare -m mmdebstrap --variant=minbase --mode=root --format=tar --aptopt="$settings" \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  "$suite" "$out.part" "deb $signed$uri $suite main" >"$log" 2>&1 ||
  { tail -n 20 "$log" >&2; exit 1; }
mv "$out.part" "$out"
