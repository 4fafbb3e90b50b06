#!/bin/bash
# SPDX-License-Identifier: MIT
# pages_kernel.sh OUT: compiles Debian's Linux for arm64 with pages of 64 KiB, as servers' systems
# have it (Debian packages kernels of 4 and 16 KiB alone): from Debian's package of the source, with
# no more than a virtual machine of pages_vm.sh needs. Leaves OUT/Image; silent when that is there.
# Runs as root, since aarch64_root.sh does. Some minutes, and 1.5 GB while it runs.
#
# Needs a compiler for arm64, bison, flex and bc (scripts/setup.sh aarch64 kernel).
set -euo pipefail

out=$(realpath -m "$1")
here=$(dirname "$(realpath "$0")")
[ ! -e "$out/Image" ] || exit 0
tree=$out/linux
log=$out/log
options=(
  ARM64_64K_PAGES
  # The console, programs, and what they find in /proc, /sys, /dev and /tmp.
  PRINTK TTY SERIAL_AMBA_PL011 SERIAL_AMBA_PL011_CONSOLE BLK_DEV_INITRD RD_GZIP BINFMT_ELF
  BINFMT_SCRIPT DEVTMPFS PROC_FS PROC_PAGE_MONITOR SYSFS SHMEM TMPFS MULTIUSER
  # The disk.
  BLOCK BLK_DEV PCI PCI_HOST_GENERIC VIRTIO_MENU VIRTIO_PCI VIRTIO_MMIO VIRTIO_BLK EXT4_FS
  # System calls.
  FUTEX EPOLL EVENTFD SIGNALFD TIMERFD IO_URING AIO ADVISE_SYSCALLS MEMBARRIER POSIX_TIMERS
  HIGH_RES_TIMERS NET UNIX INET FILE_LOCKING INOTIFY_USER MEMFD_CREATE TRANSPARENT_HUGEPAGE SECCOMP
)

"$here/aarch64_root.sh" "$out/source" linux-source
source=$(compgen -G "$out/source/usr/src/linux-source-*.tar.xz" | head -n 1) ||
  { echo "pages_kernel: the package has no source" >&2; exit 1; }
rm -rf "$tree"
mkdir -p "$tree"
trap 'rm -rf "$tree"' EXIT
echo "setup: compiling ${source##*/} with pages of 64 KiB (minutes)"
tar -xf "$source" -C "$tree" --strip-components=1 --exclude='*/Documentation/*'
mkdir -p "$tree/Documentation"
: >"$tree/Documentation/Kconfig"
printf 'CONFIG_%s=y\n' "${options[@]}" >"$out/config"
make_kernel() {
  make -s -C "$tree" ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- -j "$(nproc)" "$@" >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; exit 1; }
}
make_kernel KCONFIG_ALLCONFIG="$out/config" allnoconfig
# An option whose name or conditions have changed is left out silently.
for option in "${options[@]}"; do
  grep -q "^CONFIG_$option=y" "$tree/.config" ||
    { echo "pages_kernel: this Linux has no $option, or not with the others" >&2; exit 1; }
done
make_kernel Image
mv "$tree/arch/arm64/boot/Image" "$out/Image"
rm -rf "$out/source"
