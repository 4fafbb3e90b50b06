#!/bin/bash
# SPDX-License-Identifier: MIT
# setup.sh [lint] [bench] [fuzz] [device] [clients] [numa] [readers] [package] [aarch64]
# [memory] [kernel]
# Installs what Moestro needs to build and test, and what the named tasks need on top. Safe to call
# again: quick and silent when nothing is missing; asks no questions.
#
# A package comes from the machine's own Debian release if that has it new enough. What Debian 12
# and 13 lack comes from the testing suite, which this adds at a low priority from the mirror and
# keyring that the machine already uses. Other systems get a list of what to install, and exit 1.
set -euo pipefail

# name:minimum version; an empty minimum means any.
packages=(
  g++:13 binutils:2.43 cmake:3.25 ninja-build: make: ccache: pkg-config: python3:
  libggml-dev:0.27 libllama-dev:0.7 liburing-dev:2.3
  libcli11-dev:2.3 nlohmann-json3-dev:3.11 libspdlog-dev:1.10 libgtest-dev:1.12
  libcurl4-openssl-dev:8 libssl-dev:3.2  # Debian 12's own stand in the way of testing's libraries
)
# Large ones, which nobody should wait for who only wants to see the program run.
lint_packages=(clang-format:21 clang-tidy:21 libbenchmark-dev:1.7)  # it reads the benchmarks, too
bench_packages=(libbenchmark-dev:1.7)
fuzz_packages=(clang:21 libclang-rt-dev:21)
# What stands before several servers and reads their metrics.
scale_packages=(haproxy:3.1 prometheus:2.40)
# For tests: a GPU in software; another machine's memory, on the loopback; several servers.
device_packages=(libggml0-backend-vulkan:0.27 mesa-vulkan-drivers:25
                 libggml0-backend-rpc:0.27 llama.cpp-tools-extra:0.7 "${scale_packages[@]}")
# What servers are tested against; node and npm only where there are none, whoever installed them.
clients_packages=(json-schema-test-suite: chromium: llama.cpp-tools:0.7 "${scale_packages[@]}")
command -v node >/dev/null || clients_packages+=(nodejs:20)
command -v npm >/dev/null || clients_packages+=(npm:10)
# A virtual machine.
numa_packages=(qemu-system-x86:7 busybox-static: cpio:)
# What reads man pages and units as strictly as can be.
readers_packages=(mandoc: groff-base: systemd:)
# A package, and a Debian to try it in.
package_packages=(dpkg-dev: file: mmdebstrap: "${readers_packages[@]}")
# A compiler for arm64, its emulators, and what unpacks arm64 packages (aarch64_root.sh).
# qemu-user 9.1 is the first whose programs need no library, and 8.1 the first with neoverse-v1.
aarch64_packages=(g++-aarch64-linux-gnu:13 qemu-user:9.1 qemu-system-arm:7 mmdebstrap: arch-test:
  dpkg-dev: busybox-static: cpio:)
# What tries all interleavings of a small program that a model of memory order allows.
memory_packages=(herdtools7:7.56)
# What compiles Linux, beside the compiler of its architecture.
kernel_packages=(bison: flex: bc: xz-utils:)
testing_sources=moestro-testing.sources

say() { printf 'setup: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }

for task in "$@"; do
  case $task in
    lint) packages+=("${lint_packages[@]}") ;;
    bench) packages+=("${bench_packages[@]}") ;;
    fuzz) packages+=("${fuzz_packages[@]}") ;;
    device) packages+=("${device_packages[@]}") ;;
    clients) packages+=("${clients_packages[@]}") ;;
    numa) packages+=("${numa_packages[@]}") ;;
    readers) packages+=("${readers_packages[@]}") ;;
    package) packages+=("${package_packages[@]}") ;;
    aarch64) packages+=("${aarch64_packages[@]}") ;;
    memory) packages+=("${memory_packages[@]}") ;;
    kernel) packages+=("${kernel_packages[@]}") ;;
    *) die "'$task' is no task; known: lint, bench, fuzz, device, clients, numa, readers, package," \
         "aarch64, memory, kernel" ;;
  esac
