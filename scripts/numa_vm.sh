#!/bin/bash
# SPDX-License-Identifier: MIT
# numa_vm.sh MOESTRO: runs the program in a virtual machine of three memory nodes (three CPUs, one
# CPU, memory alone) with Debian's kernel, and checks
#   - that text and logits are the same with --numa auto and off,
#   - that each thread is on its node, and anywhere with off,
#   - that of the slots' pages three quarters are on the first node and a quarter on the second, in
#     runs as long as the nodes' rows of a matrix, and none on the third,
#   - that with two threads they are interleaved on both.
# The machine is emulated, which needs no rights and takes some minutes; speeds in it mean nothing.
#
# Needs qemu, busybox and cpio (scripts/setup.sh numa). VM_KERNEL=FILE: a kernel of your own.
set -euo pipefail

moestro=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
work=$here/../build/numa_vm
plug_ins=$(dirname "$(compgen -G '/usr/lib/*/ggml/backends*/libggml-cpu-x64.so' | head -n 1)")
threads=4

say() { printf 'numa_vm: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }
# shellcheck source=scripts/vm_kernel.sh
. "$here/vm_kernel.sh"

for tool in qemu-system-x86_64 busybox cpio; do
  command -v $tool >/dev/null || die "$tool is missing; scripts/setup.sh numa installs it"
done

# copy FILE...: into the machine, under the same name.
copy() {
  local file
  for file in "$@"; do
    mkdir -p "$work/root$(dirname "$file")"
    cp -L "$file" "$work/root$file"
  done
}

libraries_of() { ldd "$@" | awk '$3 ~ /^\// {print $3} $1 ~ /^\// && $2 ~ /^\(/ {print $1}' | sort -u; }

make_machine() {
  rm -rf "$work/root"
  mkdir -p "$work/root"/{bin,proc,sys,dev,run}
  cp "$(command -v busybox)" "$work/root/bin/"
  cp "$moestro" "$work/root/bin/moestro"
  g++ -std=c++23 -O2 -static "$here/numa_pages.cc" -o "$work/root/bin/numa_pages"
  copy "$plug_ins"/libggml-cpu-*.so
  # shellcheck disable=SC2046  # names without spaces
  copy $(libraries_of "$moestro" "$plug_ins"/libggml-cpu-*.so)
  # Experts of real size: of a matrix of 768 rows, 576 belong to the first node.
  "$moestro" synth --shape qwen3-30b-a3b --type Q4_0 --layers 2 --experts 16 --vocab-size 4096 \
    --force -o "$work/root/run/model.gguf" >/dev/null
  cat >"$work/root/init" <<'INIT'
#!/bin/busybox sh
busybox mount -t proc proc /proc
busybox --install -s /bin
export PATH=/bin
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
# The kernel would move pages to whom it sees reading them, which is not what is looked at.
echo 0 >/proc/sys/kernel/numa_balancing
cd /run
echo
# part: not the whole machine, so that pages are interleaved.
for numa in auto off part; do
  flags="--numa $numa"
  [ $numa != part ] || flags="--numa auto --threads 2"
  moestro run -p "Once upon a time" -n 40 --seed 1 --cache 50% $flags >text.$numa 2>err.$numa
  echo "text $numa: $(md5sum <text.$numa) $(wc -c <text.$numa)"
  moestro bench model.gguf -p 8 -n 24 --cache 100% --cold $flags --json >bench.$numa 2>>err.$numa &
  pid=$!
  most=0
  while kill -0 $pid 2>/dev/null; do
    sleep 1
    numa_pages $pid >pages.new 2>/dev/null
    # As many as there ever are: at its end an engine gives memory back.
    n=$(grep -o 'node [0-9]*: [0-9]*' pages.new | awk '{n += $3} END {print n + 0}')
    if [ $n -gt 0 ] && [ $n -ge $most ]; then
      most=$n
      mv pages.new pages.$numa
      # io_uring's own threads are on nodes by themselves.
      for task in /proc/$pid/task/*; do
        [ "$(cat $task/comm)" != moestro ] || sed -n 's/Cpus_allowed_list:[^0-9]*//p' $task/status
      done | sort | uniq -c | tr -s '\n ' ' ' >>cpus.$numa
      echo >>cpus.$numa
    fi
  done
  echo "hash $numa: $(tr ',' '\n' <bench.$numa | grep logits_hash)"
  echo "engine $numa: $(sed -n 's/.*\( NUMA nodes: [^"]*\)".*/\1/p' bench.$numa)"
  echo "pages $numa: $(cat pages.$numa)"
  # What was seen most often: at its end an engine lets its threads go.
  echo "threads $numa:$(sort cpus.$numa | uniq -c | sort -n | tail -n 1 | sed 's/^ *[0-9]*//')"
  while read -r line; do echo "stderr $numa: $line"; done <err.$numa
