#!/bin/bash
# SPDX-License-Identifier: MIT
# pages_vm.sh BUILD ROOT [KIB]: runs arm64's program and its tests of reading in a virtual machine
# whose kernel, Debian's, has pages of 16 KiB (Asahi's, a Raspberry Pi 5's) or, if KIB is 64, of 64
# (servers'), and checks
#   - that pages are of that size there, and that the file is read with O_DIRECT,
#   - that the text with half of the experts in memory is that of qemu-user with pages of 4 KiB, by
#     each kind of reader,
#   - that the tests of reading pass.
# BUILD: the folder of `make build PRESET=aarch64`; ROOT: of scripts/aarch64_root.sh. The machine is
# emulated, which needs root for unpacking packages alone, and takes some minutes; speeds in it mean
# nothing.
#
# Needs qemu for systems, busybox, cpio and ext4's tools (scripts/setup.sh aarch64), and what
# pages_kernel.sh needs for 64 KiB.
set -euo pipefail

build=$(realpath "$1")
libraries=$(realpath "$2")
kib=${3:-16}
here=$(dirname "$(realpath "$0")")
work=$(realpath -m "$here/../build/pages_vm")
cpu=cortex-a76  # the least of qemu's with pages of 16 KiB and with dot products
# ggml's plug-in for that, the only one on the disk. ggml loads and unloads each to choose one, and
# where a page larger than 4 KiB is mapped anew, qemu (11.1) may go on running what lay there before:
# a program that does nothing but load and unload the plug-ins ends with a fault, too.
plugin=libggml-cpu-armv8.2_2.so

say() { printf 'pages_vm: %s\n' "$*"; }
die() { say "FAILED: $*" >&2; exit 1; }

for tool in qemu-system-aarch64 qemu-aarch64 busybox cpio mke2fs; do
  command -v $tool >/dev/null || die "$tool is missing; scripts/setup.sh aarch64 installs it"
done

# Sets `kernel`, and `modules` to the folder of its modules if it has any.
find_kernel() {
  "$here/aarch64_root.sh" "$work/packages" linux-image-arm64-16k busybox-static
  modules=
  kernel=$work/kernel-$kib/Image
  if [ "$kib" = 64 ]; then "$here/pages_kernel.sh" "$work/kernel-$kib"; return; fi
  modules=$(compgen -G "$work/packages/usr/lib/modules/*" | head -n 1)
  kernel=$(compgen -G "$modules/vmlinuz" || compgen -G "$work/packages/boot/vmlinuz-*" || true)
  [ -n "$kernel" ] && [ -n "$modules" ] || die "the package has no kernel"
}

# The disk: the program, its libraries, and what is read.
make_disk() {
  local root=$work/disk.root
  rm -rf "$root"
  mkdir -p "$root"/{bin,work,proc,sys,dev}
  cp -a "$libraries/usr" "$root/usr"
  rm -rf "$root/usr/include" "$root/usr/share" "$root"/usr/lib/aarch64-linux-gnu/*.a
  find "$root/usr" -name 'libggml-cpu-arm*.so' ! -name $plugin -delete
  ln -s usr/lib "$root/lib"
  [ ! -e "$libraries/usr/lib64" ] || ln -s usr/lib64 "$root/lib64"
  cp "$build/moestro" "$build/src/store/moestro_store_test" "$root/bin/"
  cp "$here/../models/stories-moe-q8_0.gguf" "$root/stories.gguf"
  rm -f "$work/disk"
  mke2fs -q -t ext4 -d "$root" "$work/disk" 1G
}

# copy_modules ROOT: what mounts the disk.
copy_modules() {
  local to=$1/lib/modules/${modules##*/} file
  mkdir -p "$to"
  cp "$modules"/modules.{order,builtin} "$to/"
  for file in "$modules/kernel"/{drivers/virtio/*.ko*,drivers/block/virtio_blk.ko*,lib/crc/*.ko*} \
    "$modules/kernel"/{fs/ext4/*.ko*,fs/jbd2/*.ko*,fs/mbcache.ko*}; do
    [ -e "$file" ] || continue
    case $file in
      *.xz) xz -dc "$file" >"$to/$(basename "$file" .xz)" ;;
      *) cp "$file" "$to/" ;;
    esac
  done
  busybox depmod -b "$1" "${modules##*/}"
}

