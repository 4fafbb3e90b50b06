#!/bin/bash
# SPDX-License-Identifier: MIT
# deb_test.sh FOLDER TREE.tar [HUB]: installs the packages of FOLDER (moestro, then moestro-lab) in a
# fresh Debian (scripts/debian_tree.sh), uses them there as somebody without rights, reinstalls,
# removes and purges them; then lintian. Needs root and the machine's apt. Prints what it does; fails
# at the first thing that is wrong. Packages and a tree of arm64 run under an emulator
# (scripts/setup.sh aarch64), and lintian, which sees no architecture, is left out.
#
# With HUB, the program moestro_local_hub, that somebody also fetches a model by its name with the
# lines of README.md and serves it; what is typed and said is kept in build/package/transcript.txt.
set -euo pipefail
deb=$(realpath "$1"/moestro_*.deb)
lab_deb=$(realpath "$1"/moestro-lab_*.deb)
tree=$(realpath "$2")
hub_program=${3:+$(realpath "$3")}
here=$(dirname "$(realpath "$0")")

if [ "${DEB_TEST_NAMESPACE:-}" = "" ]; then
  # Mounts and processes that are left end with this.
  DEB_TEST_NAMESPACE=1 exec unshare --mount --pid --fork --kill-child "$0" "$@"
fi

. "$here/foreign_arch.sh"
arch=$(dpkg-deb -f "$deb" Architecture)
run_foreign "$arch"
root=$(mktemp -d)
trap 'leave_foreign; umount -Rl "$root" 2>/dev/null || true; rm -rf "$root"' EXIT
mount -t tmpfs -o mode=755 tmpfs "$root"
tar -C "$root" -xf "$tree" --exclude='./dev/*'
mount -t proc proc "$root/proc"
mount --rbind --make-rslave /dev "$root/dev"
mkdir "$root/run/try"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/hosts "$root/etc/hosts"
cp "$deb" "$root/run/try/moestro.deb"
cp "$lab_deb" "$root/run/try/moestro-lab.deb"