done

# is_new_enough VERSION MINIMUM. The minimum is upstream's, so an epoch ("4:13.2.0") does not count.
is_new_enough() {
  [ -n "$1" ] && { [ -z "$2" ] || dpkg --compare-versions "${1#*:}" ge "$2"; }
}

# Names of the packages that are absent or too old, one a line.
missing_packages() {
  local entry name
  declare -A have=()
  # shellcheck disable=SC2016  # dpkg-query expands ${...}
  while read -r name version; do have[$name]=$version; done < <(
    dpkg-query -W -f '${Package} ${Version} ${Status}\n' "${packages[@]%%:*}" 2>/dev/null |
      awk '/ installed$/ {print $1, $2}')
  for entry in "${packages[@]}"; do
    name=${entry%%:*}
    is_new_enough "${have[$name]:-}" "${entry#*:}" || echo "$name"
  done
}

explain_other_system() {
  say "this script installs packages on Debian 12 or newer; on this system install by its own means:"
  say "  g++ >= 13, cmake >= 3.25, ninja, make, pkg-config, python3; ccache if you like"
  say "  ggml >= 0.27 and libllama >= 0.7 with headers and CMake files, liburing >= 2.3"
  say "  CLI11, nlohmann-json, spdlog, GoogleTest, libcurl >= 8, OpenSSL"
  say "  for 'make lint': clang-format and clang-tidy 21, Google Benchmark"
  say "  for 'make bench': Google Benchmark; for 'make fuzz': clang 21 with libFuzzer"
  say "  for 'make test': ggml's Vulkan backend and Mesa's lavapipe, or any GPU that ggml knows;"
  say "    the JSON-Schema-Test-Suite in /usr/share/json-schema-test-suite; for others' clients of"
  say "    the server: node >= 20 with npm, chromium, promtool, llama-server; HAProxy >= 3.1"
  say "    what reads man pages and units: mandoc, groff, systemd-analyze"
  say "  for 'make test-numa' and 'make test-service': qemu-system-x86_64, a static busybox, cpio,"
  say "    and a Linux kernel in VM_KERNEL"
  say "  for PRESET=aarch64 and 'make test-aarch64': aarch64-linux-gnu-g++, qemu-aarch64, and"
  say "    arm64's libraries in build/aarch64-root"
  say "    for 'make test-pages PAGES=64': bison, flex, bc, and Linux's source"
  say "  for 'make test-memory-order': herdtools7"
  say "  for 'make deb' and its test: dpkg-dev, mmdebstrap; for 'make test-image': podman"
  say "and call make with SETUP= to skip this script, as in 'make run SETUP='"
  exit 1
}

log=
run_apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 \
    -o Acquire::Retries=3 -o Dpkg::Options::=--force-confold "$@" >"$log" 2>&1
}
show_log_and_die() { tail -n 30 "$log" >&2; die "$* (see above)"; }

# Prints "URI KEYRING" of the package indexes that FILTER... (apt-get indextargets) selects.
debian_indexes() {
  # shellcheck disable=SC2016  # apt-get expands $(...)
  apt-get indextargets --format '$(REPO_URI) $(SIGNED_BY)' 'Created-By: Packages' 'Origin: Debian' \
    'Component: main' "$@"
}

