#!/bin/bash
# SPDX-License-Identifier: MIT
# cross_depends.sh ARCH DEBS PROGRAM: prints what a package with PROGRAM, which was built for Debian's
# architecture ARCH, depends on: as dpkg-shlibdeps finds it in that architecture's packages in the
# folder DEBS, of which none need be installed, and for ggml and libllama the release that was built
# against, as in packages for this machine.
set -euo pipefail
arch=$1
debs=$(realpath "$2")
program=$(realpath "$3")

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/debian"
printf 'Source: moestro\n\nPackage: moestro\nArchitecture: %s\n' "$arch" >"$folder/debian/control"
options=()
for deb in "$debs"/*.deb; do
  name=$(dpkg-deb -f "$deb" Package)
  # Packages that say which libraries they have.
  dpkg-deb -I "$deb" | grep -E ' (shlibs|symbols)$' >/dev/null || continue
  dpkg-deb -R "$deb" "$folder/$name"
  options+=("-S$folder/$name")
done
cd "$folder"
DEB_HOST_ARCH=$arch dpkg-shlibdeps -O "${options[@]}" -e"$program" 2>shlibdeps.log >depends ||
  { cat shlibdeps.log >&2; exit 1; }
sed -n 's/^shlibs:Depends=//p' depends | tr -d '\n'
for package in libggml0 libllama0; do
  version=$(dpkg-deb -f "$debs"/"$package"_*.deb Version)
  [[ $version =~ ^(([0-9]+:)?([0-9.]*\.)?)([0-9]+) ]] || continue
  printf ', %s (>= %s%s), %s (<< %s%s~)' $package "${BASH_REMATCH[1]}" "${BASH_REMATCH[4]}" \
    $package "${BASH_REMATCH[1]}" $((BASH_REMATCH[4] + 1))
done