home=/run/try/user  # within the tree
say() { printf 'deb-test: %s\n' "$*"; }
die() { say "FAILED: $*" >&2; exit 1; }
emulated=${QEMU_CPU:+QEMU_CPU=$QEMU_CPU}  # as which processor, of another architecture
within() {
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root ${emulated:+"$emulated"} "$@"
}
# As a user who owns nothing but a folder for what he keeps. Not a function: in the background that
# would be a process between.
as_user=(chroot --userspec=1234:1234 "$root" env -i PATH=/usr/bin HOME="$home" ${emulated:+"$emulated"})
apt() {
  within DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends \
    "$@" >"$root/run/try/log" 2>&1 || { tail -n 20 "$root/run/try/log" >&2; die "apt-get $*"; }
}
# wait_until_ready PID LOG [FLAG...]: until the server of this process answers.
wait_until_ready() {
  local pid=$1 log=$2
  shift 2
  for ((i = 0; i < 600; ++i)); do
    if "${as_user[@]}" moestro health "$@" >/dev/null 2>&1; then return; fi
    kill -0 "$pid" 2>/dev/null || die "the server ended: $(cat "$log")"
    sleep 0.1
  done
  die "the server does not answer: $(cat "$log")"
}
# ask PORT PATH BODY: prints the reply.
ask() {
  exec 3<>"/dev/tcp/127.0.0.1/$1"
  printf 'POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n' "$2" >&3
  printf 'Content-Length: %s\r\n\r\n%s' ${#3} "$3" >&3
  cat <&3
  exec 3>&-
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

say "says where the laboratory is to be had, and starts it once it is there"
synth=("${as_user[@]}" moestro synth --list)
if "${synth[@]}" >"$root/run/try/log" 2>&1; then die "there is a laboratory already"; fi
grep -q 'install the package moestro-lab' "$root/run/try/log" || die "$(cat "$root/run/try/log")"
apt install /run/try/moestro-lab.deb
"${synth[@]}" | grep -q qwen3-30b-a3b || die "moestro synth does not list its shapes"
"${as_user[@]}" moestro-lab synth --list | cmp - <("${synth[@]}") || die "moestro-lab lists others"

# keep: what is said, as a terminal shows it in the end, is printed and kept.
keep() {
  sed -u 's/\r*$//; s/.*\r//; s/\x1b\[[0-9;?]*[A-Za-z]//g' | tee -a "$transcript" | sed -u 's/^/  /'
}
# types COMMAND: the user without rights at a terminal.
types() {
  echo "$ $1" | keep
  "${as_user[@]}" SHELL=/bin/sh TERM=xterm HF_ENDPOINT="$address" script -qefc "$1" /dev/null \
    </dev/null 2>&1 | keep || die "$1"
}
# said WORDS: whether the transcript has them since the last command.
said() {
  awk '/^\$ / {said = ""} {said = said $0 "\n"} END {printf "%s", said}' "$transcript" |
    grep -F -- "$1" >/dev/null || die "it does not say '$1'"
}

# What README.md tells a stranger to type, with a model that the tests' hub has.
fetch_and_serve() {
  local address port server reply
  mkfifo "$root/run/try/hub"
  # It ends when nobody writes to it any more.
  exec 4<>"$root/run/try/hub"
  "$hub_program" o/stories "$here/../models/stories-moe-q8_0.gguf" <"$root/run/try/hub" \
    >"$root/run/try/address" 4>&- &
  for ((i = 0; i < 300; ++i)); do
    address=$(cat "$root/run/try/address")
    [ -z "$address" ] || break
    sleep 0.1
  done
  [ -n "$address" ] || die "there is no hub"

  local lines
  mapfile -t lines < <(sed -nE 's/^build\/(moestro (plan|pull|run) owner.*[^ ]) +# .*/\1/p' \
    "$here/../README.md")
  [ ${#lines[@]} = 3 ] || die "README.md has ${#lines[@]} lines of plan, pull and run"
  for line in "${lines[@]}"; do
    line=${line/owner\/repo:Q4_K_M/o/stories:Q8_0}
    types "${line/--ram 6G/--ram 500M}"
    case $line in
      *plan*) said 'fits       yes' && said 'to fetch into' ;;
      *pull*) said 'o/stories:Q8_0 is there' ;;
      *) said 'Once' && said 'of a budget of 500.0 MiB' ;;
    esac
  done
  types 'moestro list'
  said 'o/stories:Q8_0'

  port=$((20000 + RANDOM % 20000))
  echo "$ moestro serve o/stories:Q8_0 --ram 500M --port $port &" | keep
  "${as_user[@]}" moestro serve o/stories:Q8_0 --ram 500M --port $port \
    >"$root/run/try/serve.log" 2>&1 4>&- &
  server=$!
  wait_until_ready $server "$root/run/try/serve.log" --port $port
  types "moestro health --port $port"
  local body='{"messages":[{"role":"user","content":"Tell me about a cat."}],"max_tokens":24}'
  echo "$ POST http://127.0.0.1:$port/v1/chat/completions $body" | keep
  reply=$(ask $port /v1/chat/completions "$body")
  echo "$reply" | keep
  said '"completion_tokens":24'
  kill $server
  wait $server || die "the server ended with $?"
  echo '$ kill %1' | keep
  keep <"$root/run/try/serve.log"

  types 'moestro remove o/stories:Q8_0'
  said 'freed'
  types 'moestro list'
  said 'no model is in'
  reply=$(find "$root$home/.cache/huggingface" -name '*.gguf*' -o -path '*/blobs/*')
  [ -z "$reply" ] || die "a model is left: $reply"
  exec 4>&-
}
transcript=$here/../build/package/transcript.txt
if [ -n "$hub_program" ]; then
  say "fetches a model by its name, as README.md says"
  mkdir -p "$(dirname "$transcript")"
  : >"$transcript"
  fetch_and_serve
fi

say "serves it to one request, as the machine's settings say"
port=$((20000 + RANDOM % 20000))
printf 'port = %s\nalias = demo-here\n' $port >"$root/etc/moestro/moestro.conf"
"${as_user[@]}" moestro serve >"$root/run/try/serve.log" 2>&1 &
server=$!
wait_until_ready $server "$root/run/try/serve.log"
reply=$(ask $port /v1/completions '{"prompt":"Once","max_tokens":4,"seed":1}')
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
if within moestro-lab --version 2>/dev/null; then die "the laboratory is still there"; fi
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

if [ "$arch" != "$(dpkg --print-architecture)" ]; then
  say "done"
  exit
fi
say "lintian"
apt install lintian
within lintian --fail-on error,warning --display-level '>=pedantic' --show-overrides \
  --allow-root /run/try/moestro.deb /run/try/moestro-lab.deb || die "lintian complains"
say "done"