add_testing_suite() {
  local uri keyring
  read -r uri keyring < <(debian_indexes 'Label: Debian') ||
    die "apt knows no mirror of Debian's 'main'; add the testing suite by hand and call this again"
  say "adding the testing suite at priority 100 (/etc/apt/sources.list.d/$testing_sources)"
  { printf 'Types: deb\nURIs: %s\nSuites: testing\nComponents: main\n' "$uri"
    case $keyring in /*) printf 'Signed-By: %s\n' "$keyring" ;; esac
  } | "${as_root[@]}" tee "/etc/apt/sources.list.d/$testing_sources" >/dev/null
  printf 'Package: *\nPin: release a=testing\nPin-Priority: 100\n' |
    "${as_root[@]}" tee /etc/apt/preferences.d/moestro-testing >/dev/null
  run_apt update -o "Dir::Etc::SourceList=sources.list.d/$testing_sources" \
    -o Dir::Etc::SourceParts=- -o APT::Get::List-Cleanup=0 ||
    show_log_and_die "'apt-get update' failed for the testing suite"
}

# The newest version outside a suite named "testing"; empty if there is none.
release_version() {
  apt-cache madison "$1" | awk -F ' *[|] *' '$3 !~ / testing\// {print $2; exit}'
}

# install_all [-t SUITE] PACKAGE...
install_all() {
  # Debian 12's libssl3 and testing's openssl-provider-legacy own the same file while the one
  # replaces the other, and dpkg stops at that unless the newcomer may have the file.
  local force=()
  if [ "$1" = -t ]; then force=(-o Dpkg::Options::=--force-overwrite); fi
  run_apt install --no-install-recommends "${force[@]}" "$@" && return
  # An earlier call may have been cut short.
  say "repairing what is half installed, and trying once more"
  run_apt install -f "${force[@]}" || true
  run_apt install --no-install-recommends "${force[@]}" "$@"
}

mapfile -t missing < <(command -v dpkg-query >/dev/null && missing_packages || echo everything)
[ ${#missing[@]} -gt 0 ] || exit 0
if [ -r /etc/os-release ]; then
  # shellcheck disable=SC1091
  . /etc/os-release
fi
[ "${ID:-}" = debian ] || { say "missing: ${missing[*]}"; explain_other_system; }
case ${VERSION_ID:-} in [1-9] | 1[01]) explain_other_system ;; esac

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || die "missing: ${missing[*]}; run this as root or install sudo"
  as_root=(sudo)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT

say "to install: ${missing[*]}"
say "reading package lists"
run_apt update || show_log_and_die "'apt-get update' failed"

declare -A minimum=()
for entry in "${packages[@]}"; do minimum[${entry%%:*}]=${entry#*:}; done
from_release=() from_testing=()
for name in "${missing[@]}"; do
  if is_new_enough "$(release_version "$name")" "${minimum[$name]}"; then
    from_release+=("$name")
  else
    from_testing+=("$name")
  fi
done

# Tests start these themselves; no service is wanted that would run from now on.
for name in haproxy prometheus; do
  if [[ " ${missing[*]} " == *" $name "* ]] && command -v systemctl >/dev/null; then
    "${as_root[@]}" systemctl mask "$name.service" >"$log" 2>&1 || true
  fi
done

if [ ${#from_release[@]} -gt 0 ]; then
  say "installing (up to a minute): ${from_release[*]}"
  # Packages of the release no longer fit where testing has replaced what they are built for (its
  # Python, for one, which emulators of the aarch64 task bring).
  install_all "${from_release[@]}" || from_testing+=("${from_release[@]}")
fi
if [ ${#from_testing[@]} -gt 0 ]; then
  [ -n "$(debian_indexes 'Suite: testing')" ] || add_testing_suite
  say "installing from testing (up to a minute): ${from_testing[*]}"
  install_all -t testing "${from_testing[@]}" || show_log_and_die "'apt-get install' failed"
  awk '/packages will be REMOVED/ {on=1; print "setup: apt replaced or removed:"; next}
       /^[^ ]/ {on=0} on {print "setup:" $0}' "$log"
fi

mapfile -t missing < <(missing_packages)
[ ${#missing[@]} -eq 0 ] || die "still missing or too old: ${missing[*]}"
say "done"