done
echo "machine: $(uname -r), $(cat /sys/devices/system/node/online), $(cat /sys/kernel/mm/transparent_hugepage/enabled)"
echo "end of the machine"
poweroff -f
INIT
  chmod +x "$work/root/init"
  (cd "$work/root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs.gz"
}

start_machine() {
  timeout 1800 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp $threads -m 4G \
    -object memory-backend-ram,id=m0,size=2G -object memory-backend-ram,id=m1,size=1536M \
    -object memory-backend-ram,id=m2,size=512M \
    -numa node,nodeid=0,cpus=0-2,memdev=m0 -numa node,nodeid=1,cpus=3,memdev=m1 \
    -numa node,nodeid=2,memdev=m2 \
    -kernel "$kernel" -initrd "$work/initramfs.gz" -append 'console=ttyS0 quiet panic=-1' \
    -nographic -no-reboot -nodefaults -serial "file:$work/console" </dev/null || true
  tr -d '\r' <"$work/console" >"$work/log"
  grep -q 'end of the machine' "$work/log" || { tail -n 30 "$work/log" >&2; die "the machine failed"; }
}

# of WHAT: what the machine has said about it.
of() { sed -n "s/^$1: *//p" "$work/log"; }
# pages_on NODE WHICH
pages_on() { of "pages $2" | sed -n "s/.*node $1: \([0-9]*\) pages.*/\1/p"; }

# shellcheck disable=SC2016,SC2034  # conditions are evaluated by expect
check() {
  local failed=0
  expect() { if eval "$2"; then say "ok: $1"; else say "FAILED: $1" >&2; failed=1; fi; }
  grep -E '^(machine|engine|pages|threads|hash|text|stderr) ?' "$work/log" | sed 's/^/  /'
  local first second third
  first=$(pages_on 0 auto) second=$(pages_on 1 auto) third=$(pages_on 2 auto)
  expect "the text is the same" '[ -n "$(of "text auto")" ] && [ "$(of "text auto")" = "$(of "text off")" ]'
  expect "logits are the same" '[ -n "$(of "hash auto")" ] && [ "$(of "hash auto")" = "$(of "hash off")" ]'
  expect "the engine names its nodes" '[[ "$(of "engine auto")" == *"NUMA nodes: 3 + 1 threads"* ]]'
  expect "and nothing when it is off" '[ -z "$(of "engine off")" ]'
  expect "three threads on the first node" 'of "threads auto" | grep -qE "(^| )[3-9] 0-2 "'
  expect "one thread on the second" 'of "threads auto" | grep -qE "(^| )1 3 "'
  expect "all threads anywhere when it is off" \
    'of "threads off" | grep -qxE " *[0-9]+ 0-3 "'
  expect "three quarters of the pages on the first node" \
    '[ $((first * 100 / (first + second))) -ge 73 ] && [ $((first * 100 / (first + second))) -le 77 ]'
  expect "none on the node without CPUs" '[ "${third:-0}" = 0 ]'
  # 884,736 bytes of a matrix are 216 pages: 162 and 54, of which the pages in between are shared.
  expect "runs of a matrix's rows" '[[ "$(of "pages auto")" =~ \ x\ 16[0-3]\ on\ node\ 0 ]]'
  first=$(pages_on 0 part) second=$(pages_on 1 part) third=$(pages_on 2 part)
  expect "a part of the machine takes pages from both nodes in turn" \
    '[[ "$(of "engine part")" == *interleaved* ]] && [ "${third:-0}" = 0 ] &&
     [ $((first * 100 / (first + second))) -ge 40 ] && [ $((first * 100 / (first + second))) -le 60 ]'
  [ $failed = 0 ] || die "see $work/log"
}

mkdir -p "$work"
find_kernel "$here/../build/vm_kernel"
say "making the machine"
make_machine
say "starting $(basename "$kernel") with nodes of 3, 1 and 0 CPUs"
start_machine
check