# What mounts the disk, and says what the checks below look at.
make_initramfs() {
  local root=$work/initramfs
  rm -rf "$root"
  mkdir -p "$root"/{bin,dev,proc,sys,run}
  cp "$(find "$work/packages" -path '*bin/busybox' | head -n 1)" "$root/bin/busybox"
  [ -z "$modules" ] || copy_modules "$root"
  cat >"$root/init" <<INIT
#!/bin/busybox sh
export PATH=/bin
busybox mount -t proc proc /proc
busybox --install -s /bin
mount -t devtmpfs dev /dev
for module in virtio_pci virtio_mmio virtio_blk ext4; do modprobe \$module 2>/dev/null; done
mount -t ext4 /dev/vda /run || { echo "cannot mount the disk"; poweroff -f; }
for folder in proc sys dev; do mount -o bind /\$folder /run/\$folder; done
mount -t sysfs sys /run/sys
mkdir /run/dev/shm
mount -t tmpfs shm /run/dev/shm
echo
echo "machine: \$(uname -r)"
echo "pages: \$(grep -m 1 KernelPageSize /proc/self/smaps)"
for reader in $readers; do
  echo "text \$reader: \$(HOME=/work TMPDIR=/work chroot /run /bin/moestro $story --reader \$reader -v 2>/run/work/err | md5sum)"
  while read -r line; do echo "stderr \$reader: \$line"; done </run/work/err
done
HOME=/work TMPDIR=/work chroot /run /bin/moestro_store_test --gtest_brief=1 >/run/work/tests 2>&1
echo "tests: \$?"
while read -r line; do echo "test: \$line"; done </run/work/tests
HOME=/work TMPDIR=/work chroot /run /bin/moestro doctor /stories.gguf >/run/work/doctor 2>&1
while read -r line; do echo "doctor: \$line"; done </run/work/doctor
echo "end of the machine"
poweroff -f
INIT
  chmod +x "$root/init"
  (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs.gz"
}

start_machine() {
  timeout 1800 qemu-system-aarch64 -machine virt -accel tcg,thread=multi -cpu $cpu -smp 2 -m 2G \
    -drive "file=$work/disk,format=raw,if=virtio,cache=unsafe" \
    -kernel "$kernel" -initrd "$work/initramfs.gz" -append 'console=ttyAMA0 quiet panic=-1' \
    -nographic -no-reboot -nodefaults -serial "file:$work/console" </dev/null || true
  tr -d '\r' <"$work/console" >"$work/log"
  grep -q 'end of the machine' "$work/log" || { tail -n 30 "$work/log" >&2; die "the machine failed"; }
}

# of WHAT: what the machine has said about it.
of() { sed -n "s/^$1: *//p" "$work/log"; }

# shellcheck disable=SC2016,SC2034  # conditions are evaluated by expect
check() {
  local failed=0 expected reader
  expect() { if eval "$2"; then say "ok: $1"; else say "FAILED: $1" >&2; failed=1; fi; }
  # shellcheck disable=SC2086  # flags, one by one
  expected=$(cd "$here/.." && QEMU_CPU=$cpu QEMU_LD_PREFIX=$libraries qemu-aarch64 "$build/moestro" \
    ${story/\/stories.gguf/models\/stories-moe-q8_0.gguf} 2>/dev/null | md5sum)
  grep -E '^(machine|pages|text|stderr|tests?|doctor)\b' "$work/log" | sed 's/^/  /'
  expect "pages are of $kib KiB" '[[ "$(of pages)" == *" $kib kB" ]]'
  expect "the file is read with O_DIRECT" '[[ "$(of doctor)" != *"O_DIRECT is refused"* ]]'
  for reader in $readers; do
    expect "the text is that with pages of 4 KiB ($reader)" '[ "$(of "text $reader")" = "$expected" ]'
  done
  expect "tests of reading pass" '[ "$(of tests)" = 0 ]'
  [ $failed = 0 ] || die "see $work/log"
}

readers="auto pread"
case $kib in 16 | 64) ;; *) die "pages are of 16 or 64 KiB, not '$kib'" ;; esac
story='run /stories.gguf -p Once -n 60 --seed 1 --cache 50% --threads 2'
mkdir -p "$work"
find_kernel
say "making the machine"
make_disk
make_initramfs
say "starting Linux with pages of $kib KiB"
start_machine
check
