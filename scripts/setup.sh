#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs what Moestro needs to build, test and lint. Safe to call again: it does nothing when nothing is missing.
#
# Debian testing has every package. On Debian 12 and 13 this adds the testing suite at a low priority, from the
# mirror and keyring this machine already uses, and takes only the packages below (and what they depend on) from it.
# On any other system it prints what to install and exits 1.
set -euo pipefail

# name:minimum version; an empty minimum means any.
packages=(
  g++:13 binutils:2.43 cmake:3.25 ninja-build: make: ccache: pkg-config: python3:
  libggml-dev:0.27 libllama-dev:0.7 liburing-dev:2.3
  libcli11-dev:2.3 nlohmann-json3-dev:3.11 libspdlog-dev:1.10 libgtest-dev:1.12 libbenchmark-dev:1.7
  clang-format:16 clang-tidy:16
)

say() { printf 'setup: %s\n' "$*"; }

# Debian versions may carry an epoch ("4:13.2.0"); the minimum is upstream's number, so the epoch is dropped.
installed_version() {
  # shellcheck disable=SC2016  # dpkg-query expands ${Status} and ${Version}
  dpkg-query -W -f '${Status} ${Version}\n' "$1" 2>/dev/null |
    awk '$1 == "install" && $3 == "installed" { sub(/^[0-9]+:/, "", $4); print $4 }' || true
}

missing_packages() {
  local entry name minimum have
  for entry in "${packages[@]}"; do
    name=${entry%%:*} minimum=${entry#*:}
    have=$(installed_version "$name")
    if [ -z "$have" ]; then
      echo "$name"
    elif [ -n "$minimum" ] && dpkg --compare-versions "$have" lt "$minimum"; then
      echo "$name"
    fi
  done
}

explain_other_system() {
  say "this script installs packages on Debian only; on this system install, by its own means:"
  say "  g++ >= 13, cmake >= 3.25, ninja, make, ccache, pkg-config, python3"
  say "  ggml >= 0.27 and libllama >= 0.7 with headers and CMake files, liburing >= 2.3"
  say "  CLI11, nlohmann-json, spdlog, GoogleTest, Google Benchmark"
  say "  for 'make lint': clang-format and clang-tidy >= 16"
  say "then run 'make build SETUP=' to skip this script."
  exit 1
}

# Prints "URI KEYRING" of the first apt source that serves main of this release; KEYRING may be empty.
find_mirror() {
  python3 - "$1" <<'PY'
import glob, re, sys
suite = sys.argv[1]
files = ["/etc/apt/sources.list"] + sorted(glob.glob("/etc/apt/sources.list.d/*"))
for path in files:
    try:
        text = open(path, encoding="utf-8", errors="replace").read()
    except OSError:
        continue
    if path.endswith(".sources"):
        for stanza in re.split(r"\n\s*\n", text):
            lines = [l for l in stanza.splitlines() if not l.startswith("#")]
            field = dict(l.split(":", 1) for l in lines if re.match(r"[A-Za-z-]+:", l))
            if suite in field.get("Suites", "").split() and "main" in field.get("Components", "").split():
                key = field.get("Signed-By", "").strip()
                print(field["URIs"].split()[0], key if key.startswith("/") else "")
                sys.exit()
    elif path.endswith(".list"):
        for line in text.splitlines():
            m = re.match(r"\s*deb\s+(\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+(.*)", line)
            if m and m[3] == suite and "main" in m[4].split():
                key = re.search(r"signed-by=([^\s\]]+)", m[1] or "")
                print(m[2], key[1] if key else "")
                sys.exit()
sys.exit(1)
PY
}

add_testing_suite() {
  local codename=$1 list=/etc/apt/sources.list.d/moestro-testing.sources
  local pin=/etc/apt/preferences.d/moestro-testing uri keyring found
  if ! command -v python3 >/dev/null; then
    $sudo apt-get update -q && $sudo apt-get install -y -q --no-install-recommends python3
  fi
  found=$(find_mirror "$codename") || {
    say "no apt source for '$codename main' found under /etc/apt; add Debian's testing suite by hand"; exit 1; }
  read -r uri keyring <<<"$found"
  say "adding Debian testing at priority 100 ($list, $pin)"
  { echo "Types: deb"; echo "URIs: $uri"; echo "Suites: testing"; echo "Components: main"
    if [ -n "$keyring" ]; then echo "Signed-By: $keyring"; fi; } | $sudo tee "$list" >/dev/null
  printf 'Package: *\nPin: release a=testing\nPin-Priority: 100\n' | $sudo tee "$pin" >/dev/null
}

command -v dpkg-query >/dev/null || explain_other_system
mapfile -t missing < <(missing_packages)
[ ${#missing[@]} -gt 0 ] || exit 0

# shellcheck disable=SC1091
. /etc/os-release
[ "${ID:-}" = debian ] || { say "missing: ${missing[*]}"; explain_other_system; }

sudo=
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { say "missing: ${missing[*]}; run as root or install sudo"; exit 1; }
  sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive

say "to install: ${missing[*]}"
testing_list=/etc/apt/sources.list.d/moestro-testing.sources
target=()
case "${VERSION_ID:-}" in
  12|13)
    [ -e "$testing_list" ] || add_testing_suite "$VERSION_CODENAME" ;;
  1[01]|[1-9])
    say "Debian $VERSION_ID is too old; Debian 12 or newer is needed"; exit 1 ;;
esac
# Not VERSION_ID: an earlier run may have moved base-files, and Debian testing has no version number.
if [ -e "$testing_list" ]; then target=(-t testing); fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 \
    -o Dpkg::Options::=--force-confold "$@" >"$log" 2>&1
}
install_missing() { apt install -y --no-install-recommends "${target[@]}" "${missing[@]}"; }

say "reading package lists"
apt update || { tail -n 20 "$log" >&2; say "'apt-get update' failed (see above)"; exit 1; }
say "installing (about a minute)"
if ! install_missing; then
  # Moving libssl between suites can trip over a file that both own; apt's own repair settles it.
  say "first attempt failed, repairing and trying once more"
  apt install -y -f "${target[@]}" || true
  install_missing || { tail -n 30 "$log" >&2; say "'apt-get install' failed (see above)"; exit 1; }
fi
awk '/packages will be REMOVED/ {on=1; print "setup: apt removed:"; next} /^[^ ]/ {on=0} on' "$log"

mapfile -t missing < <(missing_packages)
[ ${#missing[@]} -eq 0 ] || { say "still missing or too old: ${missing[*]}"; exit 1; }
say "done"
